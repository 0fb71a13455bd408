"""Conditions and values in SQL, as a table's verbs take them.

`relations.expressions` checks and computes them. Here stands what only a table needs: one set of parameters shared by
several expressions, and the outline of a condition, from which `key_bounds` tells the keys that it can hold for. A
condition that chooses single keys is never computed, so it is not even checked beyond its outline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SchemaError, SqlError
from strandline.relations.conform import convert

if TYPE_CHECKING:
    from strandline.relations.expressions import Condition
    from strandline.relations.expressions import Expression as Checked

Flags = npt.NDArray[np.bool_]


class Expression:
    """An SQL expression over the columns of a schema; `parameters` are those that it names."""

    def __init__(self, text: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> None:
        self.text = text
        self._schema = schema
        self.outline, names = _outlined(text, tuple(schema.names))
        absent = [name for name in names if name not in (params or {})]
        if absent:
            raise SqlError(
                f"parameter :{absent[0]} has no value", doing=f"reading {text!r}", hint="Give its value in params"
            )
        self.parameters = {name: (params or {})[name] for name in names}

    @cached_property
    def condition(self) -> Condition:
        from strandline.relations.expressions import parse_condition

        return parse_condition(self.text, self._schema, self.parameters)

    @cached_property
    def expression(self) -> Checked:
        from strandline.relations.expressions import parse_expression

        return parse_expression(self.text, self._schema, self.parameters)

    def mask(self, table: pa.Table) -> Flags:
        """Which rows satisfy this condition; null counts as no."""
        return np.asarray(self.condition.mask(table), dtype=np.bool_)

    def values(self, table: pa.Table, column: pa.Field) -> pa.ChunkedArray:
        """The values of this expression for each row, in the type of the column that takes them."""
        found = self.expression.evaluate(table)
        if _is_text(found.type) and not _is_text(column.type):
            raise SchemaError(
                f"{self.text!r} is {found.type}, column {column.name!r} is {column.type}",
                doing="computing new values",
                hint=f"Cast it, as in CAST({self.text} AS …)",
            )
        return pa.chunked_array([convert(c, column.type, column.name) for c in found.chunks], type=column.type)


def check_params(params: Mapping[str, Any] | None, expressions: Iterable[Expression]) -> None:
    """Refuses parameters that no expression names: a name is probably misspelt."""
    used = {name for expression in expressions for name in expression.parameters}
    unused = sorted(set(params or {}) - used)
    if unused:
        raise SqlError(f"parameter :{unused[0]} is given but not used", doing="reading parameters")


@lru_cache(maxsize=1024)
def _outlined(text: str, names: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The parsed text with the schema's own column names, and the parameters that it names; None if it is no SQL."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        trees = sqlglot.parse(text, dialect="duckdb")
    except SqlglotError:
        return None, ()
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        return None, ()
    for column in tree.find_all(exp.Column):
        alike = [name for name in names if name.lower() == column.name.lower()]
        if column.name not in names and len(alike) == 1 and not column.this.args.get("quoted"):
            column.this.set("this", alike[0])
    return tree, tuple(dict.fromkeys(str(place.name) for place in tree.find_all(exp.Placeholder, exp.Parameter)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))
