"""How a kind of copy holds the columns of a definition: exactly, wider, as canonical text, or not at all.

Each kind has one function from an Arrow type to `Held`, or to None for what it can't hold; together they are the type
tables of docs/refresh.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SchemaError, StorageError

EXACT, WIDER, CANONICAL = "exact", "wider", "canonical"


@dataclass(frozen=True)
class Held:
    """One column in a target: its SQL type there, and the Arrow type in which values go in and come out.

    `into` and `out` convert between that type and the column's own; by default they cast. `reading` wraps the
    column's name when it is read.
    """

    sql: str
    stored: pa.DataType
    how: str = EXACT
    into: Callable[[pa.ChunkedArray], pa.ChunkedArray] | None = None
    out: Callable[[pa.ChunkedArray, pa.DataType], pa.ChunkedArray] | None = None
    reading: str = "{}"


Holder = Callable[[pa.DataType], "Held | None"]


def held_columns(schema: pa.Schema, holder: Holder, kind: str) -> dict[str, Held]:
    """How each column is held; refuses, naming it, a column that this kind can't hold."""
    found: dict[str, Held] = {}
    for field in schema:
        held = holder(field.type)
        if held is None:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which {kind} can't hold exactly",
                doing="replicating",
                hint="Leave the column out of the copy, or cast it in the source",
            )
        found[field.name] = held
    return found


def stored_table(table: pa.Table, held: Mapping[str, Held], doing: str) -> pa.Table:
    """The rows as the target takes them."""
    columns = []
    for name in table.column_names:
        column = table.column(name)
        way = held.get(name)
        try:
            columns.append(column if way is None else way.into(column) if way.into else column.cast(way.stored))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StorageError(f"column {name!r} holds a value that does not fit: {error}", doing=doing) from None
    return pa.Table.from_arrays(columns, names=table.column_names)


def own_batch(batch: pa.RecordBatch, schema: pa.Schema, held: Mapping[str, Held], doing: str) -> pa.RecordBatch:
    """Rows from the target, back in their own types."""
    arrays = []
    for name, field in zip(batch.schema.names, schema, strict=True):
        column = pa.chunked_array([batch.column(name)])
        way = held[field.name]
        try:
            own = way.out(column, field.type) if way.out else column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise StorageError(
                f"column {field.name!r} holds a value that is no {field.type}: {error}",
                doing=doing,
                hint="The copy was edited by hand: repair it",
            ) from None
        arrays.append(own.combine_chunks() if own.num_chunks != 1 else own.chunk(0))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decimal_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def instant_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """An instant in UTC with all digits of its unit, as `2024-01-31 10:00:00.000000Z`."""
    utc = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.timestamp(column.type.unit))
    return pc.binary_join_element_wise(utc.cast(pa.string()), "Z", "")


def instant_from_text(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    bare = pc.utf8_rtrim(column, "Z").cast(pa.timestamp(type_.unit))
    return bare.cast(pa.int64()).cast(pa.timestamp(type_.unit, "UTC")).cast(type_)


def time_from_text(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Arrow reads no time of day from text, but it reads one on a day."""
    return pc.binary_join_element_wise("1970-01-01", column, " ").cast(pa.timestamp(type_.unit)).cast(type_)


def is_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    return bool(pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_))
