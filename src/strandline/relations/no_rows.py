"""A table without rows, of any schema."""

from __future__ import annotations

import pyarrow as pa


def no_rows(schema: pa.Schema) -> pa.Table:
    """The empty table of a schema; pyarrow's own fails on extension types inside others, as UUIDs in a `_before`."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
