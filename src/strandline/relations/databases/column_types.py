"""How targets hold the columns of a relation: exactly, wider, as canonical text, or not at all.

Databases and table formats have one function each from an Arrow type to `Held`, or to None for what they can't hold,
which is refused, naming the column. Together they are the type tables of docs/refresh.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SchemaError, StorageError
from strandline.values import is_plain_bytes, is_plain_text, quoted

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


ColumnHolder = Callable[[pa.DataType], "Held | None"]


def held_columns(schema: pa.Schema, holder: ColumnHolder, kind: str) -> dict[str, Held]:
    """How each column is held; refuses, naming it, a column that this kind can't hold."""
    columns: dict[str, Held] = {}
    for field in schema:
        held = holder(field.type)
        if held is None:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which {kind} can't hold exactly",
                doing="replicating",
                hint="Leave the column out of the copy, or cast it in the source",
            )
        columns[field.name] = held
    return columns


def stored_table(table: pa.Table, held: Mapping[str, Held], doing: str) -> pa.Table:
    """The rows as the target takes them. A text that would not come back as the value is refused."""
    columns = []
    for name in table.column_names:
        column = table.column(name)
        way = held.get(name)
        try:
            columns.append(column if way is None else _into(column, way))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StorageError(
                f"column {name!r} holds a value that does not fit: {error}",
                doing=doing,
                hint="Leave the column out of the copy, or copy to a target that holds it",
            ) from None
    return pa.Table.from_arrays(columns, names=table.column_names)


def _into(column: pa.ChunkedArray, way: Held) -> pa.ChunkedArray:
    stored = way.into(column) if way.into else column.cast(way.stored)
    if way.how == CANONICAL and not _out(stored, way, column.type).equals(column):
        raise pa.ArrowInvalid("its text would be read as another value")
    return stored


def _out(column: pa.ChunkedArray, way: Held, own: pa.DataType) -> pa.ChunkedArray:
    return way.out(column, own) if way.out else column.cast(own)


def own_batch(batch: pa.RecordBatch, schema: pa.Schema, held: Mapping[str, Held], doing: str) -> pa.RecordBatch:
    """Rows from the target, back in their own types."""
    arrays = []
    for name, field in zip(batch.schema.names, schema, strict=True):
        column = pa.chunked_array([batch.column(name)])
        way = held[field.name]
        try:
            own = _out(column, way, field.type)
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


_US = pa.timestamp("us")
_INSTANT = pa.timestamp("us", "UTC")


def in_duckdb(type_: pa.DataType) -> Held | None:
    """Everything natively, nested values included; not decimals over 38 digits, durations, or finer than it has."""
    names = {pa.bool_(): "BOOLEAN", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.date32(): "DATE"}
    if type_ in names:
        return Held(names[type_], type_)
    if pt.is_integer(type_):
        return Held(("U" if pt.is_unsigned_integer(type_) else "") + _INTEGERS[type_.bit_width], type_)
    if pt.is_decimal(type_):
        fits = type_.precision <= 38 and 0 <= type_.scale <= type_.precision
        stored = pa.decimal128(type_.precision, type_.scale) if fits else None
        return Held(f"DECIMAL({type_.precision}, {type_.scale})", stored) if fits else None
    if is_plain_text(type_):
        return Held("VARCHAR", pa.string())
    if is_plain_bytes(type_):
        return Held("BLOB", pa.binary())
    if pt.is_timestamp(type_):
        return _duckdb_timestamp(type_)
    if pt.is_float16(type_):
        return Held("FLOAT", pa.float32(), WIDER)
    if pt.is_date64(type_):
        return Held("DATE", pa.date32())
    if pt.is_time(type_) and type_ != pa.time64("ns"):
        return Held("TIME", pa.time64("us"), WIDER if pt.is_time32(type_) else "exact")
    if pt.is_list(type_) or pt.is_large_list(type_):
        inner = in_duckdb(type_.value_type)
        return None if inner is None else Held(f"{inner.sql}[]", pa.list_(inner.stored))
    if pt.is_struct(type_) and type_.num_fields:
        fields = [(field.name, in_duckdb(field.type)) for field in type_]
        if any(inner is None for _, inner in fields) or len({n.lower() for n, _ in fields}) < len(fields):
            return None
        inside = ", ".join(f"{quoted(name)} {inner.sql}" for name, inner in fields if inner)
        return Held(f"STRUCT({inside})", pa.struct([(name, inner.stored) for name, inner in fields if inner]))
    if pt.is_map(type_):
        key, item = in_duckdb(type_.key_type), in_duckdb(type_.item_type)
        return (
            None
            if key is None or item is None
            else Held(f"MAP({key.sql}, {item.sql})", pa.map_(key.stored, item.stored))
        )
    return None


