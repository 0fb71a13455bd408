"""Rows that users bring, made to fit a table: columns by name, casts that lose nothing, constraints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.errors import InputError, KeysError, SchemaError
from strandline.relations import conform
from strandline.tables.keys import repeats, show_keys, sort_order
from strandline.tables.schema import TableSchema, refuse_broken_column


def in_memory(data: Any) -> bool:
    """Whether the rows are in this process already."""
    kinds = (pa.Table, pa.RecordBatch, Mapping, list, tuple)
    streams = hasattr(data, "__arrow_c_stream__") and not _is_spark(data)
    return isinstance(data, kinds) or _is_pandas(data) or streams


def rows_of(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Whatever has rows as an Arrow table: Arrow, pandas, Polars, dictionaries, a file, a relation, a DataFrame."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, (list, tuple)):
        return _from_dictionaries(data, schema)
    if _is_pandas(data):
        return pa.Table.from_pandas(data, preserve_index=any(name is not None for name in data.index.names))
    if in_memory(data):
        return pa.table(data)
    from strandline.relations import open_relation, read_relation

    return read_relation(open_relation(data))


def repeatable(data: Any) -> Any:
    """The same rows, fit to be read again when a transaction is tried again: a stream is read into memory."""
    kept = isinstance(data, (pa.Table, pa.RecordBatch, Mapping, list, tuple)) or _is_pandas(data)
    return data if kept or not in_memory(data) else pa.table(data)


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _is_spark(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pyspark"


def fitted(data: Any, schema: TableSchema, doing: str) -> pa.Table:
    """The rows in exactly the table's columns; absent columns take their default, or null."""
    table = rows_of(data, schema.arrow_schema)
    given, known = set(table.column_names), set(schema.names)
    unknown = [name for name in table.column_names if name not in known]
    absent = [c for c in schema.columns if c.name not in given and not c.nullable and c.default is None]
    if unknown or absent or len(given) < table.num_columns:
        what = f"there is no column {unknown[0]!r}" if unknown else "columns are missing or there twice"
        raise SchemaError(
            f"{what}\nthe rows:  {_listed(table.schema)}\nthe table: {_listed(schema.arrow_schema)}",
            doing=doing,
            hint="Give the rows the table's columns; those that may be null can be left out",
        )
    for column in schema.columns:
        if column.name not in given and column.default is not None:
            table = table.append_column(column.name, column.filled(len(table)))
    wanted = schema.image_schema
    try:
        batches = [conform(batch, wanted) for batch in table.combine_chunks().to_batches()]
    except SchemaError as error:
        raise SchemaError(
            f"{error.why}\nthe rows:  {_listed(table.schema)}\nthe table: {_listed(schema.arrow_schema)}",
            doing=doing,
            hint=error.hint,
        ) from None
    result = pa.Table.from_batches(batches, schema=wanted)
    check_not_null(result, schema, doing)
    return result


def check_not_null(table: pa.Table, schema: TableSchema, doing: str) -> None:
    """Refuses nulls where the table says that there are none; columns that are not given are not looked at."""
    given = {*table.column_names}
    for column in schema.columns:
        if column.nullable or column.name not in given or not table.column(column.name).null_count:
            continue
        places = np.flatnonzero(np.asarray(table.column(column.name).is_null(), dtype=np.bool_))
        shown = show_keys(table, schema.key or schema.names[:3], places)
        if column.name in schema.key:
            raise KeysError(f"rows have a null in their key: {shown}", doing=doing, hint="Every key needs a value")
        raise SchemaError(
            f"column {column.name!r} must not be null: {shown}", doing=doing, hint="Give these rows a value"
        )


def check_distinct(keys: Sequence[bytes], table: pa.Table, schema: TableSchema, doing: str) -> None:
    """Refuses rows that have one key twice, showing up to ten."""
    if len(set(keys)) == len(keys):
        return
    seen: set[bytes] = set()
    again = []
    for place, key in enumerate(keys):
        if key in seen:
            again.append(place)
        seen.add(key)
    raise KeysError(
        f"keys are there more than once: {show_keys(table, schema.key, again)}",
        doing=doing,
        hint="Keep one row for each key",
    )


