"""Queries that Spark SQL answers as DuckDB does.

Queries are written in DuckDB's dialect. Spark knows nearly all of its words, and means other things by many: days of a
week are counted from another day, casts round otherwise, averages of decimals have six digits. So a query runs on Spark
only if each clause, sign and function of it is in the lists below, over columns of types that are; `unlike_on_spark`
names the first that is not. What the lists hold is computed by both in the tests. Sums and averages of floating point
may differ in their last digits, as they do between two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.values import is_text

if TYPE_CHECKING:
    from sqlglot import exp

_CLAUSES = (
    *("Select", "From", "Join", "Where", "Group", "Having", "Order", "Ordered", "Limit", "Offset", "Distinct"),
    *("Subquery", "With", "CTE", "Union", "Except", "Intersect", "Alias", "Table", "TableAlias", "Identifier"),
    *("Column", "Star", "Literal", "Boolean", "Null", "Paren", "Tuple"),
)
_PREDICATES = ("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "Is", "In", "Between", "NullSafeEQ", "NullSafeNEQ")
_TRUTHS = ("And", "Or", "Not", "Exists")
_ARITHMETIC = ("Add", "Sub", "Mul", "Neg")
_OF_NUMBERS = (*_ARITHMETIC, "Sum", "Avg")
_CHOICES = ("Coalesce", "Case", "If", "Nullif")
_COUNTS = ("Count", "Min", "Max")
_WINDOWS = ("Window", "RowNumber", "Rank", "DenseRank")
_KNOWN = frozenset(
    (*_CLAUSES, *_PREDICATES, *_TRUTHS, *_OF_NUMBERS, *_CHOICES, *_COUNTS, *_WINDOWS, "Filter", "Cast", "DataType")
)
_CASTS: Mapping[str, Callable[[pa.DataType], bool]] = {
    "BIGINT": pt.is_signed_integer,
    "DOUBLE": lambda type_: pt.is_signed_integer(type_) or pt.is_float64(type_),
    "VARCHAR": lambda type_: pt.is_signed_integer(type_) or is_text(type_) or pt.is_date32(type_),
    "TEXT": lambda type_: pt.is_signed_integer(type_) or is_text(type_) or pt.is_date32(type_),
    "DATE": pt.is_date32,
}
"""What columns may be cast to, and of which types."""
_DATE, _INSTANT = r"\d{4}-\d{2}-\d{2}", r"( \d{2}:\d{2}:\d{2}(\.\d{1,6})?)?"
_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_MOST_DIGITS = 30
"""Of all decimals in one term together: their products and sums then have as many digits for both."""


def unlike_on_spark(tree: exp.Expr, schemas: Mapping[str, pa.Schema]) -> str | None:
    """The first part of a query over relations of these schemas that may mean something else to Spark; None if each is
    known to mean the same.
    """
    return next(_Reading(tree, schemas).unlike(), None)


class _Reading:
    """One query, looked through once."""

    def __init__(self, tree: exp.Expr, schemas: Mapping[str, pa.Schema]) -> None:
        self.tree = tree
        self.types: dict[str, list[pa.DataType]] = {}
        given = set(_names_given(tree))
        for schema in schemas.values():
            for field in schema:
                if field.name.lower() not in given:
                    self.types.setdefault(field.name.lower(), []).append(field.type)

    def unlike(self) -> Iterator[str]:
        """What may mean something else, as errors show it."""
        for node in self.tree.walk():
            if type(node).__name__ not in _KNOWN or self._is_unlike(node):
                yield node.sql(dialect="duckdb", comments=False)

    def _is_unlike(self, node: exp.Expr) -> bool:
        from sqlglot import exp

        kind = type(node).__name__
        if isinstance(node, exp.Column):
            return not all(map(_is_known_type, self._types(node)))
        if kind == "Literal":
            return "\\" in node.name if node.is_string else not _NUMBER.fullmatch(node.name)
        if kind == "Cast":
            return not self._is_plain_cast(node)
        if kind in _OF_NUMBERS:
            return not self._is_arithmetic(node)
        if kind in _PREDICATES or kind in _CHOICES:
            return not self._compares(node)
        return _has_odd_clauses(node) or (kind == "Select" and self._hides_a_column(node))

    def _types(self, column: exp.Column) -> list[pa.DataType]:
        """What a column may be of: those of all that have its name; none if a subquery gives that name."""
        return self.types.get(column.name.lower(), [])

    def _is_plain_cast(self, node: exp.Expr) -> bool:
        from sqlglot import exp

        target, value = node.args["to"].sql(dialect="duckdb"), node.this
        if isinstance(value, exp.Literal) and value.is_string:
            forms = {"DATE": _DATE, "TIMESTAMP": _DATE + _INSTANT}
            return target in forms and re.fullmatch(forms[target], value.name) is not None
        if target not in _CASTS or not isinstance(value, exp.Column):
            return False
        types = self._types(value)
        return bool(types) and all(map(_CASTS[target], types))

    def _is_arithmetic(self, node: exp.Expr) -> bool:
        """Whether all is of numbers whose results have the same digits."""
        from sqlglot import exp

        columns, literals = _values_of(node)
        if any(one.is_string for one in literals) or node.find(exp.Query) is not None:
            return False
        types = [type_ for one in columns for type_ in self._types(one)]
        digits = sum(type_.precision for type_ in types if pt.is_decimal(type_))
        if digits > (0 if isinstance(node, exp.Avg) else _MOST_DIGITS):
            return False
        known = all(map(self._types, columns)) or isinstance(node, exp.Sum)
        return known and all(_kind(type_) == "number" for type_ in types)

    def _compares(self, node: exp.Expr) -> bool:
        """Whether values of one kind are compared, and times with texts that both read alike."""
        columns, literals = _values_of(node)
        types = [type_ for one in columns for type_ in self._types(one)]
        texts = [one.name for one in literals if one.is_string]
        kinds = {_kind(type_) for type_ in types}
        if len(kinds) > 1 or (texts and len(texts) < len(literals)):
            return False
        if not texts or not columns or kinds == {"text"}:
            return not literals or bool(texts) or kinds <= {"number"}
        form = _DATE if any(map(pt.is_date32, types)) else _DATE + _INSTANT
        known = all(map(self._types, columns)) and kinds <= {"time"}
        return known and all(re.fullmatch(form, text) for text in texts)

    def _hides_a_column(self, node: exp.Expr) -> bool:
        """Whether a name that SELECT gives is also a column's, and is used where the two may understand either."""
        from sqlglot import exp

        own = {
            one.alias.lower()
            for one in node.expressions
            if isinstance(one, exp.Alias)
            and one.alias.lower() in self.types
            and not (isinstance(one.this, exp.Column) and one.this.name.lower() == one.alias.lower())
        }
        clauses = [node.args.get(name) for name in ("where", "group", "having")]
        keys = [one.this for one in (node.args["order"].expressions if node.args.get("order") else ())]
        asked = [
            *(one for one in clauses if one is not None),
            *(one for one in keys if not isinstance(one, exp.Column)),
        ]
        used = {column.name.lower() for one in asked for column in one.find_all(exp.Column)}
        return not own.isdisjoint(used)


