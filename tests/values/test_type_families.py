"""Which Arrow types belong to which family."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.values import (
    is_byte_string,
    is_bytes,
    is_list,
    is_number,
    is_plain_bytes,
    is_plain_text,
    is_text,
    is_variable_width,
)

ITEM = pa.int32()
FAMILIES = {
    is_text: {"string", "large_string", "string_view"},
    is_plain_text: {"string", "large_string"},
    is_bytes: {"binary", "large_binary", "fixed_size_binary[3]", "binary_view"},
    is_plain_bytes: {"binary", "large_binary", "fixed_size_binary[3]"},
    is_byte_string: {"string", "large_string", "binary", "large_binary", "fixed_size_binary[3]"},
    is_variable_width: {"string", "large_string", "binary", "large_binary"},
    is_number: {"int8", "uint64", "halffloat", "double", "decimal128(5, 2)", "decimal256(50, 2)"},
    is_list: {str(t) for t in (pa.list_(ITEM), pa.large_list(ITEM), pa.list_(ITEM, 2), pa.list_view(ITEM))}
    | {str(pa.large_list_view(ITEM))},
}
TYPES = (
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view()),
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(5, 2), pa.decimal256(50, 2)),
    *(pa.list_(ITEM), pa.large_list(ITEM), pa.list_(ITEM, 2), pa.list_view(ITEM), pa.large_list_view(ITEM)),
    *(pa.null(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.map_(ITEM, ITEM), pa.struct([("a", ITEM)])),
    *(pa.dictionary(pa.int32(), pa.string()), pa.duration("s"), pa.time64("us"), pa.uuid()),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_holds_its_types_and_no_others(family: object) -> None:
    assert callable(family)
    assert {str(type_) for type_ in TYPES if family(type_)} == FAMILIES[family]
