"""Aggregates and windows as functions of a multiset: what they give must not depend on the order in which rows come.

Rows have no order here, and a part that is computed again must give what it gave before. So sums of floating point are
taken over sorted values, ties in an ORDER BY are broken by everything that can tell rows apart, and `any_value` is the
least one. What can't be made so is refused.

`grouped` and `windowed` are the operators of GROUP BY and of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.values import is_aggregate, no_rows, parse_written
from strandline.views.definition.accumulators import Summand, accumulators_of, average, is_summed_exactly
from strandline.views.definition.clauses import NotMaintainable, shown_clause
from strandline.views.definition.definition import NO_COLUMNS, Operator, sql_text
from strandline.views.definition.query_rows import (
    AGGREGATE,
    WINDOW,
    LaterClauses,
    QueryRows,
    columns_in,
    key_of,
    made_operator,
    read_by,
)
from strandline.views.definition.regenerated import computed
from strandline.views.definition.scope import column

if TYPE_CHECKING:
    from sqlglot import exp

_EXACT = ("count", "count_if", "min", "max", "logical_and", "logical_or", "any_value", "median", "percentile_cont")
_OF_BITS = ("bitwise_and_agg", "bitwise_or_agg", "bitwise_xor_agg")
_LISTS = ("group_concat", "array_agg")
_BY_SORTED = {
    "sum": "sum",
    "avg": "avg",
    "variance": "var_samp",
    "variance_pop": "var_pop",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
}
STEADY = frozenset((*_EXACT, *_OF_BITS, *_LISTS, *_BY_SORTED))
"""Aggregates that follow from the values, or can be made so, as sqlglot calls them."""
_OF_RANKS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
_OF_PLACES = frozenset(("row_number", "ntile", "lag", "lead", "first_value", "last_value", "nth_value"))
_OF_FRAMES = frozenset(("first_value", "last_value", "nth_value"))
_OVER_FRAMES = frozenset(("count", "count_if", "sum", "avg", "min", "max", "logical_and", "logical_or"))


def aggregates_in(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of a tree, each with its FILTER; the function of a window is none, what it is given may be one."""
    from sqlglot import exp

    if isinstance(tree, (exp.Filter, exp.AggFunc)) or _is_any_value(tree):
        yield tree
        return
    if isinstance(tree, exp.Query):
        return
    children = list(tree.iter_expressions())
    if isinstance(tree, exp.Window):
        called = _called(tree.this)
        filters = [] if called is tree.this else [tree.this.expression]
        children = [*called.iter_expressions(), *filters, *(child for child in children if child is not tree.this)]
    for child in children:
        yield from aggregates_in(child)


