"""Difference tables: what an eagerly kept view has changed by, in the store itself, in segments.

A segment holds the net changes from one position to the next: rows of the view under their signature, with a count that
is never 0. The last segment is open: every commit adds to it what it changes, in the same atomic commit. A refresh
closes it and opens the next, so from any position to now there is one net difference: the sum of the segments behind
it. Copies at one position share its segments. A position at which no copy stands any more is forgotten, and its segment
joins the one before: what is old collapses. Beyond the positions of copies there are segments only for range
modifications: one that holds the update's rows, with the statements beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from strandline.changes import COUNT
from strandline.pages import ReadView
from strandline.tables import DIFFERENCE, SEGMENTS, PageCache, TableReader, TableTransaction, encode_keys
from strandline.values import plain_schema, restore, row_signatures, scheme_of
from strandline.views.definition import ViewDefinition
from strandline.views.join import net

SEGMENT, SIGNATURE, NUMBER = "segment", "signature", "count"
KEY = [SEGMENT, SIGNATURE]
MODIFICATIONS = 16
"""So many updates by expression keep segments of their own; older ones become rows."""
Statements = Mapping[str, list[dict[str, Any]]]
"""For each audience (a kind of copy, or one restricted copy) the statements to run there, as JSON."""
_RECORDS = pa.schema([pa.field("view", pa.string()), pa.field("record", pa.string())])


class SegmentStart(NamedTuple):
    """Where a segment begins: at the commit, by number and id, that opened it.

    While that commit is on its way it has neither; what opens one in the middle of a commit never gets them, as no copy
    can come to stand there.
    """

    number: int
    commit: int = 0
    id: str = ""


@dataclass(frozen=True)
class Segments:
    """The segments of a view in order, each with the position at which it begins.

    `broken` says why the difference is not known any more; it is empty while it is. `modifications` holds, for segments
    that one update by expression made, the statements that say the same, by kind of copy. Every writer counts
    `revision` on by one, so that one who writes what he read too long ago is found out. `leaving` says that copies come
    to stand at states instead, at their next refresh: the view is to be deferred once the last of them has left.
    """

    view: str
    fingerprint: str
    starts: tuple[SegmentStart, ...]
    broken: str = ""
    modifications: Mapping[int, Statements] = field(default_factory=dict)
    revision: int = 0
    leaving: bool = False

    @property
    def table(self) -> str:
        """The name of the difference table."""
        return DIFFERENCE + self.view

    @property
    def open(self) -> int:
        return self.starts[-1].number

    def number(self, id_: str) -> int | None:
        """The segment that begins at the commit of this id."""
        return next((start.number for start in self.starts if start.id == id_ and id_), None)

    def opened(self, commit: int, id_: str) -> Segments:
        """The same, its open segment beginning at this commit, if it was opened on the way to it."""
        last = self.starts[-1]
        return self if last.id else replace(self, starts=(*self.starts[:-1], SegmentStart(last.number, commit, id_)))

    def closed(self) -> Segments:
        """The same with another segment opened."""
        return replace(self, starts=(*self.starts, SegmentStart(self.open + 1)), revision=self.revision + 1)

    def left(self, *, leaving: bool) -> Segments:
        """The same once copies are to leave it, or to stay."""
        return replace(self, leaving=leaving, revision=self.revision + 1)

    def modified(self, statements: Statements) -> Segments:
        """The same once an update has got a segment of its own, and another one is open."""
        own = self.closed()
        modifications = {**self.modifications, own.open: statements}
        return replace(own.closed(), modifications=modifications, revision=self.revision + 1)

    def row(self) -> dict[str, str]:
        record = {
            "fingerprint": self.fingerprint,
            "starts": self.starts,
            "broken": self.broken,
            "modifications": {str(number): dict(by_audience) for number, by_audience in self.modifications.items()},
            "revision": self.revision,
            "leaving": self.leaving,
        }
        return {"view": self.view, "record": json.dumps(record)}

    @staticmethod
    def from_row(row: Mapping[str, str]) -> Segments:
        record = json.loads(row["record"])
        starts = tuple(SegmentStart(*start) for start in record["starts"])
        modifications = {int(number): by_audience for number, by_audience in record["modifications"].items()}
        segments = Segments(row["view"], record["fingerprint"], starts, record["broken"], modifications)
        return replace(segments, revision=record["revision"], leaving=record.get("leaving", False))


def all_segments(view: ReadView, cache: PageCache) -> dict[str, Segments]:
    """The eagerly kept views of a state."""
    if view.find_domain(SEGMENTS) is None:
        return {}
    rows = TableReader(view, SEGMENTS, cache).to_arrow().to_pylist()
    return {row["view"]: Segments.from_row(row) for row in rows}


def records(views: Sequence[Segments]) -> pa.Table:
    """Segments as rows of their table."""
    return pa.Table.from_pylist([segments.row() for segments in views], schema=_RECORDS)


def write(transaction: TableTransaction, segments: Segments) -> None:
    """Write what is known of segments."""
    transaction.upsert(SEGMENTS, records([segments]))


def begin(transaction: TableTransaction, view: ReadView, cache: PageCache, definition: ViewDefinition) -> Segments:
    """Begin a view's difference table, empty, at the commit of this transaction."""
    segments = Segments(definition.name, definition.fingerprint, (SegmentStart(1),))
    known = all_segments(view, cache).get(definition.name)
    if known is not None:
        segments = replace(segments, revision=known.revision + 1)
    if view.find_domain(SEGMENTS) is None:
        transaction.create_table(SEGMENTS, records([segments]), key="view")
    else:
        write(transaction, segments)
    if view.find_domain(segments.table) is not None:
        transaction.drop_table(segments.table)
    transaction.create_table(segments.table, table_schema(definition), key=KEY)
    return segments


