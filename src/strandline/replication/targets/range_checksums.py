"""Checksums of a copy by range, computed where the copy is: by PostgreSQL, whose rows would have to travel otherwise.

A row's text has each column's own text with its length in front, so different rows have different texts; a row's
signature is the MD5 of it. Ranges are the leading digits of the MD5 of what identifies a row (its key, or the signature
of a counted row), and a range's checksum is the number of its rows and the sum of their signatures. Both sides make the
text in the same way for every type that such a copy holds. Should they ever make it differently (a database whose
encoding is not UTF-8), ranges are taken for different, and more rows are read than need be, never fewer.

Files are read by this very process, so nothing travels, and nothing would be saved: copies in DuckDB, SQLite, folders
and stores have no such checksums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import StorageError
from strandline.relations import Database, own_batch, stored_table
from strandline.replication.targets.sql_layout import Layout
from strandline.values import quoted

DIGITS = 3
"""Hexadecimal digits of a range: 4,096 ranges, so that one wrong row makes few others travel."""
HALF = 15
"""A signature is summed in two halves of so many digits, 60 bits each; PostgreSQL sums them without limit."""
EXACT_EPOCH = 140_000
"""From this version on PostgreSQL's EXTRACT gives exact numbers."""

RangeSums = Mapping[str, tuple[int, int, int]]
"""For each range: rows, and the sums of both halves of their signatures."""


@dataclass(frozen=True)
class RangeChecksums:
    """The ranges of one copy."""

    layout: Layout
    database: Database

    def sums(self) -> RangeSums:
        """As the database computes them."""
        first, second = (f"sum(('x' || substr(h, {start}, {HALF}))::bit(60)::bigint)::text" for start in (1, HALF + 1))
        signature = f"md5({self._text(self.layout.definition.stored.names)})"
        rows = f"SELECT {self._range} AS r, {signature} AS h FROM {self.layout.data}"
        groups = self.database.execute(f"SELECT r, count(*), {first}, {second} FROM ({rows}) x GROUP BY r")
        return {name: (int(count), int(one), int(other)) for name, count, one, other in groups}

    def of(self, stored: pa.Table) -> tuple[list[str], RangeSums]:
        """The range of each of these rows, and what the checksums would be if the copy held just them."""
        definition = self.layout.definition
        held = stored_table(stored.select(definition.stored.names), self.layout.held, "comparing a copy")
        ranges = [hashed[:DIGITS] for hashed in self._md5(held.select(list(definition.identity)))]
        sums: dict[str, tuple[int, int, int]] = {}
        for name, signature in zip(ranges, self._md5(held), strict=True):
            count, first, second = sums.get(name, (0, 0, 0))
            halves = int(signature[:HALF], 16), int(signature[HALF : 2 * HALF], 16)
            sums[name] = (count + 1, first + halves[0], second + halves[1])
        return ranges, sums

    def rows(self, ranges: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The copy's rows of these ranges, in the definition's stored schema."""
        named = ", ".join(f"'{int(one, 16):0{DIGITS}x}'" for one in ranges)
        sql = f"{self.layout.select()} WHERE {self._range} IN ({named})"
        for batch in self.database.batches(sql, self.layout.stored_schema):
            yield own_batch(batch, self.layout.definition.stored, self.layout.held, "comparing a copy")

    @property
    def _range(self) -> str:
        return f"substr(md5({self._text(self.layout.definition.identity)}), 1, {DIGITS})"

    def _md5(self, held: pa.Table) -> list[str]:
        """The MD5 of each row's text."""
        pieces = []
        for name in held.column_names:
            text = _own_text(held.column(name), self.layout.held[name].sql)
            sized = pc.binary_join_element_wise(pc.utf8_length(text).cast(pa.string()), text, ":")
            pieces.append(sized.fill_null("-"))
        texts = pc.binary_join_element_wise(*pieces, "").to_pylist()
        return [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in texts]

    def _text(self, names: Sequence[str]) -> str:
        texts = [_sql_text(quoted(name), self.layout.held[name].sql) for name in names]
        return " || ".join(f"coalesce(length({text}) || ':' || {text}, '-')" for text in texts)


def range_checksums(layout: Layout, database: Database) -> RangeChecksums | None:
    """The ranges of a copy, where its database can be asked for them."""
    if database.dialect != "postgres":
        return None
    try:
        server = database.execute("SELECT current_setting('server_version_num'), md5('')")
    except StorageError:  # a server that refuses MD5
        return None
    return RangeChecksums(layout, database) if int(server[0][0]) >= EXACT_EPOCH else None


def _sql_text(column: str, kind: str) -> str:
    """A value's text in PostgreSQL; different values of the type have different texts."""
    if kind == "boolean":
        return f"({column}::int)::text"
    if kind in ("real", "double precision"):
        sent = f"encode({'float4send' if kind == 'real' else 'float8send'}({column}), 'hex')"
        return f"(CASE WHEN {column} = 0 THEN '0' WHEN {column} = 'NaN' THEN 'nan' ELSE {sent} END)"
    if kind == "bytea":
        return f"encode({column}, 'hex')"
    if kind == "time":
        return f"(extract(epoch FROM {column}) * 1000000)::bigint::text"
    if kind in ("date", "timestamp", "timestamptz"):
        number = f"({column} - DATE '1970-01-01')" if kind == "date" else f"(extract(epoch FROM {column}) * 1000000)"
        return f"(CASE WHEN isfinite({column}) THEN {number}::bigint::text ELSE {column}::text END)"
    return column if kind == "text" else f"{column}::text"


def _own_text(column: pa.ChunkedArray, sql: str) -> pa.ChunkedArray:
    """The same text as `_sql_text` makes of what the column is stored as."""
    kind = column.type
    if sql.startswith("numeric"):  # Arrow may write 1E-8
        texts = [None if text is None else format(Decimal(text), "f") for text in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pt.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.string())
    if pt.is_floating(kind):
        return _float_text(column)
    if pt.is_binary(kind):
        return pa.chunked_array([pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())])
    if pt.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.string())
    if pt.is_time(kind) or pt.is_timestamp(kind):
        return column.cast(pa.int64()).cast(pa.string())
    return column.cast(pa.string())


def _float_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    width = column.type.bit_width // 8
    values = np.asarray(column.fill_null(0.0), dtype=f">f{width}")
    raw = values.tobytes().hex()
    texts = [raw[start : start + 2 * width] for start in range(0, len(raw), 2 * width)]
    shown = np.where(values == 0, "0", np.where(np.isnan(values), "nan", texts or [""]))
    mask = np.asarray(column.is_null(), dtype=np.bool_)
    return pa.chunked_array([pa.array(shown.tolist(), pa.string(), mask=mask)])