def _names_given(tree: exp.Expr) -> Iterator[str]:
    """The names that subqueries give to what they compute."""
    from sqlglot import exp

    for select in tree.find_all(exp.Select):
        if select is not tree:
            yield from (one.alias.lower() for one in select.expressions if isinstance(one, exp.Alias))
    for alias in tree.find_all(exp.TableAlias):
        yield from (one.name.lower() for one in alias.args.get("columns") or ())


def _values_of(node: exp.Expr) -> tuple[list[exp.Column], list[exp.Literal]]:
    """The columns and literals whose values a node computes with, compares or chooses from; not what it chooses by."""
    from sqlglot import exp

    columns, literals, ahead = list[exp.Column](), list[exp.Literal](), list(_operands(node))
    while ahead:
        one = ahead.pop()
        if isinstance(one, exp.Column):
            columns.append(one)
        elif isinstance(one, exp.Literal):
            literals.append(one)
        elif type(one).__name__ not in (*_PREDICATES, *_TRUTHS):
            ahead += _operands(one)
    return columns, literals


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    if isinstance(node, exp.Case):
        yield from (one.args["true"] for one in node.args["ifs"])
        if node.args.get("default") is not None:
            yield node.args["default"]
    elif isinstance(node, exp.If):
        yield node.args["true"]
        if node.args.get("false") is not None:
            yield node.args["false"]
    else:
        yield from (one for one in node.iter_expressions() if not isinstance(one, exp.Query))


def _is_known_type(type_: pa.DataType) -> bool:
    if pt.is_timestamp(type_):
        return bool(type_.unit == "us")
    whole = pt.is_signed_integer(type_) or pt.is_float64(type_) or pt.is_boolean(type_)
    return bool(
        whole or pt.is_decimal128(type_) or pt.is_string(type_) or pt.is_large_string(type_) or pt.is_date32(type_)
    )


def _kind(type_: pa.DataType) -> str:
    """Types that compare with each other."""
    if pt.is_timestamp(type_) and type_.tz is not None:
        return "instant"
    if pt.is_date(type_) or pt.is_timestamp(type_):
        return "time"
    if pt.is_boolean(type_):
        return "truth"
    return "text" if is_text(type_) else "number"


def _has_odd_clauses(node: exp.Expr) -> bool:
    """Whether a clause has words beside those that any SQL has."""
    from sqlglot import exp

    odd = {
        exp.Group: ("all", "totals", "cube", "rollup", "grouping_sets"),
        exp.Join: ("method", "match_condition"),
        exp.Distinct: ("on",),
        exp.Min: ("expressions", "count"),
        exp.Max: ("expressions", "count"),
        exp.With: ("recursive",),
        exp.Table: ("sample", "pivots", "when", "version", "ordinality", "joins"),
        exp.Limit: ("limit_options",),
        exp.Window: ("spec", "alias", "over_alias"),
        exp.Union: ("by_name", "on", "side", "kind"),
        exp.Star: ("except_", "replace", "rename"),
        exp.Select: ("kind", "hint", "sample", "qualify", "windows", "laterals", "pivots"),
    }
    for kind, words in odd.items():
        if isinstance(node, kind) and any(node.args.get(word) for word in words):
            return True
    if isinstance(node, exp.Join):
        return str(node.args.get("kind") or "") not in ("", "INNER", "OUTER", "CROSS") or bool(node.args.get("using"))
    return False
