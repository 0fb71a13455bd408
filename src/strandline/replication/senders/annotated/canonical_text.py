"""Another way to read a base than the one that copies are filled by: what a copy is verified against.

Copies take values as their drivers give them. Here the base's own SQL makes a text of each value, by arithmetic or as
hexadecimal digits, and the texts are read without the driver's types. What one way gets wrong, the other does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import StorageError
from strandline.relations import TableColumn
from strandline.replication.senders.annotated.base_table import ADDRESS
from strandline.replication.senders.annotated.fix_up import BaseSite, chosen_columns, rows_schema
from strandline.values import quoted


@dataclass(frozen=True)
class TextForm:
    """One column: the expression of its name that gives a text, and what makes values of the texts."""

    sql: str
    parse: Callable[[pa.Array, pa.DataType], pa.Array] = pa.Array.cast


def text_expressions(site: BaseSite, columns: Sequence[str]) -> list[str]:
    """The expressions that `batches_by_text` reads."""
    return [_of(column, site).sql.format(quoted(column.name)) for column in chosen_columns(site, columns)]


def batches_by_text(site: BaseSite, columns: Sequence[str], sql: str) -> Iterator[pa.RecordBatch]:
    """What `sql` selects, the address and these expressions, in the columns' own types."""
    chosen, wanted = chosen_columns(site, columns), rows_schema(site, columns)
    texts = pa.schema([(ADDRESS, pa.int64()), *((column.name, pa.string()) for column in chosen)])
    for batch in site.table.database.batches(sql, texts):
        arrays = [_parsed(batch.column(place), column, site) for place, column in enumerate(chosen, 1)]
        yield pa.RecordBatch.from_arrays([batch.column(0), *arrays], schema=wanted)


def _of(column: TableColumn, site: BaseSite) -> TextForm:
    return _in_postgres(column) if site.table.database.dialect == "postgres" else _in_sqlite(column)


def _parsed(texts: pa.Array, column: TableColumn, site: BaseSite) -> pa.Array:
    try:
        return _of(column, site).parse(texts, column.type)
    except (pa.ArrowInvalid, ValueError) as error:
        raise StorageError(
            f"column {column.name!r} holds a value that is no {column.type}: {error}",
            doing=f"reading {site.table.address.shown}",
            hint="Give the row another value, or leave the column out",
        ) from None


def _in_postgres(column: TableColumn) -> TextForm:
    kind = column.type
    if pt.is_boolean(kind):
        return TextForm("CAST({} AS int)::text", _bools)
    if pt.is_floating(kind):
        return TextForm(f"encode(float{kind.bit_width // 8}send({{}}), 'hex')", _float_bits)
    if pt.is_decimal(kind):
        return TextForm(f"trunc({{}} * 1{'0' * kind.scale})::text", _unscaled)
    if pt.is_date(kind):
        return TextForm("({} - DATE '1970-01-01')::text", _days)
    if pt.is_temporal(kind):
        return TextForm("CAST(extract(epoch FROM {}) * 1000000 AS bigint)::text", _microseconds)
    if pt.is_binary(kind):
        return TextForm("encode({}, 'hex')", _digits)
    return TextForm("{}::text")


def _in_sqlite(column: TableColumn) -> TextForm:
    kind = column.type
    if column.reading != "{}":
        return TextForm(column.reading)
    if pt.is_boolean(kind):
        return TextForm(_by_type(integer="CAST({0} AS TEXT)"), _bools)
    if pt.is_integer(kind):
        return TextForm(_by_type(integer="CAST({0} AS TEXT)"))
    if pt.is_floating(kind):
        return TextForm(_by_type(integer="CAST({0} AS TEXT)", real="printf('%!.17g', {0})", text="{0}"))
    if pt.is_binary(kind):
        return TextForm(_by_type(blob="hex({0})"), _digits)
    return TextForm(_by_type(text="hex({0})"), _digits)


def _by_type(**cases: str) -> str:
    """A text for values of these types of SQLite's; others give the type's name, which is no value."""
    whens = " ".join(f"WHEN '{kind}' THEN {sql}" for kind, sql in cases.items())
    return f"CASE typeof({{0}}) {whens} WHEN 'null' THEN NULL ELSE typeof({{0}}) END"


def _bools(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    strange = set(texts.to_pylist()) - {"0", "1", None}
    if strange:
        raise ValueError(f"{strange.pop()!r}")
    return texts.cast(pa.int64()).cast(kind)


def _days(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(pa.int32()).cast(kind)


def _microseconds(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(pa.int64()).cast(kind)


def _unscaled(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The number without its point has the same bits."""
    whole = texts.cast(pa.decimal128(38, 0))
    return pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count, whole.offset)


def _float_bits(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    none = "0" * (kind.bit_width // 4)
    digits = "".join(text or none for text in texts.to_pylist())
    values = np.frombuffer(bytes.fromhex(digits), dtype=f">f{kind.bit_width // 8}")
    return pa.array(values.astype(values.dtype.newbyteorder("=")), kind, mask=np.asarray(texts.is_null()))


def _digits(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bytes, or a text's bytes, by their hexadecimal digits."""
    values = [None if text is None else bytes.fromhex(text) for text in texts.to_pylist()]
    return pa.array(values, pa.binary()).cast(kind)