def _duckdb_timestamp(type_: pa.DataType) -> Held | None:
    if type_.tz is not None:
        return None if type_.unit == "ns" else Held("TIMESTAMPTZ", _INSTANT, "exact" if type_.unit == "us" else WIDER)
    return Held({"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}[type_.unit], type_)


def in_sqlite(type_: pa.DataType) -> Held | None:
    """Whole numbers, floats, text and bytes natively; decimals and times as canonical text; nothing nested."""
    if pt.is_boolean(type_):
        return Held("INTEGER", pa.bool_())
    if pt.is_integer(type_):
        text = Held("TEXT", pa.string(), CANONICAL)
        return text if type_ == pa.uint64() else Held("INTEGER", pa.int64())
    if pt.is_floating(type_):
        return Held("REAL", pa.float64(), "exact" if pt.is_float64(type_) else WIDER)
    if is_plain_text(type_):
        return Held("TEXT", pa.string())
    if is_plain_bytes(type_):
        return Held("BLOB", pa.binary())
    if pt.is_decimal(type_):
        return Held("TEXT", pa.string(), CANONICAL, into=decimal_text) if type_.scale >= 0 else None
    if pt.is_timestamp(type_) and type_.tz is not None:
        return Held("TEXT", pa.string(), CANONICAL, into=instant_text, out=instant_from_text)
    if pt.is_time(type_):
        return Held("TEXT", pa.string(), CANONICAL, out=time_from_text)
    if pt.is_timestamp(type_) or pt.is_date32(type_):
        return Held("TEXT", pa.string(), CANONICAL)
    if pt.is_date64(type_):
        return Held(
            "TEXT",
            pa.string(),
            CANONICAL,
            into=lambda column: column.cast(pa.date32()).cast(pa.string()),
            out=lambda column, own: column.cast(pa.date32()).cast(own),
        )
    if pt.is_duration(type_):
        return Held("INTEGER", pa.int64(), CANONICAL)
    return None


def in_postgres(type_: pa.DataType) -> Held | None:
    """Everything that SQL has, natively; nothing nested, nothing finer than microseconds."""
    names = {
        pa.bool_(): "boolean",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.date32(): "date",
        pa.time64("us"): "time",
        _US: "timestamp",
    }
    wider = {
        pa.int8(): ("smallint", pa.int16()),
        pa.uint8(): ("smallint", pa.int16()),
        pa.uint16(): ("integer", pa.int32()),
        pa.uint32(): ("bigint", pa.int64()),
        pa.float16(): ("real", pa.float32()),
        pa.date64(): ("date", pa.date32()),
        pa.time32("s"): ("time", pa.time64("us")),
        pa.time32("ms"): ("time", pa.time64("us")),
        pa.timestamp("s"): ("timestamp", _US),
        pa.timestamp("ms"): ("timestamp", _US),
    }
    if type_ in names:
        return Held(names[type_], type_)
    if type_ in wider:
        return Held(*wider[type_], WIDER)
    if type_ == pa.uint64():
        return Held("numeric(20, 0)", pa.string(), WIDER, reading="{}::text")
    if pt.is_decimal(type_):
        sql = f"numeric({type_.precision}, {type_.scale})"
        return Held(sql, pa.string(), into=decimal_text, reading="{}::text") if type_.scale >= 0 else None
    if is_plain_text(type_):
        return Held("text", pa.string())
    if is_plain_bytes(type_):
        return Held("bytea", pa.binary())
    if pt.is_timestamp(type_) and type_.tz is not None and type_.unit != "ns":
        return Held("timestamptz", _INSTANT, "exact" if type_.unit == "us" else WIDER)
    return None


def in_delta(type_: pa.DataType) -> Held | None:
    """What Delta has, nested values included; times of day as canonical text."""
    if pt.is_time(type_) and type_ != pa.time64("ns"):
        return Held("string", pa.string(), CANONICAL, out=time_from_text)
    return _in_lake(type_, in_delta, pa.int8())


def in_iceberg(type_: pa.DataType) -> Held | None:
    """What Iceberg has, nested values included."""
    if pt.is_time(type_) and type_ != pa.time64("ns"):
        return Held("time", pa.time64("us"), WIDER if pt.is_time32(type_) else EXACT)
    return _in_lake(type_, in_iceberg, pa.int32())


def _in_lake(type_: pa.DataType, holder: ColumnHolder, least: pa.DataType) -> Held | None:
    """`least` is the smallest integer of the format; `sql` is not used: its columns are declared in Arrow's types."""
    same = (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), _US)
    wider = {
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
        pa.timestamp("s"): _US,
        pa.timestamp("ms"): _US,
    }
    if type_ in same:
        return Held("", type_)
    if type_ in wider:
        return Held("", wider[type_], WIDER)
    if pt.is_integer(type_):  # of 8 or 16 bits
        whole = pa.int16() if type_ == pa.uint8() else type_
        whole = whole if whole.bit_width >= least.bit_width else least
        return Held("", whole, EXACT if whole == type_ else WIDER)
    if pt.is_decimal(type_) and type_.precision <= 38 and 0 <= type_.scale <= type_.precision:
        return Held("", pa.decimal128(type_.precision, type_.scale))
    if is_plain_text(type_) or is_plain_bytes(type_):
        return Held("", pa.string() if is_plain_text(type_) else pa.binary())
    if pt.is_timestamp(type_) and type_.tz is not None and type_.unit != "ns":
        return Held("", _INSTANT, EXACT if type_.unit == "us" else WIDER)
    return _nested_in_lake(type_, holder)


def _nested_in_lake(type_: pa.DataType, holder: ColumnHolder) -> Held | None:
    """Lists, structs and maps of what is held by a cast."""
    inside: list[pa.DataType] = []
    for field in type_ if pt.is_nested(type_) else ():
        held = holder(field.type)
        if held is None or held.how == CANONICAL:
            return None
        inside.append(held.stored)
    if pt.is_list(type_) or pt.is_large_list(type_):
        return Held("", pa.list_(inside[0]))
    if pt.is_struct(type_) and inside and len({field.name.lower() for field in type_}) == len(inside):
        return Held("", pa.struct([(field.name, kind) for field, kind in zip(type_, inside, strict=True)]))
    if pt.is_map(type_):
        key, item = (holder(kind) for kind in (type_.key_type, type_.item_type))
        plain = key is not None and item is not None and CANONICAL not in (key.how, item.how)
        return Held("", pa.map_(key.stored, item.stored)) if plain and key and item else None
    return None


_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
HOLDERS: dict[str, ColumnHolder] = {
    "duckdb": in_duckdb,
    "sqlite": in_sqlite,
    "postgres": in_postgres,
    "delta": in_delta,
    "iceberg": in_iceberg,
}
