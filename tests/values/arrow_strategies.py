"""Random Arrow arrays of every type that Parquet carries."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, cast

import pyarrow as pa
from hypothesis import strategies as st

_INTEGERS = {
    pa.int8(): 8,
    pa.int16(): 16,
    pa.int32(): 32,
    pa.int64(): 64,
}
_UNSIGNED = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())
_CONTEXT = Context(prec=100)
_SIXTY_FOUR = st.integers(-(2**62) // 10**6, 2**62 // 10**6)


def _decimals(type_: pa.DataType) -> st.SearchStrategy[Decimal]:
    largest = 10**type_.precision - 1
    return st.integers(-largest, largest).map(lambda n: Decimal(n).scaleb(-type_.scale, _CONTEXT))


def leaves() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    pairs: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
        (pa.bool_(), st.booleans()),
        (pa.null(), st.none()),
    ]
    pairs += [(t, st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1)) for t, b in _INTEGERS.items()]
    pairs += [(t, st.integers(0, 2**b - 1)) for t, b in _UNSIGNED.items()]
    pairs += [(pa.float16(), st.floats(width=16)), (pa.float32(), st.floats(width=32)), (pa.float64(), st.floats())]
    decimals = (pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(38, 10), pa.decimal256(76, 5))
    pairs += [(t, _decimals(t)) for t in decimals]
    pairs += [(pa.date32(), st.integers(-(10**6), 10**6)), (pa.date64(), _days_in_milliseconds())]
    pairs += [(t, st.integers(0, 86_399)) for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))]
    pairs += [(pa.timestamp(u, tz), _SIXTY_FOUR) for u in ("s", "ms", "us", "ns") for tz in (None, "UTC")]
    pairs += [(pa.duration(u), _SIXTY_FOUR) for u in ("s", "ms", "us", "ns")]
    pairs += [(t, st.text(max_size=30)) for t in _TEXTS]
    pairs += [(t, st.binary(max_size=30)) for t in _BINARIES]
    pairs += [(pa.binary(5), st.binary(min_size=5, max_size=5))]
    return st.sampled_from(pairs)


def _days_in_milliseconds() -> st.SearchStrategy[int]:
    return st.integers(-(10**6), 10**6).map(lambda days: days * 86_400_000)


def _nested(
    inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def lists(pair: tuple[pa.DataType, st.SearchStrategy[Any]]) -> Any:
        type_, values = pair
        elements = st.lists(st.none() | values, max_size=4)
        fixed = st.lists(st.none() | values, min_size=2, max_size=2)
        layouts = [(pa.list_(type_), elements), (pa.large_list(type_), elements), (pa.list_(type_, 2), fixed)]
        return st.sampled_from(layouts)

    def struct(pairs: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> Any:
        type_ = pa.struct([pa.field(f"f{k}", t) for k, (t, _) in enumerate(pairs)])
        values = {f"f{k}": st.none() | v for k, (_, v) in enumerate(pairs)}
        return type_, st.fixed_dictionaries(values)

    def map_(pair: tuple[pa.DataType, st.SearchStrategy[Any]]) -> Any:
        type_, values = pair
        entries = st.dictionaries(st.text(max_size=9), st.none() | values, max_size=4)
        return pa.map_(pa.string(), type_), entries.map(lambda d: list(d.items()))

    return st.one_of(inner.flatmap(lists), st.lists(inner, min_size=1, max_size=3).map(struct), inner.map(map_))


typed_values = st.recursive(leaves(), _nested, max_leaves=4)


def _arrays(draw: st.DrawFn, rows: int | None = None) -> pa.Array:
    """An array of any type, with nulls, sliced out of a longer one."""
    type_, values = draw(typed_values)
    count = draw(st.integers(0, 12)) if rows is None else rows
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    size = before + count + after
    whole = build(draw(st.lists(st.none() | values, min_size=size, max_size=size)), type_)
    return whole.slice(before, count)


arrays = cast(Callable[..., Any], st.composite(_arrays))


def build(values: list[Any], type_: pa.DataType) -> pa.Array:
    """`pa.array`, with numbers for times and dates wherever they stand."""
    return pa.array(values, type_) if not _has_times(type_) else _build_times(values, type_)


def _has_times(type_: pa.DataType) -> bool:
    types = pa.types
    if types.is_temporal(type_):
        return True
    return any(_has_times(type_.field(k).type) for k in range(type_.num_fields))


def _as_integers(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_temporal(type_):
        return pa.int32() if type_.bit_width == 32 else pa.int64()
    if types.is_map(type_):
        return pa.map_(_as_integers(type_.key_type), _as_integers(type_.item_type))
    if types.is_struct(type_):
        return pa.struct([pa.field(f.name, _as_integers(f.type)) for f in type_])
    if types.is_fixed_size_list(type_):
        return pa.list_(_as_integers(type_.value_type), type_.list_size)
    if types.is_large_list(type_):
        return pa.large_list(_as_integers(type_.value_type))
    if types.is_list(type_):
        return pa.list_(_as_integers(type_.value_type))
    return type_


def _build_times(values: list[Any], type_: pa.DataType) -> pa.Array:
    return _relabel(pa.array(values, _as_integers(type_)), type_)


def _relabel(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same buffers under another type of the same layout."""
    children = []
    if pa.types.is_struct(type_):
        children = [_relabel(array.field(k), type_.field(k).type) for k in range(type_.num_fields)]
    elif pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
        )
        children = [_relabel(entries, pa.struct([type_.key_field, type_.item_field]))]
    elif type_.num_fields:
        children = [_relabel(array.values, type_.value_type)]
    own = len(array.buffers()) if not children else {True: 2, False: 1}[_has_offsets(type_)]
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:own], children=children)


def _has_offsets(type_: pa.DataType) -> bool:
    return bool(pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_))
