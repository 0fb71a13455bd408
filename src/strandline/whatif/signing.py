"""Signatures of the rows that a what-if affects: whether a row below has changed since, without keeping it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.relations.signature import row_signatures, scheme_of
from strandline.tables import Record
from strandline.whatif.tuples import SIGNATURE_BYTES

BITS = 128


def signatures(rows: pa.Table, record: Record, columns: Sequence[int]) -> pa.Array:
    """The signature of each row over the columns with these ids; names and widened types make no difference."""
    names = [column.name for number in columns for column in record.columns if column.id == number]
    if not len(rows):
        return pa.array([], pa.binary(SIGNATURE_BYTES))
    words = row_signatures(rows, scheme_of(rows.schema, names, bits=BITS))
    data = pa.py_buffer(np.ascontiguousarray(words.astype("<u8")).tobytes())
    return pa.Array.from_buffers(pa.binary(SIGNATURE_BYTES), len(rows), [None, data])
