"""The snapshot generator of section 5.2 of Labio and Garcia-Molina.

The first snapshot has ordered keys. The second starts as a copy; each record in turn is swapped with one
that is up to 2 · `average_displacement` records away (uniformly, so the average is `average_displacement`),
before or behind it at random (not at all, should that be beyond the file); then some are updated. Nothing
is inserted or deleted: that would not change the number of useless pairs. The resulting *distance* is
measured, not chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.differential.window.options import displacement, distance

Order = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshots:
    """A pair of snapshots, the number of records updated, and their distance (equation 3)."""

    old: pa.Table
    new: pa.Table
    updated: int
    distance: float


def generate(
    records: int,
    average_displacement: int,
    *,
    updated_share: float = 0.2,
    body_bytes: int = 8,
    seed: int = 1996,
) -> Snapshots:
    """A pair of snapshots with records ⟨K, B⟩: an int64 key and a body of `body_bytes` (at least 8)."""
    random = np.random.default_rng(seed)
    order = displaced_order(records, average_displacement, random)
    changed = np.zeros(records, dtype=bool)
    changed[random.choice(records, round(records * updated_share), replace=False)] = True
    keys = np.arange(records, dtype=np.int64)
    bodies = _bodies(keys, body_bytes)
    old = pa.table({"key": keys, "body": _binary(bodies)})
    bodies = bodies[order]
    bodies[changed, :8] ^= 0xFF
    new = pa.table({"key": order, "body": _binary(bodies)})
    moved = displacement(order, keys)
    return Snapshots(old, new, int(changed.sum()), distance(moved, records, records))


def displaced_order(records: int, average: int, random: np.random.Generator) -> Order:
    """The keys of the second snapshot, in its order."""
    order = np.arange(records, dtype=np.int64)
    steps = random.integers(0, 2 * average + 1, records)
    backward = random.random(records) < 0.5
    _swap(order, np.where(backward, -steps, steps))
    return order


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    return cast(Callable[..., None], numba.njit(function))


@_compiled
def _swap(order: Any, steps: Any) -> None:
    last = order.shape[0] - 1
    for here in range(order.shape[0]):
        there = here + steps[here]
        if 0 <= there <= last:
            order[here], order[there] = order[there], order[here]


def _bodies(keys: Order, width: int) -> npt.NDArray[np.uint8]:
    bodies = np.zeros((len(keys), max(8, width)), dtype=np.uint8)
    bodies[:, :8] = (keys * 0x9E3779B1).view(np.uint8).reshape(-1, 8)
    return bodies


def _binary(bodies: npt.NDArray[np.uint8]) -> pa.Array:
    width = bodies.shape[1]
    return pa.Array.from_buffers(pa.binary(width), len(bodies), [None, pa.py_buffer(bodies.tobytes())])
