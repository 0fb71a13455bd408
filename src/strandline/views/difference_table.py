"""Difference tables: what an eagerly kept view has changed by, in the store itself.

A segment holds what one commit changed in the view, net, and has the commit's number: rows of the view under their
signature, with a count that is never 0. It is written in the commit itself. So every commit is a position, and from any
position to any state there is one net difference: the sum of the segments behind it. A refresh writes nothing before
its message. When its end is written down, the segments that no copy needs any more go with the same commit.

A segment that one update by expression made may have statements beside it, which say the same: range modifications.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import COUNT
from strandline.engine import parallel
from strandline.pages import ReadView
from strandline.tables import (
    DIFFERENCE,
    SEGMENTS,
    KeyBounds,
    PageCache,
    TableReader,
    TableTransaction,
    encode_keys,
    encode_prefixes,
)
from strandline.values import cast_rows, no_rows, plain_schema, row_signatures, scheme_of
from strandline.views.definition import ViewDefinition
from strandline.views.join import net

SEGMENT, SIGNATURE, NUMBER = "segment", "signature", "count"
KEY = [SEGMENT, SIGNATURE]
MODIFICATIONS = 16
"""The statements of so many updates by expression are kept; older ones are sent as rows."""
THIS_COMMIT = -1
"""Stands for the number of the commit that writes it, which is known once it is installed."""
OLDER_FORM = "it was kept in the form of an older release"
RangeStatements = Mapping[str, list[dict[str, Any]]]
"""For each audience (a kind of copy, or one restricted copy) the statements to run there, as JSON."""
_RECORDS = pa.schema([pa.field("view", pa.string()), pa.field("record", pa.string())])


@dataclass(frozen=True)
class Segments:
    """What is known of a view's difference table: it has every change of the view after the commit `since`.

    `broken` says why the difference is not known any more; it is empty while it is, and `earlier` says it of the one
    before. `modifications` holds, for segments that one update by expression made, the statements that say the same, by
    kind of copy. Every writer counts `revision` on by one, so that a write of what was read too long ago is found
    out. `leaving` is the commit from which on copies come to stand at states instead, at their next refresh: the view
    is to be deferred once the last of them has left. It is 0 unless that is so.
    """

    view: str
    fingerprint: str
    since: int = THIS_COMMIT
    broken: str = ""
    modifications: Mapping[int, RangeStatements] = field(default_factory=dict)
    revision: int = 0
    leaving: int = 0
    earlier: str = ""

    @property
    def table(self) -> str:
        """The name of the difference table."""
        return DIFFERENCE + self.view

    def is_sound(self, definition: ViewDefinition) -> bool:
        """Whether it is the difference of the view as it is defined now."""
        return not self.broken and self.fingerprint == definition.fingerprint

    def installed(self, commit: int) -> Segments:
        """The same, once the number of the commit that writes it is known."""
        since, leaving = (commit if number == THIS_COMMIT else number for number in (self.since, self.leaving))
        return replace(self, since=since, leaving=leaving)

    def trimmed(self, commit: int) -> Segments:
        """The same without what changed up to a commit, inclusive."""
        later = {number: statements for number, statements in self.modifications.items() if number > commit}
        return replace(self, since=commit, modifications=later, revision=self.revision + 1)

    def left(self, *, leaving: bool) -> Segments:
        """The same once copies are to leave it, or to stay."""
        return replace(self, leaving=THIS_COMMIT if leaving else 0, revision=self.revision + 1)

    def modified(self, commit: int, statements: RangeStatements) -> Segments:
        """The same with the statements that say what a commit changed."""
        newest = sorted([*self.modifications.items(), (commit, statements)], key=lambda one: one[0])[-MODIFICATIONS:]
        return replace(self, modifications=dict(newest), revision=self.revision + 1)

    def row(self) -> dict[str, str]:
        record = {
            "fingerprint": self.fingerprint,
            "since": self.since,
            "broken": self.broken,
            "modifications": {str(number): dict(by_audience) for number, by_audience in self.modifications.items()},
            "revision": self.revision,
            "leaving": self.leaving,
            "earlier": self.earlier,
        }
        return {"view": self.view, "record": json.dumps(record)}

    @staticmethod
    def from_row(row: Mapping[str, str]) -> Segments:
        record = json.loads(row["record"])
        if "since" not in record:
            segments = Segments(row["view"], record["fingerprint"], 0, record["broken"] or OLDER_FORM)
            return replace(segments, revision=record["revision"])
        modifications = {int(number): by_audience for number, by_audience in record["modifications"].items()}
        segments = Segments(row["view"], record["fingerprint"], record["since"], record["broken"], modifications)
        segments = replace(segments, revision=record["revision"], leaving=record["leaving"])
        return replace(segments, earlier=record.get("earlier", ""))


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
    segments = Segments(definition.name, definition.fingerprint)
    known = all_segments(view, cache).get(definition.name)
    if known is not None:
        segments = replace(segments, revision=known.revision + 1, earlier=known.broken or known.earlier)
    if view.find_domain(SEGMENTS) is None:
        transaction.create_own_table(SEGMENTS, records([segments]), key="view")
    else:
        write(transaction, segments)
    if view.find_domain(segments.table) is not None:
        transaction.drop_own_table(segments.table)
    transaction.create_own_table(segments.table, table_schema(definition), key=KEY)
    return segments


def end(transaction: TableTransaction, view: ReadView, name: str) -> None:
    """Give a view's difference table up."""
    transaction.delete(SEGMENTS, where="view = :view", params={"view": name})
    if view.find_domain(DIFFERENCE + name) is not None:
        transaction.drop_own_table(DIFFERENCE + name)


