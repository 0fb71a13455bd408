"""Types: the one in which values of two types meet, or why they can't, and the families that types belong to.

Encodings don't matter, and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pt

Meeting = Callable[[pa.DataType, pa.DataType], "pa.DataType | Incomparable"]

TICKS = pa.decimal128(38, 0)
"""Instants of different units, in nanoseconds: int64 seconds would overflow int64."""
SPLIT = pa.struct([("f0", pa.int64()), ("f1", pa.int64())])
"""64-bit integers beside floats: the nearest double, and the rest."""

_UNITS = ("s", "ms", "us", "ns")
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


@dataclass(frozen=True)
class Incomparable:
    """Why values of two types can't be compared."""

    reason: str


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | Incomparable:
    """The type that holds the values of both, or why there is none. Encodings (dictionary, view) are dropped."""
    return _join(a, b, _wider)


@lru_cache(maxsize=1024)
def meeting_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | Incomparable:
    """Where two types meet for comparing: `common_type`, except where casting to that could overflow or round."""
    return _join(a, b, _meeting)


def decoded(type_: pa.DataType) -> pa.DataType:
    """`type_` without extension, dictionary, run-end and view encodings at its top."""
    if isinstance(type_, pa.BaseExtensionType):
        return decoded(type_.storage_type)
    if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        return decoded(type_.value_type)
    if pt.is_string_view(type_):
        return pa.large_string()
    if pt.is_binary_view(type_):
        return pa.large_binary()
    return type_


def _join(a: pa.DataType, b: pa.DataType, leaf: Meeting) -> pa.DataType | Incomparable:
    """Both types' meeting point, descending into lists, structs and maps; `leaf` decides for all other types."""
    a, b = decoded(a), decoded(b)
    if pt.is_null(a) or pt.is_null(b):
        other = b if pt.is_null(a) else a
        return other if pt.is_null(other) else _join(other, other, leaf)
    if is_list(a) and is_list(b):
        child = _join(a.value_type, b.value_type, leaf)
        if isinstance(child, Incomparable):
            return Incomparable(f"the elements of {a} and {b}: {child.reason}")
        if pt.is_fixed_size_list(a) and pt.is_fixed_size_list(b) and a.list_size == b.list_size:
            return pa.list_(child, a.list_size)
        return pa.large_list(child) if _is_large(a) or _is_large(b) else pa.list_(child)
    if pt.is_map(a) and pt.is_map(b):
        key, item = _join(a.key_type, b.key_type, leaf), _join(a.item_type, b.item_type, leaf)
        for part in (key, item):
            if isinstance(part, Incomparable):
                return Incomparable(f"the entries of {a} and {b}: {part.reason}")
        return pa.map_(key, item)
    if pt.is_struct(a) and pt.is_struct(b):
        return _join_structs(a, b, leaf)
    return leaf(a, b)


