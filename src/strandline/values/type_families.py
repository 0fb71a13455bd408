"""Families of Arrow types: text, bytes, lists and numbers, whatever their layout.

The *plain* layouts are those with a buffer of offsets or of one fixed width; views are not among them. None of these
looks through a dictionary or an extension type.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


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