def end(transaction: TableTransaction, view: ReadView, name: str) -> None:
    """Give a view's difference table up."""
    transaction.delete(SEGMENTS, where="view = :view", params={"view": name})
    if view.find_domain(DIFFERENCE + name) is not None:
        transaction.drop_table(DIFFERENCE + name)


def table_schema(definition: ViewDefinition) -> pa.Schema:
    """The columns of a difference table: ours, and the view's by their places, so that no name clashes."""
    ours = [pa.field(SEGMENT, pa.int64()), pa.field(SIGNATURE, pa.string()), pa.field(NUMBER, pa.int64())]
    fields = plain_schema(definition.schema)
    return pa.schema([*ours, *(pa.field(f"c{place}", field.type) for place, field in enumerate(fields))])


def stored(definition: ViewDefinition, segment: int, rows: pa.Table) -> pa.Table:
    """Rows of the view with `_count` as rows of its difference table."""
    schema = table_schema(definition)
    values = restore(rows.select(definition.schema.names), plain_schema(definition.schema))
    words = row_signatures(values, scheme_of(plain_schema(definition.schema), bits=128))
    signatures = pa.array([f"{high:016x}{low:016x}" for low, high in words.tolist()], pa.string())
    segments = pa.array(np.full(len(rows), segment, dtype=np.int64))
    columns = [segments, signatures, rows.column(COUNT), *values.columns]
    return pa.Table.from_arrays(columns, schema=schema)


def difference(
    view: ReadView, cache: PageCache, definition: ViewDefinition, first: int, last: int | None = None
) -> pa.Table:
    """The net difference of the segments from `first` to `last` (both inclusive): rows of the view with `_count`."""
    reader = TableReader(view, DIFFERENCE + definition.name, cache)
    upto = "" if last is None else " AND segment <= :last"
    params = {"first": first} | ({} if last is None else {"last": last})
    entries = reader.to_arrow(None, f"segment >= :first{upto}", params)
    names = [*definition.schema.names, COUNT]
    columns = [*(entries.column(f"c{place}") for place in range(len(definition.schema))), entries.column(NUMBER)]
    rows = pa.Table.from_arrays(columns, names=names)
    return net(rows)  # also of one segment: signatures of an older algorithm may name a row once more


def collapse(
    transaction: TableTransaction, view: ReadView, cache: PageCache, known: Segments, kept: set[int]
) -> Segments:
    """Forget segments at whose beginning no copy stands (`kept` has the others); the open one always stays."""
    *closed, last = known.starts
    standing = [start.number for start in closed if start.number in kept]
    newest = sorted(known.modifications)[-MODIFICATIONS:] if standing else []
    # An update's segment stays apart, with its end, as long as a copy stands before it.
    apart = {number for own in newest if own >= standing[0] for number in (own, own + 1)}
    starts = [start for start in closed if start.number in kept or start.number in apart]
    if len(starts) == len(closed):
        return known
    for number in (start.number for start in closed):
        target = max((start.number for start in starts if start.number <= number), default=None)
        if number != target:
            _move(transaction, view, cache, known, (number, target))
    modifications = {number: sent for number, sent in known.modifications.items() if number in apart}
    collapsed = replace(known, starts=(*starts, last), modifications=modifications, revision=known.revision + 1)
    write(transaction, collapsed)
    return collapsed


def _move(
    transaction: TableTransaction, view: ReadView, cache: PageCache, known: Segments, move: tuple[int, int | None]
) -> None:
    """Add a closed segment to an earlier one, or forget it when there is none."""
    number, target = move
    if target is not None:
        rows = TableReader(view, known.table, cache).to_arrow(None, "segment = :s", {"s": number})
        place = rows.schema.get_field_index(SEGMENT)
        moved = rows.set_column(place, rows.schema.field(SEGMENT), pa.array(np.full(len(rows), target, np.int64)))
        add(transaction, known, moved)
    transaction.delete(known.table, where="segment = :s", params={"s": number})


def add(transaction: TableTransaction, known: Segments, rows: pa.Table) -> None:
    """Add rows to a segment in a transaction; counts that cancel out vanish."""
    segment = rows.column(SEGMENT)[0].as_py() if len(rows) else 0
    there = transaction.to_arrow(known.table, where="segment = :s", params={"s": segment})
    put, gone = added(there, rows)
    if len(put):
        transaction.upsert(known.table, put)
    for signature in gone.column(SIGNATURE).to_pylist():
        transaction.delete(known.table, where="segment = :s AND signature = :n", params={"s": segment, "n": signature})


def try_entering(definition: ViewDefinition, rows: pa.Table, clock: Callable[[], float]) -> float | None:
    """Seconds for one entry, found by making the entries of these rows without a table to put them in."""
    if not len(rows):
        return None
    started = clock()
    entries = stored(definition, 0, rows)
    added(entries, entries)
    encode_keys(entries, KEY)
    return (clock() - started) / len(rows)


def added(there: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What a segment holds under the signatures of `rows` once they are added: rows to put, and rows to take away."""
    counts = dict(zip(there.column(SIGNATURE).to_pylist(), there.column(NUMBER).to_pylist(), strict=True))
    sums = [
        counts.get(signature, 0) + number
        for signature, number in zip(rows.column(SIGNATURE).to_pylist(), rows.column(NUMBER).to_pylist(), strict=True)
    ]
    place = rows.schema.get_field_index(NUMBER)
    whole = rows.set_column(place, rows.schema.field(NUMBER), pa.array(sums, pa.int64()))
    mask = pa.array([number != 0 for number in sums], pa.bool_())
    return whole.filter(mask), whole.filter(pa.compute.invert(mask))