def _join_structs(a: pa.StructType, b: pa.StructType, leaf: Meeting) -> pa.DataType | Incomparable:
    mine, theirs = [field.name for field in a], [field.name for field in b]
    if sorted(mine) != sorted(theirs):
        return Incomparable(f"{a} and {b} have different fields")
    if mine != theirs and len(set(mine)) < len(mine):
        return Incomparable(f"{a} and {b} have several fields of one name, in different order")
    names = mine if mine == theirs else sorted(mine)  # the same order from either side
    fields = []
    for position, name in enumerate(names):
        place = position if mine == theirs else name
        joined = _join(a.field(place).type, b.field(place).type, leaf)
        if isinstance(joined, Incomparable):
            return Incomparable(f"field {name!r}: {joined.reason}")
        fields.append(pa.field(name, joined))
    return pa.struct(fields)


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType | Incomparable:
    """The type that can hold values of both leaf types."""
    if pt.is_boolean(a) and pt.is_boolean(b):
        return a
    if is_number(a) and is_number(b):
        return _wider_number(a, b)
    if is_text(a) and is_text(b):
        return pa.large_string() if pa.large_string() in (a, b) else pa.string()
    if is_bytes(a) and is_bytes(b):
        return a if a == b else pa.large_binary() if pa.large_binary() in (a, b) else pa.binary()
    if pt.is_date(a) and pt.is_date(b):
        return a if a == b else pa.date32()
    if pt.is_time(a) and pt.is_time(b):
        unit = _finer(a.unit, b.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if pt.is_duration(a) and pt.is_duration(b):
        return pa.duration(_finer(a.unit, b.unit))
    if pt.is_timestamp(a) and pt.is_timestamp(b):
        if (a.tz is None) != (b.tz is None):
            return Incomparable(f"{a} and {b}: one is an instant, the other a local time without a zone")
        return pa.timestamp(_finer(a.unit, b.unit), a.tz if a.tz == b.tz else "UTC")
    return Incomparable(f"values of {a} and {b} can't be compared")


def _wider_number(a: pa.DataType, b: pa.DataType) -> pa.DataType | Incomparable:
    if a == b:
        return a
    if pt.is_floating(a) or pt.is_floating(b):
        if pt.is_decimal(a) or pt.is_decimal(b):
            return Incomparable(f"{a} is exact and {b} is not" if pt.is_decimal(a) else f"{a} is not exact and {b} is")
        # An integer of at most 8, 16 or 32 bits is exact in a float of 16, 32 or 64.
        width = max(t.bit_width if pt.is_floating(t) else min(t.bit_width * 2, 64) for t in (a, b))
        return {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}[width]
    if pt.is_decimal(a) or pt.is_decimal(b):
        (digits_a, scale_a), (digits_b, scale_b) = _digits(a), _digits(b)
        scale = max(scale_a, scale_b)
        precision = max(digits_a, digits_b) + scale
        if precision > 76:
            return Incomparable(f"{a} and {b} together need {precision} digits, more than 76")
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if pt.is_signed_integer(a) == pt.is_signed_integer(b):
        return a if a.bit_width >= b.bit_width else b
    signed, unsigned = (a, b) if pt.is_signed_integer(a) else (b, a)
    if signed.bit_width > unsigned.bit_width:
        return signed
    return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[unsigned.bit_width]


def _meeting(a: pa.DataType, b: pa.DataType) -> pa.DataType | Incomparable:
    """Where two leaf types meet for comparing: `_wider`, except where casting to that could overflow or round."""
    wider = _wider(a, b)
    if isinstance(wider, Incomparable):
        return wider
    if (pt.is_timestamp(wider) or pt.is_duration(wider)) and a.unit != b.unit:
        return TICKS
    if pt.is_floating(wider) and any(pt.is_integer(t) and t.bit_width == 64 for t in (a, b)):
        return SPLIT
    return wider


def _digits(type_: pa.DataType) -> tuple[int, int]:
    """Digits before the point, and after it."""
    if pt.is_integer(type_):
        return _INTEGER_DIGITS[type_.bit_width], 0
    scale = max(type_.scale, 0)
    return type_.precision - type_.scale, scale


def _finer(a: str, b: str) -> str:
    return _UNITS[max(_UNITS.index(a), _UNITS.index(b))]


def _is_large(type_: pa.DataType) -> bool:
    return bool(pt.is_large_list(type_) or pt.is_large_list_view(type_))


# Families of types, whatever their layout. The plain layouts are those with a buffer of offsets or of one fixed width;
# views are not among them. None of these looks through a dictionary or an extension type.


def is_text(type_: pa.DataType) -> bool:
    """Text in any layout."""
    return bool(is_plain_text(type_) or pt.is_string_view(type_))


def is_plain_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Bytes in any layout, those of one fixed width included."""
    return bool(is_plain_bytes(type_) or pt.is_binary_view(type_))


def is_plain_bytes(type_: pa.DataType) -> bool:
    return bool(pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_))


def is_byte_string(type_: pa.DataType) -> bool:
    """Text or bytes in a plain layout."""
    return is_plain_text(type_) or is_plain_bytes(type_)


def is_variable_width(type_: pa.DataType) -> bool:
    """Text or bytes in a plain layout, each value with a length of its own."""
    return is_byte_string(type_) and not pt.is_fixed_size_binary(type_)


def is_list(type_: pa.DataType) -> bool:
    """Lists in any layout; maps are none."""
    views = pt.is_list_view(type_) or pt.is_large_list_view(type_)
    return bool(views or pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_))


def is_number(type_: pa.DataType) -> bool:
    return bool(pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_))
