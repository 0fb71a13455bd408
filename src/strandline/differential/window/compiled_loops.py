"""The loops of the window algorithm, compiled. Use them through `compiled`.

An aging buffer is a pool of nodes, one row of an int64 array each, a table of buckets that head chains of
nodes with equal low bits of the hash, and a few counters. Nodes also hang in the aging queue from the
oldest to the youngest. Free nodes hang in a chain of their own. New nodes enter a chain at its front, so
the last of equal hashes in a chain is the oldest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types

from strandline.differential.window.options import DELETE, INSERT, UPDATE
from strandline.values import is_kept

F = TypeVar("F", bound=Callable[..., Any])

HASH, ROW, SIZE, OLDER, YOUNGER, CHAIN = range(6)
NODE_FIELDS = 6
OLDEST, YOUNGEST, FREE, COUNT, BYTES = range(5)
COUNTERS = 5
OLD, NEW = 1, 2
"""The lines of an event that hold the rows of the two sides."""

_I8 = types.int64
_LINE = types.Array(_I8, 1, "C")
_READ = types.Array(_I8, 1, "C", readonly=True)
_PLANE = types.Array(_I8, 2, "C")
_FLAGS = types.Array(types.boolean, 1, "C")
_FLAGS_READ = types.Array(types.boolean, 1, "C", readonly=True)
_SPAN = types.UniTuple(_I8, 3)
"""An input buffer: its first row, the row that it ends before, and where row 0 stands in the snapshot."""
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)


def _compiled(*signatures: Any) -> Callable[[F], F]:
    return cast(Callable[[F], F], numba.njit(list(signatures), cache=is_kept(__file__), nogil=True))


@_compiled(_I8(_PLANE, _LINE, _I8))
def find_oldest(nodes: Any, buckets: Any, hashed: Any) -> Any:
    oldest = -1
    node = buckets[hashed & (buckets.shape[0] - 1)]
    while node >= 0:
        if nodes[node, HASH] == hashed:
            oldest = node
        node = nodes[node, CHAIN]
    return oldest


@_compiled(types.void(_PLANE, _LINE, _LINE, _I8))
def remove(nodes: Any, buckets: Any, counters: Any, node: Any) -> None:
    bucket = nodes[node, HASH] & (buckets.shape[0] - 1)
    if buckets[bucket] == node:
        buckets[bucket] = nodes[node, CHAIN]
    else:
        before = buckets[bucket]
        while nodes[before, CHAIN] != node:
            before = nodes[before, CHAIN]
        nodes[before, CHAIN] = nodes[node, CHAIN]
    older, younger = nodes[node, OLDER], nodes[node, YOUNGER]
    if older >= 0:
        nodes[older, YOUNGER] = younger
    else:
        counters[OLDEST] = younger
    if younger >= 0:
        nodes[younger, OLDER] = older
    else:
        counters[YOUNGEST] = older
    counters[COUNT] -= 1
    counters[BYTES] -= nodes[node, SIZE]
    nodes[node, CHAIN] = counters[FREE]
    counters[FREE] = node


@_compiled(types.void(_PLANE, _LINE, _LINE, _I8, _I8, _I8))
def append(nodes: Any, buckets: Any, counters: Any, hashed: Any, row: Any, size: Any) -> None:
    """Add the youngest record. The caller has made sure that a node is free."""
    node = counters[FREE]
    counters[FREE] = nodes[node, CHAIN]
    bucket = hashed & (buckets.shape[0] - 1)
    nodes[node, HASH] = hashed
    nodes[node, ROW] = row
    nodes[node, SIZE] = size
    nodes[node, OLDER] = counters[YOUNGEST]
    nodes[node, YOUNGER] = -1
    nodes[node, CHAIN] = buckets[bucket]
    buckets[bucket] = node
    if counters[YOUNGEST] >= 0:
        nodes[counters[YOUNGEST], YOUNGER] = node
    else:
        counters[OLDEST] = node
    counters[YOUNGEST] = node
    counters[COUNT] += 1
    counters[BYTES] += size


@_compiled(types.void(_PLANE, _LINE, _LINE, _READ, _READ, _READ))
def fill(nodes: Any, buckets: Any, counters: Any, hashes: Any, rows: Any, sizes: Any) -> None:
    """Empty the buffer and put these records into it, the oldest first."""
    buckets[:] = -1
    counters[:] = 0
    counters[OLDEST] = -1
    counters[YOUNGEST] = -1
    for node in range(nodes.shape[0]):
        nodes[node, CHAIN] = node + 1
    for i in range(hashes.shape[0]):
        append(nodes, buckets, counters, hashes[i], rows[i], sizes[i])


@_compiled(_I8(_PLANE, _LINE, _PLANE))
def list_by_age(nodes: Any, counters: Any, out: Any) -> Any:
    """Copy hash, row and size of every record, the oldest first."""
    node = counters[OLDEST]
    count = 0
    while node >= 0:
        out[count, 0] = nodes[node, HASH]
        out[count, 1] = nodes[node, ROW]
        out[count, 2] = nodes[node, SIZE]
        count += 1
        node = nodes[node, YOUNGER]
    return count


@_compiled(_I8(_PLANE, _LINE, _I8, _LINE))
def entered_since(nodes: Any, counters: Any, start: Any, out: Any) -> Any:
    """Copy the rows from `start` on that are still in the buffer, the youngest first."""
    node = counters[YOUNGEST]
    count = 0
    while node >= 0 and nodes[node, ROW] >= start:
        out[count] = nodes[node, ROW]
        count += 1
        node = nodes[node, OLDER]
    return count


@_compiled(types.void(_PLANE, _I8, _I8, _I8, _I8, _I8))
def note(events: Any, noted: Any, kind: Any, own: Any, row: Any, other: Any) -> None:
    """An event: its kind, the row of the side `own`, and the row of the other side, −1 where there is none."""
    events[0, noted] = kind
    events[own, noted] = row
    events[OLD + NEW - own, noted] = other


@_compiled(_I8(_READ, _SPAN, _FLAGS, _READ, _SPAN, _FLAGS, _LINE, _LINE, _PLANE, _I8))
def meet(
    hashes_1: Any,
    span_1: Any,
    matched_1: Any,
    hashes_2: Any,
    span_2: Any,
    matched_2: Any,
    first: Any,
    following: Any,
    events: Any,
    noted: Any,
) -> Any:
    """Two input buffers against each other; chains (`first`, `following`) hold the earliest row first."""
    begin_2 = span_2[0]
    slots = first.shape[0]
    first[:] = -1
    for j in range(span_2[1] - 1, begin_2 - 1, -1):
        slot = hashes_2[j] & (slots - 1)
        following[j - begin_2] = first[slot]
        first[slot] = j
    for i in range(span_1[0], span_1[1]):
        slot = hashes_1[i] & (slots - 1)
        before = -1
        j = first[slot]
        while j >= 0 and hashes_2[j] != hashes_1[i]:
            before = j
            j = following[j - begin_2]
        if j >= 0:
            if before < 0:
                first[slot] = following[j - begin_2]
            else:
                following[before - begin_2] = following[j - begin_2]
            matched_1[i] = True
            matched_2[j] = True
            note(events, noted, UPDATE, OLD, span_1[2] + i, span_2[2] + j)
            noted += 1
    return noted


@_compiled(_I8(_READ, _SPAN, _FLAGS, _PLANE, _LINE, _LINE, _PLANE, _I8, _I8))
def probe(
    hashes: Any,
    span: Any,
    matched: Any,
    nodes: Any,
    buckets: Any,
    counters: Any,
    events: Any,
    noted: Any,
    own: Any,
) -> Any:
    """What remains of an input buffer against the aging buffer of the other side."""
    for i in range(span[0], span[1]):
        if not matched[i]:
            node = find_oldest(nodes, buckets, hashes[i])
            if node >= 0:
                matched[i] = True
                note(events, noted, UPDATE, own, span[2] + i, nodes[node, ROW])
                noted += 1
                remove(nodes, buckets, counters, node)
    return noted


@_compiled(_I8(_READ, _READ, _SPAN, _FLAGS, _PLANE, _LINE, _LINE, _I8, _PLANE, _I8, _I8))
def age(
    hashes: Any,
    sizes: Any,
    span: Any,
    matched: Any,
    nodes: Any,
    buckets: Any,
    counters: Any,
    limit: Any,
    events: Any,
    noted: Any,
    own: Any,
) -> Any:
    """What remains of an input buffer ages; the oldest records make room for it, as deletes or inserts."""
    for i in range(span[0], span[1]):
        if not matched[i]:
            while counters[COUNT] > 0 and counters[BYTES] + sizes[i] > limit:
                node = counters[OLDEST]
                note(events, noted, DELETE if own == OLD else INSERT, own, nodes[node, ROW], -1)
                noted += 1
                remove(nodes, buckets, counters, node)
            append(nodes, buckets, counters, hashes[i], span[2] + i, sizes[i])
    return noted


@_compiled(
    _I8(
        _READ,
        _READ,
        _READ,
        _I8,
        _PLANE,
        _LINE,
        _LINE,
        _READ,
        _READ,
        _READ,
        _I8,
        _PLANE,
        _LINE,
        _LINE,
        _I8,
        _PLANE,
    )
)
def turn(
    hashes_1: Any,
    sizes_1: Any,
    ends_1: Any,
    start_1: Any,
    nodes_1: Any,
    buckets_1: Any,
    counters_1: Any,
    hashes_2: Any,
    sizes_2: Any,
    ends_2: Any,
    start_2: Any,
    nodes_2: Any,
    buckets_2: Any,
    counters_2: Any,
    limit: Any,
    events: Any,
) -> Any:
    """Steps 3 to 10 for several input buffers, on hashes alone; returns how many events were noted.

    The k-th input buffer of a side ends before row ends[k]; rows count on from `start` in the snapshot. An
    event is (UPDATE, old row, new row), (DELETE, row, −1) or (INSERT, −1, row).
    """
    widest = 1
    previous = 0
    for k in range(ends_2.shape[0]):
        widest = max(widest, ends_2[k] - previous)
        previous = ends_2[k]
    slots = 2
    while slots < 2 * widest:
        slots *= 2
    first = np.full(slots, -1, dtype=np.int64)
    following = np.empty(widest, dtype=np.int64)
    matched_1 = np.zeros(hashes_1.shape[0], dtype=np.bool_)
    matched_2 = np.zeros(hashes_2.shape[0], dtype=np.bool_)
    noted = 0
    begin_1 = 0
    begin_2 = 0
    for k in range(ends_1.shape[0]):
        span_1 = (begin_1, ends_1[k], start_1)
        span_2 = (begin_2, ends_2[k], start_2)
        # (4)
        noted = meet(hashes_1, span_1, matched_1, hashes_2, span_2, matched_2, first, following, events, noted)
        # (5) and (6)
        noted = probe(hashes_1, span_1, matched_1, nodes_2, buckets_2, counters_2, events, noted, OLD)
        noted = probe(hashes_2, span_2, matched_2, nodes_1, buckets_1, counters_1, events, noted, NEW)
        # (7) and (8)
        noted = age(hashes_1, sizes_1, span_1, matched_1, nodes_1, buckets_1, counters_1, limit, events, noted, OLD)
        noted = age(hashes_2, sizes_2, span_2, matched_2, nodes_2, buckets_2, counters_2, limit, events, noted, NEW)
        begin_1 = ends_1[k]
        begin_2 = ends_2[k]
    return noted


def _fixed(element: Any) -> Any:
    values = types.Array(element, 1, "C", readonly=True)
    return types.void(_FLAGS, values, _READ, values, _READ)


@_compiled(*(_fixed(t) for t in (types.uint8, types.uint16, types.uint32, types.uint64)))
def words_differ(differ: Any, a: Any, i: Any, b: Any, j: Any) -> None:
    """differ |= a[i] ≠ b[j]."""
    for k in range(differ.shape[0]):
        differ[k] |= a[i[k]] != b[j[k]]


@_compiled(*(_fixed(t) for t in (types.float32, types.float64)))
def floats_differ(differ: Any, a: Any, i: Any, b: Any, j: Any) -> None:
    """As `words_differ` by value: NaN equals NaN, −0.0 equals 0.0."""
    for k in range(differ.shape[0]):
        x = a[i[k]]
        y = b[j[k]]
        differ[k] |= x != y and not (x != x and y != y)


def _ranged(element: Any) -> Any:
    offsets = types.Array(element, 1, "C", readonly=True)
    return types.void(_FLAGS, offsets, _BYTES, _READ, offsets, _BYTES, _READ)


@_compiled(_ranged(types.int32), _ranged(types.int64))
def bytes_differ(differ: Any, a_ends: Any, a: Any, i: Any, b_ends: Any, b: Any, j: Any) -> None:
    """As `words_differ` for byte strings a[a_ends[i]:a_ends[i + 1]]."""
    for k in range(differ.shape[0]):
        p = np.uint64(a_ends[i[k]])
        q = np.uint64(b_ends[j[k]])
        length = np.uint64(a_ends[i[k] + 1]) - p
        if length != np.uint64(b_ends[j[k] + 1]) - q:
            differ[k] = True
            continue
        # Without a branch for each byte the compiler compares many at once; most strings are equal anyway.
        odd = np.uint8(0)
        for n in range(length):
            odd |= a[p + np.uint64(n)] ^ b[q + np.uint64(n)]
        differ[k] |= odd != 0


@_compiled(types.void(_FLAGS, _FLAGS, _FLAGS_READ, _READ, _FLAGS_READ, _READ))
def settle_nulls(differ: Any, changed: Any, a: Any, i: Any, b: Any, j: Any) -> None:
    """changed |= the values differ; a null equals only a null. An empty `a` or `b` means no nulls there."""
    all_a = a.shape[0] == 0
    all_b = b.shape[0] == 0
    for k in range(differ.shape[0]):
        in_a = all_a or a[i[k]]
        in_b = all_b or b[j[k]]
        changed[k] |= differ[k] if in_a and in_b else in_a != in_b
