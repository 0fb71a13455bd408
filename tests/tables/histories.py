"""Histories of transactions, and the graph that tells whether they are serialisable.

Every write carries a value of its own, so a read tells whose write it saw. The writers of a key stand in the order in
which each overwrote another: a transaction reads a key before it writes it. Edges: who wrote what another read (wr),
who overwrote whom (ww), who read what another then overwrote (rw). A history is serialisable if and only if the graph
has no cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

Write = tuple[str, int]
"""Who wrote, and how often before: a value that is written once."""

START: Write = ("start", 0)


@dataclass
class Event:
    """One committed transaction: by key what it read, and what it wrote."""

    name: str
    reads: dict[int, Write] = field(default_factory=dict)
    writes: dict[int, Write] = field(default_factory=dict)


def serialisation_graph(history: list[Event]) -> dict[str, set[str]]:
    """For each transaction those that must come before it."""
    writer = {(key, value): event.name for event in history for key, value in event.writes.items()}
    overwriter: dict[tuple[int, Write], str] = {}
    for event in history:
        for key in event.writes:
            seen = (key, event.reads[key])
            assert seen not in overwriter, (
                f"{event.name} and {overwriter[seen]} overwrote the same value: a lost update"
            )
            overwriter[seen] = event.name
    before: dict[str, set[str]] = {event.name: set() for event in history}
    for event in history:
        for key, value in event.reads.items():
            source = writer.get((key, value))
            if source is not None and source != event.name:
                before[event.name].add(source)
            then = overwriter.get((key, value))
            if then is not None and then != event.name:
                before[then].add(event.name)
    return before


def find_cycle(history: list[Event]) -> list[str] | None:
    """A cycle of transactions that no serial order explains, or None."""
    try:
        list(TopologicalSorter(serialisation_graph(history)).static_order())
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None
