"""Signatures of the rows that a what-if affects: whether a row below has changed since, without keeping it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.relations.signature import row_signatures, scheme_of
from strandline.tables import Record
from strandline.tables.parallel import parallel
from strandline.whatif.tuples import SIGNATURE_BYTES

BITS = 128
PIECE_ROWS = 131_072
"""So many rows are signed by one thread at a time."""


def signatures(rows: pa.Table, record: Record, columns: Sequence[int]) -> pa.Array:
    """The signature of each row over the columns with these ids; names and widened types make no difference."""
    names = [column.name for number in columns for column in record.columns if column.id == number]
    if not len(rows):
        return pa.array([], pa.binary(SIGNATURE_BYTES))
    scheme = scheme_of(rows.schema, names, bits=BITS)
    held = np.empty((len(rows), BITS // 64), dtype="<u8")

    def sign(start: int) -> None:
        held[start : start + PIECE_ROWS] = row_signatures(rows.slice(start, PIECE_ROWS), scheme)

    parallel(sign, range(0, len(rows), PIECE_ROWS))
    return pa.Array.from_buffers(pa.binary(SIGNATURE_BYTES), len(rows), [None, pa.py_buffer(held)])
