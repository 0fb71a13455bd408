"""The clock in a view: a relation of one row, which changes whenever time passes.

`now()`, `current_date` and their like are followed in comparisons: `at > now() - INTERVAL 7 DAY`. Each joins an
occurrence of `CLOCK` of its own, so that a view changes by the clock as it does by any other relation, comparison by
comparison, and only by rows for which that comparison turns out otherwise: `ClockPassage` finds them. Where one side is
of rows and the other one of the clock, these are rows whose side lies between the two values of the clock's side (both
inclusive), whatever the comparison; where their side follows the order of a column, bounds of pages tell where.

All instants are in UTC: so is what `current_date` is, and what an instant without a zone means.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.values import Condition
from strandline.views.definition.clauses import NotMaintainable, shown_clause
from strandline.views.definition.definition import (
    CLOCK,
    Occurrence,
    OutputColumn,
    Shape,
    ViewDefinition,
    sql_text,
    unqualified,
)
from strandline.views.definition.scope import NameScope, column

if TYPE_CHECKING:
    from sqlglot import exp

NOW = "now"
_INSTANT = pa.timestamp("us", "UTC")
CLOCK_SHAPE = Shape(pa.schema([pa.field(NOW, _INSTANT, nullable=False)]))
LEAST, GREATEST = "least", "greatest"
_FUNCTIONS = ("now", "transaction_timestamp", "get_current_timestamp")


def instant_at(seconds: float) -> str:
    """A time in seconds since 1970 as the text by which instants are known."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="microseconds")


def clock_rows(instant: str) -> pa.Table:
    """The clock as a relation, at an instant."""
    return pa.table({NOW: pa.array([dt.datetime.fromisoformat(instant)], _INSTANT)})


def reads_clock(tree: exp.Expr) -> bool:
    """Whether an expression calls the clock, as far as it can be followed."""
    return any(_is_clock(node) for node in tree.walk())


def _is_clock(node: exp.Expr) -> bool:
    from sqlglot import exp

    if isinstance(node, (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)):
        return node.this is None
    return isinstance(node, exp.Anonymous) and node.name.lower() in _FUNCTIONS and not node.expressions


def _at(node: exp.Expr, alias: str) -> exp.Expr:
    """What a call of the clock gives, as an expression of an occurrence of the clock."""
    from sqlglot import exp

    if not _is_clock(node):
        return node
    now = column(alias, NOW)
    if isinstance(node, exp.CurrentDate):
        return exp.cast(now, "DATE")
    return exp.cast(now, "TIMESTAMP") if isinstance(node, exp.Localtimestamp) else now


def _comparisons() -> tuple[type[exp.Expr], ...]:
    """The comparisons that can be followed."""
    from sqlglot import exp

    return (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)


def _sides(node: exp.Expr) -> list[exp.Expr]:
    """What a comparison compares; of BETWEEN and IN the first with each of the others."""
    from sqlglot import exp

    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    return [node.this, *node.expressions] if isinstance(node, exp.In) else [node.this, node.expression]


