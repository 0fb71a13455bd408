"""In which type DuckDB compares the operands of a term: a list of what the proof of irrelevance understands.

DuckDB casts all operands of a comparison, a BETWEEN or an IN to one common type, in which values may be rounded:
2⁵³ + 1 equals 2⁵³ beside a DOUBLE. So a comparison may stand in a proof only if the common type is known, and if values
have the same order in it as they have here. DuckDB itself says what type an operand has; these are understood:

- whole numbers and decimals that meet within 38 digits (64 bits of a whole number count for 20);
- DOUBLE with any number, and FLOAT with FLOAT;
- VARCHAR, BLOB, BOOLEAN, TIMESTAMP WITH TIME ZONE, each with itself;
- DATE and TIMESTAMP. A text literal beside them is read as one of them, if they are all the same.

Everything else is not: other types, NULL, a collation, types that SQL sees in a coarser unit (`sql_rounds`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SqlError
from strandline.values import parse_expression, sql_rounds
from strandline.views.definition import sql_text

if TYPE_CHECKING:
    from sqlglot import exp

_WHOLE = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"))
_ALONE = frozenset(("VARCHAR", "BLOB", "BOOLEAN", "TIMESTAMP WITH TIME ZONE", "FLOAT"))
_CALENDAR = frozenset(("DATE", "TIMESTAMP"))
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_DIGITS = 38
_WHOLE_DIGITS = 20
EXACT_NUMBERS, DOUBLES, CALENDAR = "exact numbers", "doubles", "calendar"


@dataclass(frozen=True)
class _Operand:
    """The DuckDB type of an operand, and whether it is a text literal, which takes the type of what it meets."""

    type: str
    literal_text: bool


class ComparisonTypes:
    """The types of operands over these occurrences; `schemas` leads from aliases to columns, in plain types."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self._known: dict[str, _Operand | None] = {}

    def common(self, operands: Sequence[exp.Expr]) -> str | None:
        """The name of the type in which operands are compared in an order that is known here; None if there is none."""
        known = [self._operand(tree) for tree in operands]
        if any(one is None for one in known):
            return None
        types = {one.type for one in known if one is not None and not one.literal_text}
        texts = any(one is not None and one.literal_text for one in known)
        if not texts or types <= {"VARCHAR"}:
            return _common(types or {"VARCHAR"})
        # A text literal becomes whatever type the others share.
        return CALENDAR if len(types) == 1 and types <= _CALENDAR else None

    def separable(self, operands: Sequence[exp.Expr]) -> bool:
        """Whether comparing the first operand with each of the others alone is the same as comparing all together."""
        common = self.common(operands)
        subject = self._operand(operands[0])
        return common is not None and (common != DOUBLES or (subject is not None and subject.type == "DOUBLE"))

    def _operand(self, tree: exp.Expr) -> _Operand | None:
        text = sql_text(tree)
        if text not in self._known:
            self._known[text] = self._described(tree.unnest())
        return self._known[text]

    def _described(self, tree: exp.Expr) -> _Operand | None:
        from sqlglot import exp

        if tree.find(exp.Collate) is not None:
            return None
        tree = tree.copy()
        fields: dict[tuple[str, str], pa.Field] = {}
        for column in list(tree.find_all(exp.Column)):
            type_ = self._schemas[column.table].field(column.name).type
            if sql_rounds(type_):
                return None
            # A number instead of a name: names of several occurrences can't meet.
            field = fields.setdefault((column.table, column.name), pa.field(f"c{len(fields)}", type_))
            column.set("table", None)
            column.set("this", exp.to_identifier(field.name, quoted=True))
        row = pa.table([pa.nulls(1, one.type) for one in fields.values()], schema=pa.schema(list(fields.values())))
        row = row if fields else pa.table({"c": [None]})
        try:
            named = parse_expression(f"typeof({sql_text(tree)})", row.schema).evaluate(row)
        except SqlError:
            return None
        return _Operand(str(named[0].as_py()), isinstance(tree, exp.Literal) and tree.is_string)


def _common(types: set[str]) -> str | None:
    if types <= _CALENDAR:
        return CALENDAR
    if len(types) == 1 and types <= _ALONE:
        return next(iter(types))
    decimals = {type_: match for type_ in types if (match := _DECIMAL.fullmatch(type_))}
    whole = types & _WHOLE
    if "DOUBLE" in types and types <= {"DOUBLE", "FLOAT", "HUGEINT"} | whole | decimals.keys():
        return DOUBLES
    if types != whole | decimals.keys():
        return None
    scale = max((int(match[2]) for match in decimals.values()), default=0)
    digits = [int(match[1]) - int(match[2]) for match in decimals.values()] + [_WHOLE_DIGITS] * bool(whole)
    return EXACT_NUMBERS if not scale or scale + max(digits) <= _DIGITS else None
