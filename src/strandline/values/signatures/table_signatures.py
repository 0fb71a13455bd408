"""Signatures of whole tables under a scheme."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.errors import StateError
from strandline.values.buffers import Column, Words
from strandline.values.signatures.scheme import Scheme, kind_of, kinds_meet
from strandline.values.signatures.sl3 import EngineName, second_seed, signature


def row_signatures(table: pa.Table | pa.RecordBatch, scheme: Scheme, engine: EngineName = "auto") -> Words:
    """The signature of each row over the scheme's columns, in the scheme's bits.

    Up to 64 bits: one word per row, shape (rows,). Above: two, low word first, shape (rows, 2).
    """
    return _truncate(scheme, [_column(table, scheme, place) for place in range(len(scheme.columns))], engine)


def column_row_signatures(table: pa.Table | pa.RecordBatch, scheme: Scheme) -> dict[str, Words]:
    """For each of the scheme's columns, the signatures of the rows made of that column alone."""
    return {
        name: _truncate(scheme, [_column(table, scheme, place)], "auto") for place, name in enumerate(scheme.columns)
    }


def _column(table: pa.Table | pa.RecordBatch, scheme: Scheme, place: int) -> Column:
    """A column of the scheme, once it is found to be of the scheme's kind."""
    name, kind = scheme.columns[place], scheme.kinds[place]
    column = table.column(name)
    if not kinds_meet(kind, kind_of(column.type)):
        raise StateError(
            f"column {name} holds {kind_of(column.type)}, and the signatures were made for {kind}",
            doing="computing row signatures",
            hint="Make a new scheme for the new schema",
        )
    return column


def _truncate(scheme: Scheme, columns: list[Column], engine: EngineName) -> Words:
    """Signatures of as many bits as the scheme has."""
    low = signature(columns, scheme.seed, engine)
    if scheme.words == 1:
        return low if scheme.bits == 64 else low & np.uint64(2**scheme.bits - 1)
    high = signature(columns, second_seed(scheme.seed), engine)
    return np.stack([low, high & np.uint64(2 ** (scheme.bits - 64) - 1)], axis=1)
