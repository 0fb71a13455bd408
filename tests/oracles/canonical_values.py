"""What a value is, in plain Python: equal exactly where docs/changes.md says that values are equal."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400_000


def canonical(scalar: Any) -> Any:
    """The value of an Arrow scalar, whatever its type; hashable, and None for a null."""
    if isinstance(scalar, (pa.ExtensionScalar, pa.DictionaryScalar)):
        return canonical(scalar.value)
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if pt.is_floating(type_):
        return canonical_float(float(scalar.as_py()))
    if pt.is_decimal(type_):
        return Fraction(scalar.as_py())
    if pt.is_date(type_):
        return scalar.value if pt.is_date32(type_) else scalar.value // DAY
    if pt.is_time(type_) or pt.is_timestamp(type_) or pt.is_duration(type_):
        return scalar.value * NANOSECONDS[type_.unit]
    if pt.is_struct(type_):
        fields = [(type_.field(place).name, canonical(scalar[place])) for place in range(type_.num_fields)]
        return tuple(sorted(fields, key=lambda field: field[0]))
    if pt.is_map(type_):
        keys, items = scalar.values.field(0), scalar.values.field(1)
        return unordered([(canonical(key), canonical(item)) for key, item in zip(keys, items, strict=True)])
    if isinstance(scalar, pa.ListScalar):
        return tuple(canonical(element) for element in scalar.values)
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else value


def canonical_float(value: float) -> Any:
    """A float that equals itself: one NaN, one zero."""
    return "nan" if math.isnan(value) else value + 0.0


def unordered(entries: list[Any]) -> frozenset[Any]:
    """Entries without their order, each as often as it is there."""
    return frozenset(Counter(entries).items())
