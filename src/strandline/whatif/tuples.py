"""The differential relation D of a what-if W (section 3.1, figure 4): what its tuples are made of.

D has the columns of the table at the bottom and the paper's five fields. `level` and `tupnum` are the TNAME of the
tuple that a tuple of D replaces, deletes or is; at level 0 `tupnum` is the row number. A tuple is valid at a scan time
from `mindate` (inclusive) to `maxdate` (exclusive); dates are commit numbers. Three hidden columns come beside them:
the placement key, by which D is clustered like its base (section 4.4); the signature of the row below that a REPLACE or
DELETE affects, by which a merge finds out whether that row has changed since, without keeping it; and which columns of
a REPLACE may differ from the row of the base that it stands for, so that a read can leave the others alone.

An update dates millions of tuples alike, so columns that hold one value all over share the memory of one short array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine import parallel
from strandline.tables import Column
from strandline.values import Flags, Numbers, row_signatures, scheme_of

CHUNK_ROWS = 65_536


def constant(value: Any, kind: pa.DataType, count: int) -> pa.ChunkedArray:
    """A value `count` times; null for None."""
    rows = min(count, CHUNK_ROWS)
    full = pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
    chunks = [full] * (count // CHUNK_ROWS) if count > CHUNK_ROWS else [full]
    rest = count - sum(len(chunk) for chunk in chunks)
    return pa.chunked_array([*chunks, full.slice(0, rest)] if rest else chunks, kind)


def constant_value(column: pa.ChunkedArray) -> int | None:
    """What a column of integers that `constant` made holds all over; None for other columns."""
    if column.num_chunks < 2 or column.null_count or not len(column.chunk(0)):
        return None
    first, *others = column.chunks
    memory = first.buffers()[1].address
    for other in others:
        if other.buffers()[1].address != memory or other.offset != first.offset or len(other) > len(first):
            return None
    ends = pc.min_max(first).as_py()
    return int(ends["min"]) if ends["min"] == ends["max"] else None


_MARK = "\x1f"
PLACE, LEVEL, TUPNUM, MINDATE, MAXDATE, TYPE, SIGNATURE, CHANGED = (
    _MARK + name for name in ("_place", "level", "tupnum", "mindate", "maxdate", "type", "_signature", "_columns")
)
"""D's own columns in memory, beside data columns that may have any name."""

INFINITY = int(np.iinfo(np.int64).max)
"""The `maxdate` of a tuple that is still valid."""

UNDATED = -1
"""Stands for the number of the commit that is going to install a tuple."""

SIGNATURE_BYTES = 16

ANY = -1
"""In `CHANGED`: any column may differ. Otherwise a bit is set for each column that may, by the column's id."""
_BITS = 63


def bits_of(columns: Iterable[Column]) -> int:
    """These columns as `CHANGED` has them."""
    ids = [column.id for column in columns]
    return sum(1 << number for number in ids) if all(number < _BITS for number in ids) else ANY


class Type(IntEnum):
    """What form of update a tuple of D represents; FORWARD is section 4.4's."""

    APPEND = 0
    REPLACE = 1
    DELETE = 2
    FORWARD = 3


OWN_FIELDS = (
    pa.field(PLACE, pa.int64()),
    pa.field(LEVEL, pa.int16()),
    pa.field(TUPNUM, pa.int64()),
    pa.field(MINDATE, pa.int64()),
    pa.field(MAXDATE, pa.int64()),
    pa.field(TYPE, pa.int8()),
    pa.field(SIGNATURE, pa.binary(SIGNATURE_BYTES)),
    pa.field(CHANGED, pa.int64()),
)
OWN = tuple(field.name for field in OWN_FIELDS)
STORED = {name: name.removeprefix(_MARK) for name in OWN}
"""What D's own columns are called in the store."""

KEY = tuple(STORED[name] for name in (PLACE, LEVEL, TUPNUM, MINDATE))
"""D is a keyed table of the store. A TNAME has at most one tuple of one date in one place."""


def stored_name(name: str, taken: Sequence[str] = ()) -> str:
    """The name of a base column in D: its own, unless D has a column of that name already."""
    while name in STORED.values() or name in taken:
        name += "_"
    return name


def differential_schema(data: pa.Schema, place: pa.DataType) -> pa.Schema:
    """The schema of D; `data` holds the base's columns under their stored names. Any of them may be null."""
    kinds = {STORED[f.name]: place if f.name == PLACE else f.type for f in OWN_FIELDS}
    kinds |= {field.name: field.type for field in data}
    return pa.schema([pa.field(name, kind) for name, kind in kinds.items()])


def numbers(table: pa.Table, name: str) -> Numbers:
    """A column of integers as numpy has it, to be read; one chunk of 64 bits is not copied, nor is a constant."""
    column = table.column(name)
    same = constant_value(column)
    if same is not None:
        return np.broadcast_to(np.int64(same), len(column))
    return np.asarray(column.chunk(0) if column.num_chunks == 1 else column, dtype=np.int64)


def valid(table: pa.Table, scan: int) -> Flags:
    """Which tuples of D are *newest* at a scan time: the fast test of section 4.2."""
    is_valid: Flags = (numbers(table, MINDATE) <= scan) & (scan < numbers(table, MAXDATE))
    return is_valid


def own_columns(
    places: pa.Array,
    tnames: tuple[int | Numbers, Numbers],
    kind: Type,
    signatures: pa.Array | None = None,
    changed: int | Numbers = ANY,
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """The fields of new tuples of one type (section 3.2.2); they get their `mindate` when they are installed."""
    count = len(places)
    level, tupnum = tnames
    return {
        PLACE: places,
        LEVEL: constant(level, pa.int16(), count) if isinstance(level, int) else pa.array(level.astype(np.int16)),
        TUPNUM: pa.array(tupnum),
        MINDATE: constant(UNDATED, pa.int64(), count),
        MAXDATE: constant(INFINITY, pa.int64(), count),
        TYPE: constant(int(kind), pa.int8(), count),
        SIGNATURE: constant(None, pa.binary(SIGNATURE_BYTES), count) if signatures is None else signatures,
        CHANGED: constant(changed, pa.int64(), count) if isinstance(changed, int) else pa.array(changed),
    }


BITS = 128
PIECE_ROWS = 131_072
"""So many rows are signed by one thread at a time."""


def signatures(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """The signature of each row over these columns; what they are called makes no difference."""
    if not len(rows):
        return pa.array([], pa.binary(SIGNATURE_BYTES))
    scheme = scheme_of(rows.schema, names, bits=BITS)
    held = np.empty((len(rows), BITS // 64), dtype="<u8")

    def sign(start: int) -> None:
        held[start : start + PIECE_ROWS] = row_signatures(rows.slice(start, PIECE_ROWS), scheme)

    parallel(sign, range(0, len(rows), PIECE_ROWS))
    return pa.Array.from_buffers(pa.binary(SIGNATURE_BYTES), len(rows), [None, pa.py_buffer(held)])