def table_schema(definition: ViewDefinition) -> pa.Schema:
    """The columns of a difference table: ours, and the view's by their places, so that no name clashes."""
    ours = [pa.field(SEGMENT, pa.int64()), pa.field(SIGNATURE, pa.string()), pa.field(NUMBER, pa.int64())]
    fields = plain_schema(definition.schema)
    return pa.schema([*ours, *(pa.field(f"c{place}", field.type) for place, field in enumerate(fields))])


def stored(definition: ViewDefinition, segment: int, rows: pa.Table) -> pa.Table:
    """Rows of the view with `_count` as rows of its difference table."""
    schema = table_schema(definition)
    values = cast_rows(rows.select(definition.schema.names), plain_schema(definition.schema))
    words = row_signatures(values, scheme_of(plain_schema(definition.schema), bits=128))
    signatures = pa.array([f"{high:016x}{low:016x}" for low, high in words.tolist()], pa.string())
    segments = pa.array(np.full(len(rows), segment, dtype=np.int64))
    columns = [segments, signatures, rows.column(COUNT), *values.columns]
    return pa.Table.from_arrays(columns, schema=schema)


def entries(view: ReadView, cache: PageCache, name: str, after: int, upto: int | None = None) -> pa.Table:
    """Rows of a view's difference table: of the commits after one (exclusive) up to another (inclusive)."""
    reader = TableReader(view, DIFFERENCE + name, cache)
    schema = reader.schema.arrow_schema
    bounds = KeyBounds(_beginning(after + 1), None if upto is None else _beginning(upto + 1))
    pages = parallel(lambda entry: reader.rows(entry, schema.names, None, bounds), reader.entries(bounds))
    rows = pa.concat_tables([no_rows(schema), *(pa.Table.from_arrays(page.columns, schema=schema) for page in pages)])
    wanted = pc.greater(rows.column(SEGMENT), after)
    if upto is not None:
        wanted = pc.and_(wanted, pc.less_equal(rows.column(SEGMENT), upto))
    return rows.filter(wanted)


def _beginning(segment: int) -> bytes:
    """What the keys of a segment begin with."""
    return encode_prefixes(pa.table({SEGMENT: [segment]}), KEY)[0]


def difference(
    view: ReadView, cache: PageCache, definition: ViewDefinition, after: int, upto: int | None = None
) -> pa.Table:
    """The net difference from a commit to another, or to this state: rows of the view with `_count`."""
    rows = entries(view, cache, definition.name, after, upto)
    columns = [*(rows.column(f"c{place}") for place in range(len(definition.schema))), rows.column(NUMBER)]
    return net(pa.Table.from_arrays(columns, names=[*definition.schema.names, COUNT]))


def try_entering(definition: ViewDefinition, rows: pa.Table, clock: Callable[[], float]) -> float | None:
    """Seconds for one entry, found by making the entries of these rows without a table to put them in."""
    if not len(rows):
        return None
    started = clock()
    encode_keys(stored(definition, 0, rows), KEY)
    return (clock() - started) / len(rows)