def in_order(rows: pa.Table, schema: TableSchema, doing: str) -> pa.Table:
    """Rows by key, each key once."""
    if not schema.key:
        return rows
    order = sort_order(rows, schema.key)
    rows = rows if order is None else rows.take(pa.array(order))
    again = repeats(rows, schema.key)
    if len(again):
        raise KeysError(
            f"keys are there more than once: {show_keys(rows, schema.key, again)}",
            doing=doing,
            hint="Keep one row for each key, or choose a key that is unique",
        )
    return rows


def taken_keys(table: pa.Table, schema: TableSchema, places: Sequence[int], doing: str) -> KeysError:
    """The error that says which keys are in the table already."""
    return KeysError(
        f"keys are in the table already: {show_keys(table, schema.key, list(places))}",
        doing=doing,
        hint="Use upsert to replace rows",
    )


def _from_dictionaries(rows: Sequence[Any], schema: pa.Schema | None) -> pa.Table:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError(
            "rows in a list must be dictionaries", doing="reading rows", hint="For example [{'id': 1, 'name': 'a'}]"
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        refuse_broken_column(name, "reading rows")
    if schema is None:
        return pa.table({name: _of_one_type([row.get(name) for row in rows], name) for name in names})
    known = pa.schema([pa.field(f.name, f.type) for f in schema if f.name in names or not names])
    if unknown := [name for name in names if name not in schema.names]:
        raise SchemaError(
            f"there is no column {unknown[0]!r}\nthe rows:  {', '.join(map(str, names))}\nthe table: {_listed(schema)}",
            doing="reading rows",
        )
    arrays = [exact_array([row.get(f.name) for row in rows], f, "reading rows", _listed(schema)) for f in known]
    return pa.Table.from_arrays(arrays, schema=known)


def _of_one_type(values: Sequence[Any], name: str) -> pa.Array:
    try:
        return pa.array(values)
    except _UNFIT as error:
        raise SchemaError(
            f"the values of column {name!r} are of no one type: {error}",
            doing="reading rows",
            hint="Give values of one type, or an Arrow table",
        ) from None


_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError)
_CUT = (int, float, Decimal, dt.date, dt.time, dt.timedelta, np.number, np.datetime64, np.timedelta64)
"""Python values that Arrow cuts to what a type holds: it drops fractions, and what is finer than a unit of time."""


def exact_array(values: Sequence[Any], field: pa.Field, doing: str, shape: str = "") -> pa.Array:
    """Python values in the type of a column, refused where it does not hold them; floating types may round."""
    try:
        held = pa.array(_as_arrow_takes(values, field.type), field.type)
        for value, kept in zip(values, held.to_pylist(), strict=True):
            if not is_held(value, kept):
                raise pa.ArrowInvalid(f"{value!r} would become {kept!r}")
        return held
    except _UNFIT as error:
        listed = f"\nthe table: {shape}" if shape else ""
        raise SchemaError(
            f"a value does not fit column {field.name!r} of {field.type}: {error}{listed}", doing=doing
        ) from None


def _as_arrow_takes(values: Sequence[Any], type_: pa.DataType) -> Sequence[Any]:
    """The values; of booleans of eight bits, which Arrow makes of numbers alone, those."""
    if not isinstance(type_, pa.Bool8Type):
        return values
    return [int(value) if isinstance(value, (bool, np.bool_)) else value for value in values]


def is_held(value: Any, kept: Any) -> bool:
    """Whether an array that keeps `kept` of a value has not cut it, nor anything inside."""
    if isinstance(value, Mapping):
        pairs = kept.items() if isinstance(kept, Mapping) else kept or ()
        return all(is_held(value.get(name), inner) for name, inner in pairs)
    if isinstance(value, (list, tuple)):
        return all(is_held(*pair) for pair in zip(value, kept, strict=False))
    if isinstance(value, dt.datetime) and isinstance(kept, dt.date):
        return _instant(value) == _instant(kept)
    counted = isinstance(value, int) and isinstance(kept, (dt.date, dt.time, dt.timedelta))
    return counted or isinstance(kept, float) or not isinstance(value, _CUT) or bool(value == kept)


def _instant(value: dt.date) -> dt.datetime:
    """An instant in UTC, so that one of a repeated hour compares; a date is its first instant."""
    if not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