def _is_any_value(tree: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(tree, exp.IgnoreNulls) and isinstance(tree.this, exp.AnyValue)


def check_aggregates(trees: Iterable[exp.Expr]) -> None:
    """Refuses aggregates that only DuckDB knows."""
    from sqlglot import exp

    for node in (node for tree in trees for node in tree.find_all(exp.Anonymous)):
        if is_aggregate(node.name):
            raise NotMaintainable(f"{node.name.lower()}() may depend on the order of rows", shown_clause(node))


def with_one_group(query: exp.Select) -> exp.Select:
    """The query with an aggregate in its HAVING where that clause alone, or an aggregate in ORDER BY alone, makes all
    rows one group, even if there are none.
    """
    from sqlglot import exp

    having, order = query.args.get("having"), query.args.get("order")
    sorted_by = any(True for _ in aggregates_in(order)) if order is not None else False
    if query.args.get("group") is not None or not (having is not None or sorted_by):
        return query
    stated = [] if having is None else [having.this]
    if not any(True for tree in (*query.expressions, *stated) for _ in aggregates_in(tree)):
        always = exp.GTE(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        query.set("having", exp.Having(this=exp.and_(*stated, always)))
    return query


def windows_in(tree: exp.Expr) -> list[exp.Expr]:
    """The windows of a tree."""
    from sqlglot import exp

    return list(tree.find_all(exp.Window))


def steady_aggregate(node: exp.Expr, type_of: Callable[[exp.Expr], pa.DataType]) -> exp.Expr:
    """An aggregate in a form whose result depends on the values alone; `type_of` tells the type of an argument."""
    from sqlglot import exp

    condition = node.args["expression"] if isinstance(node, exp.Filter) else None
    called: Any = _called(node)
    called = called.this if _is_any_value(called) else called
    name = called.sql_name().lower()
    if name not in STEADY:
        raise NotMaintainable(f"{name}() may depend on the order of rows", shown_clause(node))
    if name in _LISTS:
        called = _in_order(called)
    elif name == "any_value":
        called = exp.Min(this=called.this.copy())
    elif name == "avg" and is_summed_exactly(type_of(_argument(called))):
        return _average(called, condition, type_of(_argument(called)))
    elif name in _BY_SORTED and (name not in ("sum", "avg") or pt.is_floating(type_of(_argument(called)))):
        values: exp.Expr = exp.ArrayAgg(this=called.this.copy())
        values = values if condition is None else exp.Filter(this=values, expression=condition.copy())
        ordered = exp.Anonymous(this="list_sort", expressions=[values])
        return exp.Anonymous(this="list_aggregate", expressions=[ordered, exp.Literal.string(_BY_SORTED[name])])
    steady: exp.Expr = called.copy()
    return steady if condition is None else exp.Filter(this=steady, expression=condition.copy())


def _average(called: exp.Expr, condition: exp.Expr | None, type_: pa.DataType) -> exp.Expr:
    """An average of exact sums, always by the same division."""
    from sqlglot import exp

    parts: list[exp.Expr] = [exp.Sum(this=called.this.copy()), exp.Count(this=called.this.copy())]
    if condition is not None:
        parts = [exp.Filter(this=one, expression=condition.copy()) for one in parts]
    total, count = (one.sql(dialect="duckdb") for one in parts)
    return parse_written(average(total, count, type_))


def _called(node: exp.Expr) -> exp.Expr:
    """The function of an aggregate or a window, without its FILTER."""
    from sqlglot import exp

    called: exp.Expr = node.this if isinstance(node, exp.Filter) else node
    return called


def _argument(called: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    inner: exp.Expr = called.this
    inner = inner.this if isinstance(inner, exp.Order) else inner
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


def steady_window(node: exp.Expr, columns: Sequence[exp.Expr], summed: pa.DataType | None) -> exp.Expr:
    """A window in a form whose result depends on the rows alone; `columns` are all that tells them apart.

    `summed` is the type of what it sums up, if it does.
    """

    node = node.copy()
    called: Any = _called(node.this)
    name = called.sql_name().lower()
    if name not in _OF_RANKS | _OF_PLACES | _OVER_FRAMES or node.args.get("alias"):
        raise NotMaintainable(f"{name}() over a window may depend on the order of rows", shown_clause(node))
    if summed is not None and pt.is_floating(summed):
        raise NotMaintainable("a sum of floating point over a window depends on the order of rows", shown_clause(node))
    if name in _OF_RANKS:
        return node
    spec = node.args.get("spec")
    by_rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
    if name in _OF_FRAMES and not by_rows:
        _check_frame(node, name)
    if name in _OF_PLACES or by_rows:
        _break_ties(node, columns)
    return node


def _check_frame(node: exp.Expr, name: str) -> None:
    """Refuses a frame whose ends are peers of rows: which of them comes first is chance."""
    spec, order = node.args.get("spec"), node.args.get("order")
    whole = spec is None and order is None
    ends = () if spec is None else (str(spec.args.get("start")).upper(), str(spec.args.get("start_side")).upper())
    from_first = name == "first_value" and (spec is None or ends == ("UNBOUNDED", "PRECEDING"))
    if not whole and not from_first:
        raise NotMaintainable(f"{name}() over a frame of peers depends on the order of rows", shown_clause(node))


def _break_ties(node: exp.Expr, columns: Sequence[exp.Expr]) -> None:
    """Order the rows of a window so that no two are peers; a frame that was all of them stays so."""
    from sqlglot import exp

    spec, order = node.args.get("spec"), node.args.get("order")
    if spec is not None and spec.args.get("exclude") is not None:
        raise NotMaintainable("EXCLUDE depends on which rows are peers", shown_clause(node))
    if spec is None and order is None:
        ends = {"start": "UNBOUNDED", "start_side": "PRECEDING", "end": "UNBOUNDED", "end_side": "FOLLOWING"}
        node.set("spec", exp.WindowSpec(kind="ROWS", **ends))
    order = order or exp.Order(expressions=[])
    for one in columns:
        order.append("expressions", exp.Ordered(this=one.copy()))
    node.set("order", order)


def grouped(rows: QueryRows, groups: Sequence[exp.Expr], clauses: LaterClauses) -> tuple[QueryRows, LaterClauses]:
    """Groups as the rows, and the clauses in terms of what groups are made by and of aggregates."""
    aggregates = {sql_text(node): node for tree in clauses.trees() for node in aggregates_in(tree)}
    given = rows.input([*groups, *(one for node in aggregates.values() for one in read_by(node))])
    held = {sql_text(tree): given.name(rows.means(tree)) for tree in groups}
    keys = list(dict.fromkeys(held.values()))
    values = {text: f"v{place}" for place, text in enumerate(aggregates)}
    steady = {text: given.over(rows.means(steady_aggregate(node, rows.type))) for text, node in aggregates.items()}
    shown = [*keys, *(f"{sql_text(tree)} AS {values[text]}" for text, tree in steady.items())]
    sql = f"SELECT {', '.join(shown)} FROM i0" + (f" GROUP BY {', '.join(keys)}" if keys else "")
    schema = given.definition.schema
    parts = tuple(keys)
    operator = Operator("GROUP BY", sql, (given.definition,), (parts,), NO_COLUMNS, key_of(schema, parts), parts)
    try:
        operator = made_operator(operator, {name: schema.field(name) for name in keys}, rows.scope.doing)
    except SqlError:
        for text, tree in steady.items():
            _check_type(tree, schema, shown_clause(aggregates[text]), rows.scope.doing)
        raise
    summands = {
        values[text]: Summand.of(given.over(rows.means(_plain_aggregate(node))), _summed_type(node, rows))
        for text, node in aggregates.items()
    }
    operator = replace(operator, accumulators=accumulators_of(keys, summands, no_rows(schema)))
    known = {(AGGREGATE, name): name for name in [*keys, *values.values()]}
    # Subqueries may read the columns that rows are grouped by.
    known |= {(one.table, one.name): held[sql_text(one)] for tree in groups for one in columns_in(tree) if one is tree}
    return rows.after(operator, known), clauses.replaced(held | values, AGGREGATE)


def _check_type(tree: exp.Expr, schema: pa.Schema, clause: str, doing: str) -> None:
    """Refuses an aggregate of a type that it does not take, by its clause."""
    try:
        computed(f"SELECT {sql_text(tree)} FROM i0", {"i0": no_rows(schema)}, doing)
    except SqlError as error:
        raise SqlError(f"{clause}: {error.why}", doing=doing, hint=error.hint) from None


def _plain_aggregate(node: exp.Expr) -> exp.Expr:
    """An aggregate without what says that nulls don't count; `any_value` as the least one."""
    from sqlglot import exp

    called = _called(node)
    called = called.this if _is_any_value(called) else called
    called = exp.Min(this=called.this.copy()) if isinstance(called, exp.AnyValue) else called.copy()
    return exp.Filter(this=called, expression=node.expression.copy()) if isinstance(node, exp.Filter) else called


def _summed_type(node: exp.Expr, rows: QueryRows) -> pa.DataType | None:
    """The type of what an aggregate is given, where changes may be added to it."""
    from sqlglot import exp

    called = _called(_plain_aggregate(node))
    return rows.type(_argument(called)) if isinstance(called, (exp.Sum, exp.Avg, exp.Min, exp.Max)) else None


def windowed(rows: QueryRows, clauses: LaterClauses) -> tuple[QueryRows, LaterClauses]:
    """The rows with the values of windows, those with the same partitions by one operator; the clauses read them."""
    by_partition: dict[tuple[str, ...], dict[str, exp.Expr]] = {}
    for node in (node for tree in clauses.trees() for node in windows_in(tree)):
        partition = tuple(sql_text(one) for one in node.args.get("partition_by") or ())
        by_partition.setdefault(partition, {})[sql_text(node)] = node
    number = 0
    for nodes in by_partition.values():
        names = {text: f"w{number + place}" for place, text in enumerate(nodes)}
        number += len(names)
        rows = _with_windows(rows, clauses, nodes, names)
        clauses = clauses.replaced(names, WINDOW)
    return rows, clauses


def _with_windows(
    rows: QueryRows, clauses: LaterClauses, nodes: dict[str, exp.Expr], names: dict[str, str]
) -> QueryRows:
    partition = next(iter(nodes.values())).args.get("partition_by") or []
    needed = rows.needed(clauses.trees())
    given = rows.input([*needed, *partition], keyed=True)
    columns = [column("i0", name) for name in given.definition.schema.names]
    shown = []
    for text, node in nodes.items():
        called: Any = _called(node.this)
        type_ = rows.type(_argument(called)) if called.sql_name() in ("SUM", "AVG") else None
        try:
            tree = steady_window(given.over(rows.means(node)), columns, type_)
        except NotMaintainable as why:
            raise NotMaintainable(why.reason, shown_clause(node)) from None
        shown.append(f"{sql_text(tree)} AS {names[text]}")
    parts = tuple(dict.fromkeys(given.name(rows.means(one)) for one in partition))
    sql = f"SELECT i0.*, {', '.join(shown)} FROM i0"
    operator = Operator("WINDOW", sql, (given.definition,), (parts,), NO_COLUMNS, given.definition.key, parts)
    operator = made_operator(operator, {one.name: one for one in given.definition.schema}, rows.scope.doing)
    meanings = {(one.table, one.name): given.name(rows.means(one)) for one in needed}
    return rows.after(operator, meanings | {(WINDOW, name): name for name in names.values()})
