"""Range numbers of keys: rows of any relation cut at the same keys, each range sorted (the runs of section 3.1).

Keys are ordered by their canonical values, nulls last; keys that have no order (nested ones) can't be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.relations.comparable import comparable
from strandline.relations.read import read_scan
from strandline.relations.scan import Scan

SAMPLE_ROWS = 50_000
SAMPLE_SCANS = 8


def can_be_ordered(schema: pa.Schema, key: Sequence[str]) -> bool:
    """Whether keys of these columns have an order."""
    canonical = [comparable(pa.nulls(0, schema.field(name).type)).type for name in key]
    return not any(pt.is_nested(type_) or pt.is_null(type_) for type_ in canonical)


def sample_bounds(scans: Sequence[Scan], key: Sequence[str], pieces: int) -> pa.Table:
    """At most `pieces` − 1 keys, ascending, that cut the rows of some scans into about equal ranges."""
    chosen = [scans[place] for place in np.unique(np.linspace(0, len(scans) - 1, SAMPLE_SCANS).astype(int))]
    batches: list[pa.RecordBatch] = []
    for scan in chosen:
        taken = 0
        for batch in read_scan(scan, key):
            batches.append(batch)
            taken += batch.num_rows
            if taken >= SAMPLE_ROWS:
                break
    sample = pa.Table.from_batches(batches)
    order = sort_order(sample, key)
    if not len(order):
        return sample
    places = np.unique(np.linspace(0, len(order) - 1, pieces + 1).astype(int)[1:-1])
    return sample.take(pa.array(order[places]))


def sort_order(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """The positions of a table's rows in ascending order of their keys; equal keys keep their order."""
    names = [f"k{place}" for place in range(len(key))]
    canonical = pa.table({name: comparable(table.column(column)) for name, column in zip(names, key, strict=True)})
    found = pc.sort_indices(canonical, sort_keys=[(name, "ascending", "at_end") for name in names])
    return np.asarray(found, dtype=np.int64)


def in_ranges(table: pa.Table, key: Sequence[str], bounds: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Positions in key order, and for each of them the number of its range: how many bounds its key reaches."""
    keys = pa.concat_tables([bounds.select(key), table.select(key).cast(bounds.select(key).schema)])
    order = sort_order(keys, key)
    is_bound = order < len(bounds)
    ranges = np.cumsum(is_bound)[~is_bound]
    return order[~is_bound] - len(bounds), ranges.astype(np.uint32)
