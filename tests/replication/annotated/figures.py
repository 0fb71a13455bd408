"""The tables of the paper's figures 1, 2, 5 and 6. A time "3 45" is 345."""

from __future__ import annotations

from typing import NamedTuple

from tests.oracles.annotated import Element, Entry, Sent


class Person(NamedTuple):
    name: str
    salary: int


SNAP_TIME, BASE_TIME = 330, 430


def restrict(person: Person) -> bool:
    return person.salary < 10


SIMPLE_BASE = [
    Element(1, 300, Person("Bruce", 15)),
    Element(2, 345, Person("Laura", 6)),
    Element(3, 350, Person("Hamid", 15)),
    Element(4, 400, None),
    Element(5, 230, Person("Mohan", 9)),
    Element(6, 200, Person("Paul", 8)),
    Element(7, 410, None),
]
SIMPLE_SNAPSHOT = {
    3: Person("Hamid", 9),
    4: Person("Jack", 6),
    5: Person("Mohan", 9),
    6: Person("Paul", 8),
    7: Person("Bob", 7),
}
SNAPSHOT_AFTER = {2: Person("Laura", 6), 5: Person("Mohan", 9), 6: Person("Paul", 8)}

SETTLED_BASE = [
    Entry(1, 0, 300, Person("Bruce", 15)),
    Entry(3, 1, 300, Person("Hamid", 9)),
    Entry(4, 3, 230, Person("Jack", 6)),
    Entry(5, 4, 230, Person("Mohan", 9)),
    Entry(6, 5, 200, Person("Paul", 8)),
    Entry(7, 6, 100, Person("Bob", 8)),
]
"""The base of figure 5 before the changes that its comments tell of; Hamid's old time is not printed."""

BASE_BEFORE = [
    Entry(1, 0, 300, Person("Bruce", 15)),
    Entry(2, None, None, Person("Laura", 6)),
    Entry(3, 1, None, Person("Hamid", 15)),
    Entry(5, 4, 230, Person("Mohan", 9)),
    Entry(6, 5, 200, Person("Paul", 8)),
]
BASE_AFTER = [
    Entry(1, 0, 300, Person("Bruce", 15)),
    Entry(2, 1, 430, Person("Laura", 6)),
    Entry(3, 2, 430, Person("Hamid", 15)),
    Entry(5, 3, 430, Person("Mohan", 9)),
    Entry(6, 5, 200, Person("Paul", 8)),
]
SNAPSHOT_BEFORE = {**SIMPLE_SNAPSHOT, 7: Person("Bob", 8)}
MESSAGES = [Sent(2, 0, Person("Laura", 6)), Sent(5, 2, Person("Mohan", 9)), Sent(None, 6, None)]
