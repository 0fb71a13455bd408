"""Bases in SQLite and PostgreSQL against the sequential oracle, message for message."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.oracles import annotated as paper
from tests.oracles.annotated import Entry, Sent
from tests.oracles.annotated_marked import KEPT, Marked, Tail, marked_fix_up, marked_refresh
from tests.replication.annotated.conftest import Source
from tests.replication.annotated.figures import (
    BASE_AFTER,
    BASE_TIME,
    MESSAGES,
    SETTLED_BASE,
    SNAP_TIME,
    SNAPSHOT_AFTER,
    Person,
)

from strandline.relations.databases.address import parse_address
from strandline.replication.annotated_base import Base, base
from strandline.replication.senders.annotated.fix_up import BaseMessages, differential, opened
from strandline.replication.targets.target import open_target

STAFF = "CREATE TABLE staff (id INTEGER PRIMARY KEY, name TEXT, salary INTEGER)"
INSERT = "INSERT INTO staff (id, name, salary) VALUES "
FIELDS = "_strandline_previous, _strandline_time"
ENTRIES = "staff LEFT JOIN _strandline_annotations_staff ON _strandline_address = id"


def sent(found: BaseMessages) -> list[Sent]:
    """The messages of a database in the oracle's terms."""
    values = {row["_strandline_address"]: Person(row["name"], row["salary"]) for row in found.rows.to_pylist()}
    messages = []
    for row in found.messages.to_pylist():
        address = row["address"]
        value = None if address is None else values[address] if row["valued"] else KEPT
        messages.append(Sent(address, row["previous"], value))
    return messages


def held(url: str) -> dict[int, Person]:
    with open_target(url) as copy:
        rows = pa.Table.from_batches(copy.rows()).to_pylist() if copy.count() else []
    return {row.get("_strandline_address", row.get("id")): Person(row["name"], row["salary"]) for row in rows}


def annotated(source: Source) -> list[tuple[Any, ...]]:
    return source.run(f"SELECT id, {FIELDS}, name, salary FROM {ENTRIES} ORDER BY id")


def settle(source: Source, found: Base, time: int) -> None:
    """Puts the annotations and the counter to what the figure says they were."""
    for entry in SETTLED_BASE:
        source.run(
            f"UPDATE _strandline_annotations_staff SET _strandline_previous = {entry.previous}, "
            f"_strandline_time = {entry.time} WHERE _strandline_address = {entry.address}"
        )
    with opened(found._address) as site, site.table.database.transaction():
        site.catalog.put_base(replace(site.record(), time=time - 1, rows=6, last=7))


def test_figures_5_and_6_in_a_database_give_the_same_tables_and_messages(source: Source) -> None:
    source.run(STAFF)
    source.run(INSERT + "(1,'Bruce',15),(3,'Hamid',9),(4,'Jack',6),(5,'Mohan',9),(6,'Paul',8),(7,'Bob',8)")
    found = base(source.url, source.table("staff"), algorithm="paper")
    target = source.target("duckdb", "low")
    found.replicate(target, where="salary < 10", columns=["name", "salary"])
    settle(source, found, BASE_TIME)
    source.run(INSERT + "(2,'Laura',6)")
    source.run("UPDATE staff SET salary = 15 WHERE id = 3")
    source.run("DELETE FROM staff WHERE id IN (4, 7)")
    before = annotated(source)
    assert before == [
        (1, 0, 300, "Bruce", 15),
        (2, None, None, "Laura", 6),
        (3, 1, None, "Hamid", 15),
        (5, 4, 230, "Mohan", 9),
        (6, 5, 200, "Paul", 8),
    ]
    with opened(found._address) as site:
        messages = differential(site, site.catalog.copies()[0], SNAP_TIME)
    assert sent(messages) == MESSAGES
    assert messages.position.time == BASE_TIME
    assert annotated(source) == [(e.address, e.previous, e.time, *e.value) for e in BASE_AFTER]


def test_a_copy_follows_its_base_as_in_figure_6(source: Source) -> None:
    source.run(STAFF)
    source.run(INSERT + "(1,'Bruce',15),(3,'Hamid',9),(4,'Jack',6),(5,'Mohan',9),(6,'Paul',8),(7,'Bob',8)")
    found = base(source.url, source.table("staff"), algorithm="paper")
    target = source.target("sqlite", "low")
    copy = found.replicate(target, where="salary < 10")
    source.run(INSERT + "(2,'Laura',6)")
    source.run("UPDATE staff SET salary = 15 WHERE id = 3")
    source.run("DELETE FROM staff WHERE id IN (4, 7)")
    done = copy.refresh("differential")
    assert (done.method, done.messages) == ("differential", 3)
    assert held(target) == SNAPSHOT_AFTER
    assert copy.verify().equal


COPIES: dict[int, tuple[str, str]] = {
    0: ("salary < 5", "duckdb"),
    1: ("salary >= 3", "sqlite"),
    2: ("name = 'a'", "parquet"),
}
ADDRESSES = (1, 2, 3, 4, 5, 6, 62, 63, 64, 65, 127, 128, 500)
"""Close together, and on both sides of the borders of blocks."""
operation = st.tuples(st.sampled_from("iiuudm"), st.sampled_from(ADDRESSES), st.integers(0, 9), st.sampled_from("ab"))
rounds = st.lists(st.tuples(st.lists(operation, max_size=8), st.integers(0, 2)), min_size=1, max_size=5)

