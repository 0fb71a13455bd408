"""Putting rows in the places of others, column by column, for reads where nothing else changes.

Most what-ifs replace rows and leave most columns of them as they are: such a column is not copied at all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.whatif.tuples import Numbers


def substituted(base: pa.Table, places: Numbers, rows: pa.Table) -> pa.Table:
    """`base` with the row at each of `places` replaced by the row of `rows` in the same position."""
    columns = [_column(base.column(name), places, rows.column(name)) for name in base.column_names]
    return pa.Table.from_arrays(columns, names=base.column_names)


def _column(base: pa.ChunkedArray, places: Numbers, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if base.take(pa.array(places)).equals(values):
        return base
    plain = pt.is_integer(base.type) or pt.is_floating(base.type)
    if plain and not base.null_count and not values.null_count and not pt.is_float16(base.type):
        held = np.asarray(base).copy()
        held[places] = np.asarray(values)
        return pa.chunked_array([pa.array(held, base.type)])
    order = np.arange(len(base))
    order[places] = np.arange(len(base), len(base) + len(values))
    return pa.chunked_array([*base.chunks, *values.chunks], type=base.type).take(pa.array(order))
