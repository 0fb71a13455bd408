"""How the rows of a view stand in a table: under their key or, where they have none, under their signature and a number
that tells equal rows apart. Those two are columns of ours, which a read shows only if it names them.

A delta (rows with `_count`, net) becomes rows that are put and rows that go. The rows that it concerns are found by the
pages' bounds, so k changes open about k pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from strandline.changes import CHANGE, DELETE, KEYED, OURS, UPDATE, ChangeSet, Header, finish
from strandline.changes import COUNT as DELTA_COUNT
from strandline.errors import ChangesError, SchemaError
from strandline.tables.keys import decode_first, encode_keys
from strandline.tables.predicates import ALL
from strandline.tables.row_changes import NONE, Delta, ordered_delta
from strandline.tables.scan import TableReader
from strandline.values import cast_rows, plain_schema, row_signatures, scheme_of

SIGNATURE, COUNT, NUMBER = f"{OURS}signature", f"{OURS}count", f"{OURS}number"
"""`NUMBER` tells equal rows apart: 1, 2, …"""


@dataclass(frozen=True)
class RowLayout:
    """The columns of a view, and its key; without one equal rows are numbered."""

    columns: pa.Schema
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", plain_schema(self.columns))
        taken = [name for name in self.columns.names if name.lower().startswith(OURS)]
        if taken:
            raise SchemaError(f"column {taken[0]!r} begins as ours do", doing="storing rows", hint="Rename it")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        ours = [] if self.key else [(SIGNATURE, pa.string()), (NUMBER, pa.int64())]
        return pa.schema([*ours, *self.columns])

    @property
    def table_key(self) -> tuple[str, ...]:
        return self.key or (SIGNATURE, NUMBER)

    def is_of(self, reader: TableReader) -> bool:
        """Whether a table is laid out so."""
        known = reader.schema
        same = [(name, known.column(name).type) for name in known.names] == [
            (one.name, one.type) for one in self.schema
        ]
        return same and known.key == self.table_key

    def whole(self, rows: pa.Table) -> pa.Table:
        """All rows of a view as those of the table."""
        rows = cast_rows(rows, self.columns)
        if self.key:
            return rows
        counted = rows.append_column(COUNT, pa.array(np.ones(len(rows), dtype=np.int64)))
        return added(signed_rows(self.columns, counted), {})

    def changed(self, reader: TableReader, delta: pa.Table, doing: str) -> tuple[pa.Table, pa.Table]:
        """The rows that a delta puts into the table, and those that it takes away, none of them in both."""
        counts = delta.column(DELTA_COUNT)
        rows = cast_rows(delta.select(self.columns.names), self.columns)
        if not self.key:
            net = signed_rows(self.columns, rows.append_column(COUNT, counts))
            held = numbers_held(reader, net)
            gone = removed(net, held, doing)
            missing = [pa.nulls(len(gone), field.type) for field in self.columns]
            return added(net, held), pa.Table.from_arrays([*gone.columns, *missing], schema=self.schema)
        signs = np.asarray(counts, dtype=np.int64)
        put, gone = rows.filter(pa.array(signs > 0)), rows.filter(pa.array(signs < 0))
        coming = set(encode_keys(put, self.key))
        return put, gone.filter(pa.array([name not in coming for name in encode_keys(gone, self.key)], pa.bool_()))


def put_and_gone(put: pa.Table, gone: pa.Table, key: Sequence[str]) -> Delta:
    """Rows to put under their keys, and rows to take away, as the tables' installer takes them."""
    both = pa.concat_tables([put, gone]).combine_chunks()
    live = np.arange(len(both))
    live[len(put) :] = NONE
    return ordered_delta(encode_keys(both, key), live, np.full(len(both), NONE, dtype=np.int64), both)


