"""Aggregates and windows as functions of a multiset: what they give must not depend on the order in which rows come.

Rows have no order here, and a part that is computed again must give what it gave before. So sums of floating point are
taken over sorted values, ties in an ORDER BY are broken by everything that can tell rows apart, and `any_value` is the
least one. What can't be made so is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.views.definition.scope import NotMaintainable, shown_clause

if TYPE_CHECKING:
    from sqlglot import exp

STEADY = frozenset(
    [
        "count",
        "count_if",
        "sum",
        "avg",
        "min",
        "max",
        "logical_and",
        "logical_or",
        "any_value",
        "variance",
        "variance_pop",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "median",
        "percentile_cont",
        "percentile_disc",
        "group_concat",
        "array_agg",
        "bitwise_and_agg",
        "bitwise_or_agg",
        "bitwise_xor_agg",
    ]
)
"""Aggregates that follow from the values, or can be made so, as sqlglot calls them."""
_BY_SORTED = {
    "sum": "sum",
    "avg": "avg",
    "variance": "var_samp",
    "variance_pop": "var_pop",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
}
_OF_RANKS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
_OF_PLACES = frozenset(("row_number", "ntile", "lag", "lead", "first_value", "last_value", "nth_value"))
_OVER_FRAMES = frozenset(("count", "count_if", "sum", "avg", "min", "max", "logical_and", "logical_or"))


def aggregates_in(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of a tree, each with its FILTER; the function of a window is none, what it is given may be one."""
    from sqlglot import exp

    if isinstance(tree, (exp.Filter, exp.AggFunc)) or _is_any_value(tree):
        yield tree
        return
    if isinstance(tree, exp.Query):
        return
    called = tree.this if isinstance(tree, exp.Window) else None
    for child in tree.iter_expressions():
        if child is called:
            for argument in child.iter_expressions():
                yield from aggregates_in(argument)
        else:
            yield from aggregates_in(child)


def _is_any_value(tree: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(tree, exp.IgnoreNulls) and isinstance(tree.this, exp.AnyValue)


def windows_in(tree: exp.Expr) -> list[exp.Expr]:
    """The windows of a tree."""
    from sqlglot import exp

    return list(tree.find_all(exp.Window))


def steady_aggregate(node: exp.Expr, type_of: Callable[[exp.Expr], pa.DataType]) -> exp.Expr:
    """An aggregate in a form whose result depends on the values alone; `type_of` tells the type of an argument."""
    from sqlglot import exp

    condition = node.args["expression"] if isinstance(node, exp.Filter) else None
    called = node.this if isinstance(node, exp.Filter) else node
    called = called.this if _is_any_value(called) else called
    name = called.sql_name().lower()
    if name not in STEADY:
        raise NotMaintainable(f"{name}() may depend on the order of rows", shown_clause(node))
    if name in ("group_concat", "array_agg"):
        called = _in_order(called)
    elif name == "any_value":
        called = exp.Min(this=called.this.copy())
    elif name in _BY_SORTED and (name not in ("sum", "avg") or pt.is_floating(type_of(_argument(called)))):
        values: exp.Expr = exp.ArrayAgg(this=called.this.copy())
        values = values if condition is None else exp.Filter(this=values, expression=condition.copy())
        ordered = exp.Anonymous(this="list_sort", expressions=[values])
        return exp.Anonymous(this="list_aggregate", expressions=[ordered, exp.Literal.string(_BY_SORTED[name])])
    called = called.copy()
    return called if condition is None else exp.Filter(this=called, expression=condition.copy())


def _argument(called: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    inner = called.this
    return inner.expressions[0] if isinstance(inner, exp.Distinct) else inner


def _in_order(called: exp.Expr) -> exp.Expr:
    """A list or a text made of values, in an order that leaves no choice."""
    from sqlglot import exp

    called = called.copy()
    order = called.find(exp.Order)
    if order is None:
        raise NotMaintainable("a list without ORDER BY depends on the order of rows", shown_clause(called))
    value = order.this
    if not isinstance(value, exp.Distinct):
        order.append("expressions", exp.Ordered(this=value.copy()))
    return called


def steady_window(node: exp.Expr, columns: Sequence[exp.Expr], type_of: Callable[[exp.Expr], pa.DataType]) -> exp.Expr:
    """A window in a form whose result depends on the rows alone; `columns` are all that tells them apart."""
    from sqlglot import exp

    node = node.copy()
    called = node.this
    name = called.sql_name().lower()
    if name not in _OF_RANKS | _OF_PLACES | _OVER_FRAMES or node.args.get("alias"):
        raise NotMaintainable(f"{name}() over a window may depend on the order of rows", shown_clause(node))
    if name in ("sum", "avg") and pt.is_floating(type_of(called.this)):
        raise NotMaintainable("a sum of floating point over a window depends on the order of rows", shown_clause(node))
    spec = node.args.get("spec")
    by_rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
    order = node.args.get("order")
    if name in _OF_PLACES or by_rows:
        order = order or exp.Order(expressions=[])
        for column in columns:
            order.append("expressions", exp.Ordered(this=column.copy()))
        node.set("order", order)
    return node
