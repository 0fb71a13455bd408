"""Bucket numbers of keys: a hash by value, the same for equal keys on both sides of a comparison.

Equality is that of `comparable`; both sides must have been read with the same key types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.relations.comparable import comparable
from strandline.relations.signature import DEFAULT_SEED, signature


def buckets_of(table: pa.Table, key: Sequence[str], buckets: int) -> npt.NDArray[Any]:
    """For each row the number of its bucket, from 0 to `buckets` − 1, as the smallest unsigned integers that do."""
    kind = np.uint8 if buckets <= 1 << 8 else np.uint16 if buckets <= 1 << 16 else np.uint32
    if buckets == 1 or table.num_rows == 0:
        return np.zeros(table.num_rows, kind)
    hashes = signature([comparable(table.column(name)) for name in key], DEFAULT_SEED)
    # The high bits: joins that hash the same keys again use the low ones.
    return ((hashes >> np.uint64(32)) % np.uint64(buckets)).astype(kind)
