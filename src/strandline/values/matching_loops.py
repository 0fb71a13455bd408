"""The loop of matching that is compiled; load it by `load_compiled`, which says where compiled code is kept."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from strandline.values.signatures import is_kept

_NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
_PLACES = types.Array(types.int64, 1, "C")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@numba.njit([types.boolean(_NUMBERS, _NUMBERS, _PLACES)], cache=is_kept(__file__), nogil=True)  # type: ignore[untyped-decorator]
def find(old: Any, new: Any, place: Any) -> Any:
    """For each of the new numbers where it stands among the old ones, or −1; False where an old one is there twice.

    A hash table with open addressing, at most half full: a slot holds a position among the old numbers, or −1.
    """
    bits = 1
    while (1 << bits) < 2 * old.shape[0]:
        bits += 1
    shift = np.uint64(64 - bits)
    last = (1 << bits) - 1
    slots = np.full(1 << bits, -1, dtype=np.int32)
    for k in range(old.shape[0]):
        slot = np.int64((np.uint64(old[k]) * _FACTOR) >> shift)
        while slots[slot] >= 0:
            if old[slots[slot]] == old[k]:
                return False
            slot = (slot + 1) & last
        slots[slot] = k
    for k in range(new.shape[0]):
        slot = np.int64((np.uint64(new[k]) * _FACTOR) >> shift)
        row = -1
        while slots[slot] >= 0:
            if old[slots[slot]] == new[k]:
                row = slots[slot]
                break
            slot = (slot + 1) & last
        place[k] = row
    return True
