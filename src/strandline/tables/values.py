"""Plain values as columns, and names as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.errors import SchemaError
from strandline.relations.conform import convert


def names_of(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name, several, or none."""
    if key is None:
        return ()
    return (key,) if isinstance(key, str) else tuple(key)


def type_of(kind: pa.DataType | str) -> pa.DataType:
    """A type, or what its name means."""
    if isinstance(kind, pa.DataType):
        return kind
    from strandline.relations import arrow_type

    return arrow_type(kind)


def literal(value: Any, field: pa.Field, doing: str) -> pa.Array:
    """One value in the type of a column."""
    try:
        if isinstance(value, pa.Scalar):
            return convert(pa.array([value.as_py()], value.type), field.type, field.name)
        return pa.array([value], field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaError(
            f"{value!r} does not fit column {field.name!r} of {field.type}: {error}", doing=doing
        ) from None


def repeat(value: pa.Array, count: int) -> pa.Array:
    """A column of one value."""
    return value if count == 1 else value.take(pa.array(np.zeros(count, dtype=np.int64)))
