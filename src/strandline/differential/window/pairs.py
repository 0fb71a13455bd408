"""Pairs of matching records, in an input buffer or in an aging buffer, and which of them differ.

Values are compared exactly, no hashes decide: null equals null, NaN equals NaN, −0.0 equals 0.0, lists and structs
compare deeply, maps without order. Encodings (dictionary, view, large) may differ; columns whose types do otherwise are
compared as everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.differential.window.buffers import AgingBuffer, Stretch
from strandline.differential.window.compiled import kernels
from strandline.values import (
    Numbers,
    bits,
    byte_ranges,
    fixed_width,
    is_byte_string,
    is_list,
    plain_layout,
    plain_type,
    signature,
    unequal,
    validity,
)

Rows: TypeAlias = npt.NDArray[np.int64]
Differ: TypeAlias = npt.NDArray[np.bool_]
_NO_NULLS = np.zeros(0, dtype=np.bool_)


def rows_differ(one: Sequence[pa.Array], rows: Rows, other: Sequence[pa.Array], other_rows: Rows) -> Differ:
    """For each k: whether row rows[k] of `one` differs from row other_rows[k] of `other` in any column."""
    changed = np.zeros(len(rows), dtype=np.bool_)
    if len(rows):
        for a, b in zip(one, other, strict=True):
            if plain_type(a.type) == plain_type(b.type):
                _differ(changed, a, rows, b, other_rows)
            else:
                changed |= unequal(a.take(pa.array(rows)), b.take(pa.array(other_rows)))
    return changed


def _differ(changed: Differ, a: pa.Array, i: Rows, b: pa.Array, j: Rows) -> None:
    """changed |= a[i] ≠ b[j]."""
    if not len(i):
        return
    a, b = _comparable(a), _comparable(b)
    if pa.types.is_null(a.type) and pa.types.is_null(b.type):
        return
    a_valid, b_valid = validity(a), validity(b)
    if a_valid is None and b_valid is None:
        _values_differ(changed, a, i, b, j)
        return
    differ = np.zeros(len(i), dtype=np.bool_)
    _values_differ(differ, a, i, b, j)
    in_a, in_b = (_NO_NULLS if flags is None else flags for flags in (a_valid, b_valid))
    kernels.settle_nulls(differ, changed, in_a, i, in_b, j)


def _values_differ(differ: Differ, a: pa.Array, i: Rows, b: pa.Array, j: Rows) -> None:
    """differ |= a[i] ≠ b[j], whatever null slots hold."""
    type_ = a.type
    if pa.types.is_struct(type_):
        for k in range(type_.num_fields):
            _differ(differ, a.field(k), i, b.field(k), j)
    elif pa.types.is_map(type_):
        _maps_differ(differ, a, i, b, j)
    elif is_list(type_):
        _lists_differ(differ, a, i, b, j)
    elif is_byte_string(type_):
        _byte_strings_differ(differ, a, i, b, j)
    elif pa.types.is_floating(type_):
        kernels.floats_differ(differ, _floats(a), i, _floats(b), j)
    else:
        _words_differ(differ, a, i, b, j)


def _comparable(array: pa.Array) -> pa.Array:
    array = plain_layout(array)
    return plain_layout(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def _words_differ(differ: Differ, a: pa.Array, i: Rows, b: pa.Array, j: Rows) -> None:
    width = a.type.bit_width
    if width == 1:
        kernels.words_differ(differ, _booleans(a), i, _booleans(b), j)
    elif width <= 64:
        dtype = np.dtype(f"<u{width // 8}")
        kernels.words_differ(differ, _aligned(fixed_width(a, dtype)), i, _aligned(fixed_width(b, dtype)), j)
    else:
        words = width // 64
        dtype = np.dtype((np.uint64, words))
        flat_a, flat_b = fixed_width(a, dtype).reshape(-1), fixed_width(b, dtype).reshape(-1)
        for k in range(words):
            kernels.words_differ(differ, _aligned(flat_a), i * words + k, _aligned(flat_b), j * words + k)


def _byte_strings_differ(differ: Differ, a: pa.Array, i: Rows, b: pa.Array, j: Rows) -> None:
    (a_ends, a_data), (b_ends, b_data) = byte_ranges(a), byte_ranges(b)
    if a_ends.dtype != b_ends.dtype:
        a_ends, b_ends = a_ends.astype(np.int64), b_ends.astype(np.int64)
    kernels.bytes_differ(differ, _aligned(a_ends), a_data, i, _aligned(b_ends), b_data, j)


def _lists_differ(differ: Differ, a: pa.Array, i: Rows, b: pa.Array, j: Rows) -> None:
    a_ends, b_ends = _ends(a), _ends(b)
    owner, elements_a, elements_b = _element_pairs(differ, a_ends, i, b_ends, j)
    inner = np.zeros(len(owner), dtype=np.bool_)
    _differ(inner, a.values, elements_a, b.values, elements_b)
    differ[owner[inner]] = True


def _maps_differ(differ: Differ, a: pa.Array, i: Rows, b: pa.Array, j: Rows) -> None:
    a_ends, b_ends = _ends(a), _ends(b)
    owner, elements_a, elements_b = _element_pairs(differ, a_ends, i, b_ends, j)
    inner = np.zeros(len(owner), dtype=np.bool_)
    elements_a = _entry_order(a, a_ends)[elements_a]
    elements_b = _entry_order(b, b_ends)[elements_b]
    _differ(inner, a.keys, elements_a, b.keys, elements_b)
    _differ(inner, a.items, elements_a, b.items, elements_b)
    differ[owner[inner]] = True


def _entry_order(array: pa.Array, ends: Rows) -> Rows:
    """For each place the entry that stands there when each map is sorted by the hashes of its keys."""
    order = np.arange(len(array.keys))
    first, last = int(ends[0]), int(ends[-1])
    if last > first:
        hashes = signature([array.keys.slice(first, last - first)], 0)
        owners = np.repeat(np.arange(len(array)), np.diff(ends))
        order[first:last] = first + np.lexsort((hashes, owners))
    return order


def _element_pairs(differ: Differ, a_ends: Rows, i: Rows, b_ends: Rows, j: Rows) -> tuple[Rows, Rows, Rows]:
    """Pairs of elements to compare, with the pair of lists that owns each; unequal lengths differ at once."""
    a_from, b_from = a_ends[i], b_ends[j]
    a_length, b_length = a_ends[i + 1] - a_from, b_ends[j + 1] - b_from
    differ |= a_length != b_length
    length = np.where(differ, 0, a_length)
    owner = np.repeat(np.arange(len(i)), length)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return owner, np.repeat(a_from, length) + within, np.repeat(b_from, length) + within


def _ends(array: pa.Array) -> Rows:
    if pa.types.is_fixed_size_list(array.type):
        places: Rows = (array.offset + np.arange(len(array) + 1)) * array.type.list_size
        return places
    wide = pa.types.is_large_list(array.type)
    ends: Rows = fixed_width(array.offsets, np.dtype("<i8" if wide else "<i4")).astype(np.int64)
    return ends


def _floats(array: pa.Array) -> npt.NDArray[Any]:
    values = fixed_width(array, np.dtype(f"<f{array.type.bit_width // 8}"))
    return _aligned(values.astype(np.float32) if values.dtype.itemsize == 2 else values)


def _booleans(array: pa.Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(bits(array.buffers()[1], array.offset, len(array)).view(np.uint8))


def _aligned(values: Any) -> npt.NDArray[Any]:
    return np.require(values, requirements=("C", "A"))


@dataclass(frozen=True)
class _Group:
    """Pairs whose old records are in one batch and whose new records are in another; `which` numbers them."""

    which: Numbers
    old: pa.RecordBatch
    old_at: Numbers
    new: pa.RecordBatch
    new_at: Numbers


class Pairs:
    """Matches between two stretches and the aging buffers, by their rows in the snapshots, in order."""

    def __init__(self, old_rows: Numbers, new_rows: Numbers) -> None:
        self.old_rows = old_rows
        self.new_rows = new_rows
        self._groups: list[_Group] = []

    def locate(self, old: Stretch, aging_old: AgingBuffer, new: Stretch, aging_new: AgingBuffer) -> None:
        """Find the records. Two aged records never match: each met the other's buffer when it was read."""
        old_aged, new_aged = self.old_rows < old.start, self.new_rows < new.start
        which = np.flatnonzero(~(old_aged | new_aged))
        old_at, new_at = self.old_rows[which] - old.start, self.new_rows[which] - new.start
        self._groups.append(_Group(which, old.rows, old_at, new.rows, new_at))
        if len(which := np.flatnonzero(old_aged)):
            fetched = aging_old.fetch(self.old_rows[which])
            new_at = self.new_rows[which] - new.start
            self._groups.append(_Group(which, fetched, np.arange(len(which)), new.rows, new_at))
        if len(which := np.flatnonzero(new_aged)):
            fetched = aging_new.fetch(self.new_rows[which])
            old_at = self.old_rows[which] - old.start
            self._groups.append(_Group(which, old.rows, old_at, fetched, np.arange(len(which))))

    def differ(self, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
        """For each pair whether its records differ in any of the columns."""
        differing = np.zeros(len(self.old_rows), dtype=np.bool_)
        for group in self._groups:
            one = [group.old.column(name) for name in columns]
            other = [group.new.column(name) for name in columns]
            differing[group.which] = rows_differ(one, group.old_at, other, group.new_at)
        return differing

    def records(self, chosen: npt.NDArray[np.bool_]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The old and the new records of the chosen pairs, in the pairs' order."""
        old, new, which = [], [], []
        for group in self._groups:
            at = np.flatnonzero(chosen[group.which])
            which.append(group.which[at])
            old.append(group.old.take(pa.array(group.old_at[at])))
            new.append(group.new.take(pa.array(group.new_at[at])))
        order = pa.array(np.argsort(np.concatenate(which)))
        return pa.concat_batches(old).take(order), pa.concat_batches(new).take(order)