def _clock_comparisons(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The comparisons of a tree that read the clock, the innermost ones."""
    from sqlglot import exp

    reading = [node for node in tree.find_all(*_comparisons()) if reads_clock(node) and not node.find(exp.Query)]
    outer = {id(node.find_ancestor(*_comparisons())) for node in reading}
    yield from (node for node in reading if id(node) not in outer)


def joined_with_clocks(
    scope: NameScope, outputs: Sequence[OutputColumn]
) -> tuple[NameScope, list[exp.Expr], list[OutputColumn]]:
    """A scope with an occurrence of the clock for each comparison with it, its conditions, and the outputs."""
    aliases: dict[str, str] = {}
    conditions = [_over_clocks(tree, aliases) for tree in scope.conditions]
    outputs = [replace(one, expression=_over_clocks(one.expression, aliases)) for one in outputs]
    for tree in (*conditions, *(one.expression for one in outputs)):
        if reads_clock(tree):
            why = "the clock can be followed in comparisons only, as in at > now() - INTERVAL 7 DAY"
            raise NotMaintainable(why, shown_clause(tree))
    clocks = tuple(Occurrence(alias, CLOCK) for alias in aliases.values())
    shapes = {**scope.shapes, **{one.alias: CLOCK_SHAPE for one in clocks}}
    return replace(scope, occurrences=(*scope.occurrences, *clocks), shapes=shapes), conditions, outputs


def _over_clocks(tree: exp.Expr, aliases: dict[str, str]) -> exp.Expr:
    """A tree whose comparisons with the clock read occurrences of it, the same ones the same occurrence."""
    if not reads_clock(tree):
        return tree
    tree = tree.copy()
    followed = {id(node) for node in _clock_comparisons(tree)}

    def over(node: exp.Expr) -> exp.Expr:
        if id(node) not in followed:
            return node
        alias = aliases.setdefault(sql_text(node), f"strandline clock {len(aliases)}")
        return node.transform(_at, alias)

    return tree.transform(over, copy=False)


def at_instants(tree: exp.Expr, instants: Mapping[str, str]) -> exp.Expr:
    """A tree with occurrences of the clock, by alias, replaced by instants."""
    from sqlglot import exp

    def fixed(node: exp.Expr) -> exp.Expr:
        instant = instants.get(node.table) if isinstance(node, exp.Column) else None
        return node if instant is None else exp.cast(exp.Literal.string(instant), "TIMESTAMPTZ")

    return tree.transform(fixed)


@dataclass(frozen=True)
class ClockPassage:
    """Those rows of an occurrence for which a comparison with the clock turns out otherwise at another instant.

    `rows` is true for them. `pages` leads from columns to conditions on their bounds on a page (`LEAST` and `GREATEST`,
    inclusive), of which one is true where it may hold any; empty where no order on a column tells.
    """

    alias: str
    rows: Condition
    pages: Mapping[str, Condition] = field(default_factory=dict)


def passage(definition: ViewDefinition, clock: str, instants: tuple[str, str]) -> ClockPassage | None:
    """The rows for which the comparison that an occurrence of the clock (its alias) is in turns out otherwise.

    None where it compares no columns, or those of several occurrences: then all rows may.
    """
    from sqlglot import exp

    trees = [*definition.conjuncts(), *(one.expression for one in definition.outputs)]
    mentioned = (one.find_ancestor(*_comparisons()) for one in _columns(trees) if one.table == clock)
    node = next((one for one in mentioned if one is not None), None)
    read = [] if node is None else [one for one in _columns([node]) if one.table != clock]
    if node is None or len({one.table for one in read}) != 1:
        return None
    then, now = (at_instants(node, {clock: instant}) for instant in instants)
    differs = exp.NullSafeNEQ(this=exp.Paren(this=then), expression=exp.Paren(this=now))
    rows = Condition(unqualified(differs), tuple(sorted({one.name for one in read})))
    pages: dict[str, list[str]] = {}
    for side, moving in _pairs(node, clock):
        names = {one.name for one in _columns([side])}
        apart = all((one.table == clock) is (tree is moving) for tree in (side, moving) for one in _columns([tree]))
        if not apart or len(names) != 1 or not _keeps_order(side):
            return ClockPassage(read[0].table, rows)
        ends = [sql_text(at_instants(moving, {clock: instant})) for instant in instants]
        pages.setdefault(names.pop(), []).append(_may_lie_between(side, ends))
    tests = {name: Condition(" OR ".join(each), (LEAST, GREATEST)) for name, each in pages.items()}
    return ClockPassage(read[0].table, rows, tests)


def _pairs(node: exp.Expr, clock: str) -> list[tuple[exp.Expr, exp.Expr]]:
    """The sides of a comparison that the clock may pass, each with the side that has the clock."""
    from sqlglot import exp

    def moves(tree: exp.Expr) -> bool:
        return any(one.table == clock for one in _columns([tree]))

    first, *others = (side.unnest() for side in _sides(node))
    if isinstance(first, exp.Sub) and len(others) == 1 and _is_length(others[0]):
        past, gone = first.this.unnest(), first.expression.unnest()
        if moves(past) != moves(gone):  # now() - at < length, or at - now() < length
            kind = exp.Sub if moves(past) else exp.Add
            side, moving = (gone, past) if moves(past) else (past, gone)
            return [(side, kind(this=moving.copy(), expression=others[0].copy()))]
    if moves(first):
        return [(other, first) for other in others]
    return [(first, other) for other in others if moves(other)]


def _is_length(tree: exp.Expr) -> bool:
    """Whether an expression is a constant length of time, without months, which have none, or a number of days."""
    from sqlglot import exp

    if isinstance(tree, exp.Interval):
        unit = str(tree.args.get("unit") or "").upper().removesuffix("S")
        return unit in ("WEEK", "DAY", "HOUR", "MINUTE", "SECOND") and isinstance(tree.this, exp.Literal)
    return isinstance(tree, exp.Literal) and tree.is_int


def _may_lie_between(side: exp.Expr, ends: Sequence[str]) -> str:
    """Whether some value of a side lies between two ends, given the bounds of its column."""
    low, high = (f"{name}({ends[0]}, {ends[1]})" for name in ("least", "greatest"))
    least, greatest = (sql_text(_with_column(side, name)) for name in (LEAST, GREATEST))
    return f"({ends[0]} IS NULL OR {ends[1]} IS NULL OR ({greatest} >= {low} AND {least} <= {high}))"


def _columns(trees: Sequence[exp.Expr]) -> list[exp.Column]:
    from sqlglot import exp

    return [one for tree in trees for one in tree.find_all(exp.Column)]


def _with_column(tree: exp.Expr, name: str) -> exp.Expr:
    from sqlglot import exp

    bare = exp.column(exp.to_identifier(name, quoted=True))
    return tree.transform(lambda node: bare.copy() if isinstance(node, exp.Column) else node)


def _keeps_order(tree: exp.Expr) -> bool:
    """Whether an expression of one column never falls where the column rises."""
    from sqlglot import exp

    tree = tree.unnest()
    if isinstance(tree, exp.Column):
        return True
    if isinstance(tree, (exp.Add, exp.Sub)):
        return tree.expression.find(exp.Column) is None and _keeps_order(tree.this)
    if isinstance(tree, exp.Cast):
        named = tree.to.this.value
        return (named == "DATE" or named.startswith("TIMESTAMP")) and _keeps_order(tree.this)
    if isinstance(tree, exp.TimestampTrunc):
        return _keeps_order(tree.this)
    return False