def keyed_changes(schema: pa.Schema, key: Sequence[str], gone: pa.Table, rows: pa.Table) -> ChangeSet:
    """A keyed change set of a table: `rows` come or replace, `gone` go unless they come again."""
    header = Header(KEYED, schema, schema, tuple(key))
    gone = gone.select(list(key)).cast(pa.schema([schema.field(name) for name in key]))
    coming = set(encode_keys(rows, key))
    kept = [place for place, name in enumerate(encode_keys(gone, key)) if name not in coming]
    leaving = gone.take(pa.array(kept, pa.int64()))
    leaving = leaving.append_column(CHANGE, pa.array([DELETE] * len(leaving), pa.string()))
    coming_rows = rows.append_column(CHANGE, pa.array([UPDATE] * len(rows), pa.string()))
    both = pa.concat_tables([leaving, coming_rows], promote_options="default")
    return finish(header, both.select(header.rows_schema.names).cast(header.rows_schema))


def signed_rows(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Counted rows with the signature that they are stored under: equal rows once, their counts added up."""
    words = row_signatures(rows.select(schema.names), scheme_of(schema, bits=128))
    hexadecimal = [f"{high:016x}{low:016x}" for low, high in words.tolist()]
    table = rows.select(schema.names).add_column(0, SIGNATURE, pa.array(hexadecimal, pa.string()))
    table = table.add_column(1, COUNT, rows.column(COUNT))
    order, first, inverse = np.unique(hexadecimal, return_index=True, return_inverse=True)
    if len(order) == len(hexadecimal):
        return table
    sums = np.zeros(len(order), dtype=np.int64)
    np.add.at(sums, inverse, np.asarray(rows.column(COUNT)))
    once = table.take(pa.array(first))
    return once.set_column(1, COUNT, pa.array(sums, pa.int64()))


def added(delta: pa.Table, held: dict[str, int]) -> pa.Table:
    """The rows that a signed delta adds, each as often as it is added, under the next free numbers."""
    counts = np.asarray(delta.column(COUNT), dtype=np.int64)
    places = np.repeat(np.arange(len(delta)), np.maximum(counts, 0))
    numbers: list[int] = []
    for signature, count in zip(delta.column(SIGNATURE).to_pylist(), counts.tolist(), strict=True):
        here = held.get(signature, 0)
        numbers += range(here + 1, here + count + 1)
    return delta.take(pa.array(places)).set_column(1, NUMBER, pa.array(numbers, pa.int64()))


def removed(delta: pa.Table, held: dict[str, int], doing: str) -> pa.Table:
    """The keys of the rows that a signed delta removes: of equal rows those with the greatest numbers."""
    signatures: list[str] = []
    numbers: list[int] = []
    for signature, count in zip(delta.column(SIGNATURE).to_pylist(), delta.column(COUNT).to_pylist(), strict=True):
        left = held[signature] + count
        if left < 0:
            raise ChangesError(
                "it removes rows that the copy does not hold",
                doing=doing,
                hint="The copy was edited by hand: repair it",
            )
        numbers += range(left + 1, held[signature] + 1)
        signatures += [signature] * (len(numbers) - len(signatures))
    return pa.table({SIGNATURE: pa.array(signatures, pa.string()), NUMBER: pa.array(numbers, pa.int64())})


def numbers_held(reader: TableReader, delta: pa.Table) -> dict[str, int]:
    """How many rows a table holds of each signature that a delta names."""
    wanted = np.array(sorted(delta.column(SIGNATURE).to_pylist()), dtype=object)
    numbers: dict[str, int] = dict.fromkeys(wanted.tolist(), 0)
    for entry in reader.entries(ALL):
        least, greatest = (
            cast(bytes, decode_first(key or b"", reader.schema.key_types)) for key in (entry.least, entry.greatest)
        )
        first = np.searchsorted(wanted, least.decode())
        if first == len(wanted) or wanted[first] > greatest.decode():
            continue
        for signature in reader.rows(entry, [SIGNATURE], None, ALL).column(SIGNATURE).to_pylist():
            if signature in numbers:
                numbers[signature] += 1
    return numbers
