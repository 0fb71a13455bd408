"""The rows of a copy in a store: the columns of its table, its key, and a message's rows as changes of that table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.changes.shape import CHANGE, COUNTED, DELETE, KEYED, UPDATE, ChangeSet, Header
from strandline.errors import ChangesError
from strandline.replicas.definition import COUNT, PREFIX, SIGNATURE, Definition
from strandline.tables.keys import encode_keys

NUMBER = f"{PREFIX}number"
"""Tells equal rows of a counted copy apart: 1, 2, …"""


def stored_schema(definition: Definition) -> pa.Schema:
    """The columns of the table."""
    ours = [(SIGNATURE, pa.string()), (NUMBER, pa.int64())] if definition.form == COUNTED else list(definition.ours)
    return pa.schema([*ours, *definition.schema])


def key_of(definition: Definition) -> tuple[str, ...]:
    return (SIGNATURE, NUMBER) if definition.form == COUNTED else definition.identity


def keyed_changes(definition: Definition, gone: pa.Table, rows: pa.Table) -> ChangeSet:
    """A keyed change set of the table: `rows` come or replace, `gone` go unless they come again."""
    schema, key = stored_schema(definition), key_of(definition)
    header = Header(KEYED, schema, schema, key)
    gone = gone.select(list(key)).cast(pa.schema([schema.field(name) for name in key]))
    coming = set(encode_keys(rows, key))
    kept = [place for place, name in enumerate(encode_keys(gone, key)) if name not in coming]
    leaving = gone.take(pa.array(kept, pa.int64()))
    leaving = leaving.append_column(CHANGE, pa.array([DELETE] * len(leaving), pa.string()))
    coming_rows = rows.append_column(CHANGE, pa.array([UPDATE] * len(rows), pa.string()))
    both = pa.concat_tables([leaving, coming_rows], promote_options="default")
    return ChangeSet(header, both.select(header.rows_schema.names).cast(header.rows_schema))


def added(delta: pa.Table, held: dict[str, int]) -> pa.Table:
    """The rows that a delta adds, each as often as it is added, under the next free numbers."""
    counts = np.asarray(delta.column(COUNT), dtype=np.int64)
    places = np.repeat(np.arange(len(delta)), np.maximum(counts, 0))
    numbers: list[int] = []
    for signature, count in zip(delta.column(SIGNATURE).to_pylist(), counts.tolist(), strict=True):
        here = held.get(signature, 0)
        numbers += range(here + 1, here + count + 1)
    return delta.take(pa.array(places)).set_column(1, NUMBER, pa.array(numbers, pa.int64()))


def removed(delta: pa.Table, held: dict[str, int], doing: str) -> pa.Table:
    """The keys of the rows that a delta removes: of equal rows those with the greatest numbers."""
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