SPREAD: Any = [
    ([("i", address, address % 7, "a") for address in ADDRESSES], 0),
    ([("d", 3, 0, "a"), ("d", 63, 0, "a"), ("u", 5, 9, "b"), ("m", 128, 0, "a")], 0),
    ([("d", 64, 0, "a"), ("d", 65, 0, "a"), ("i", 3, 1, "a"), ("i", 63, 8, "a")], 0),
    ([("d", 1, 0, "a"), ("d", 127, 0, "a"), ("u", 2, 1, "a")], 1),
    ([("d", 500, 0, "a"), ("d", 62, 0, "a"), ("i", 64, 2, "a")], 0),
]
"""Entries go at both ends, at the borders of blocks, side by side; keys come again."""


class Twin:
    """The base as the oracle sees it, beside the real one."""

    def __init__(self, source: Source, algorithm: str) -> None:
        self.source = source
        self.algorithm = algorithm
        self.table: dict[int, Marked] = {}
        self.tail = Tail()

    def happen(self, kind: str, address: int, salary: int, name: str) -> None:
        here = self.table.get(address)
        if kind == "i" and here is None:
            self.source.run(f"{INSERT}({address}, '{name}', {salary})")
            self.table[address] = Marked(address, None, None, Person(name, salary))
        elif kind == "u" and here is not None:
            self.source.run(f"UPDATE staff SET salary = {salary}, name = '{name}' WHERE id = {address}")
            self.table[address] = replace(here, time=None, value=Person(name, salary))
        elif kind == "d" and here is not None:
            self.source.run(f"DELETE FROM staff WHERE id = {address}")
            del self.table[address]
        elif kind == "m" and here is not None and address + 3 not in self.table:
            self.source.run(f"UPDATE staff SET id = {address + 3} WHERE id = {address}")
            self.table[address + 3] = Marked(address + 3, None, None, here.value)
            del self.table[address]
        self.table = dict(sorted(self.table.items()))

    def refresh(self, bit: int, snap_time: int, now: int) -> list[Sent]:
        entries = list(self.table.values())
        restrictions = {b: RESTRICT[b] for b in COPIES}
        if self.algorithm == "paper":
            plain = [Entry(e.address, e.previous, e.time, e.value) for e in entries]
            fixed, messages = paper.fix_up_and_refresh(plain, snap_time, now, RESTRICT[bit])
            self.table = {e.address: Marked(e.address, e.previous, e.time, e.value) for e in fixed}
            return messages
        marked, self.tail = marked_fix_up(entries, self.tail, now, restrictions, bit)
        messages = marked_refresh(entries, marked, self.tail, snap_time, (bit, RESTRICT[bit]))
        self.table = {e.address: e for e in marked}
        return messages

    def query(self, bit: int) -> dict[int, Person]:
        return {a: e.value for a, e in self.table.items() if RESTRICT[bit](e.value)}


RESTRICT: dict[int, Any] = {
    0: lambda person: person.salary < 5,
    1: lambda person: person.salary >= 3,
    2: lambda person: person.name == "a",
}


@pytest.mark.parametrize("algorithm", ["paper", "marked"])
@settings(max_examples=examples(8))
@given(data=rounds, lookups=st.booleans())
@example(data=SPREAD, lookups=True)
@example(data=SPREAD, lookups=False)
def test_a_database_sends_what_the_oracle_sends_message_for_message(
    source: Source, algorithm: str, data: Any, lookups: bool
) -> None:
    """Random work between refreshes of several copies, each with its own restriction; keys are used again and moved."""
    source.run("DROP TABLE IF EXISTS staff")
    for name in ("_strandline_bases", "_strandline_copies", "_strandline_annotations_staff"):
        source.run(f"DROP TABLE IF EXISTS {name}")
    source.run(STAFF)
    found = base(source.url, source.table("staff"), algorithm=algorithm)
    twin = Twin(source, algorithm)
    with opened(found._address) as site:
        from strandline.replication.senders.annotated.annotation import define_copy, wanted_copy

        for bit, (where, _) in COPIES.items():
            wanted = wanted_copy(site, parse_address(f"duckdb:///x{bit}#x"), where, ["name", "salary"])
            define_copy(site, replace(wanted, name=f"copy {bit}"))
        records = {record.bit: record for record in site.catalog.copies()}
        times = dict.fromkeys(COPIES, 0)
        copies: dict[int, dict[int, Person]] = {bit: {} for bit in COPIES}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                import_module("strandline.replication.senders.annotated.fix_up"), "FEW", 2.0 if lookups else -1.0
            )
            patch.setattr(
                import_module("strandline.replication.senders.annotated.fix_up"), "LOOKED_UP", 1e9 if lookups else -1.0
            )
            for now, (todo, bit) in enumerate(data, 1):
                for step in todo:
                    twin.happen(*step)
                expected = twin.refresh(bit, times[bit], now)
                messages = differential(site, records[bit], times[bit])
                assert sent(messages) == expected
                assert _annotated(source, algorithm) == _expected(twin)
                needed = paper.ideal_messages(copies[bit], twin.query(bit))
                copies[bit] = twin.query(bit)
                times[bit] = now
                assert needed == 0 or expected


def _annotated(source: Source, algorithm: str) -> list[tuple[Any, ...]]:
    more = ", _strandline_gap, _strandline_unheld" if algorithm == "marked" else ""
    return source.run(f"SELECT id, {FIELDS}{more} FROM {ENTRIES} ORDER BY id")


def _expected(twin: Twin) -> list[tuple[Any, ...]]:
    entries = twin.table.values()
    if twin.algorithm == "paper":
        return [(e.address, e.previous, e.time) for e in entries]
    return [(e.address, e.previous, e.time, e.gap, e.unheld) for e in entries]
