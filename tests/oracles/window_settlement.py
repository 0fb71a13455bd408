"""The post-processing of the window algorithm: useless delete-insert pairs become updates or nothing.

Deletes and inserts of one key are the two halves of a record whose images never met in the window. Both
halves are at hand only now; afterwards the changes are net.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.differential.window.options import displacement
from strandline.differential.window.pairs import rows_differ
from strandline.values import DEFAULT_SEED, Numbers, second_seed, signature


@dataclass(frozen=True)
class Settlement:
    """What the leftovers of the window really were.

    `useless_pairs` counts deletes that an insert of the same key undid; of those `updated` had changed, and
    their images stand aligned in `before` and `after`. `deletes` and `inserts` are the real ones.
    """

    before: pa.Table
    after: pa.Table
    deletes: pa.Table
    inserts: pa.Table
    useless_pairs: int
    updated: int
    displacement: int


def settle(deletes: pa.Table, inserts: pa.Table, key: Sequence[str]) -> Settlement:
    """Match leftovers by key, the earliest first where keys repeat. The last column of both holds positions.

    Leftovers may be settled in parts, as long as equal keys come in the same part.
    """
    old, new = deletes.combine_chunks(), inserts.combine_chunks()
    old_at, new_at = _matches(old, new, key)
    names = [name for name in old.schema.names[:-1] if name not in key]
    changed = rows_differ(_columns(old, names), old_at, _columns(new, names), new_at)
    old_places, new_places = _places(old), _places(new)
    return Settlement(
        before=_taken(old, old_at[changed]),
        after=_taken(new, new_at[changed]),
        deletes=_taken(old, np.setdiff1d(np.arange(old.num_rows), old_at)),
        inserts=_taken(new, np.setdiff1d(np.arange(new.num_rows), new_at)),
        useless_pairs=len(old_at),
        updated=int(changed.sum()),
        displacement=displacement(old_places[old_at], new_places[new_at]),
    )


def _matches(old: pa.Table, new: pa.Table, key: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Row numbers of pairs with equal keys, in the order of the old side; repeated until no hash misled."""
    seed = DEFAULT_SEED
    while True:
        old_at, new_at = _hash_matches(old, new, key, seed)
        if not rows_differ(_columns(old, key), old_at, _columns(new, key), new_at).any():
            return old_at, new_at
        seed = second_seed(seed)


def _hash_matches(old: pa.Table, new: pa.Table, key: Sequence[str], seed: int) -> tuple[Numbers, Numbers]:
    old_hashes, new_hashes = (signature(_columns(table, key), seed) for table in (old, new))
    old_order = np.lexsort((_places(old), old_hashes))
    new_order = np.lexsort((_places(new), new_hashes))
    old_sorted, new_sorted = old_hashes[old_order], new_hashes[new_order]
    # The k-th of equal hashes on one side meets the k-th on the other.
    rank = np.arange(len(old_sorted)) - np.searchsorted(old_sorted, old_sorted)
    partner = np.searchsorted(new_sorted, old_sorted) + rank
    there = np.flatnonzero(partner < len(new_sorted))
    there = there[new_sorted[partner[there]] == old_sorted[there]]
    old_at, new_at = old_order[there], new_order[partner[there]]
    back = np.argsort(old_at)
    return old_at[back], new_at[back]


def _columns(table: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    return [_whole(table.column(name)) for name in names]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _places(table: pa.Table) -> Numbers:
    places: Numbers = _whole(table.columns[-1]).to_numpy(zero_copy_only=False)
    return places


def _taken(table: pa.Table, rows: Numbers) -> pa.Table:
    return table.select(table.column_names[:-1]).take(pa.array(rows, pa.int64()))
