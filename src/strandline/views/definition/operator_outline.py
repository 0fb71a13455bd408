"""A definition as lines that a person reads: its operators, how a change goes through each, and what they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strandline.views.definition.clock import passage
from strandline.views.definition.definition import CLOCK, Operator, ViewDefinition
from strandline.views.definition.set_operations import UNION_ALL

if TYPE_CHECKING:
    from sqlglot import exp

_STEP = "  "
_NAMED = ("GROUP BY", "WINDOW")
"""The operators of which it is said what they compute."""


def outline(definition: ViewDefinition) -> list[str]:
    """The tree of a view, the result first; every line below another is an input of it."""
    if definition.regenerated:
        return [f"computed anew each time: {definition.regenerated}"]
    return list(_core_lines(definition))


def _core_lines(core: ViewDefinition) -> Iterator[str]:
    shown = ", ".join(_text(_meaning(core, output.expression)) for output in core.outputs)
    where = "" if core.condition is None else f" where {_text(_meaning(core, core.condition))}"
    only = core.operators.get(core.occurrences[0].relation) if len(core.occurrences) == 1 else None
    if only is not None and not where:
        yield from _operator_lines(only)
        return
    tables = [one.relation for one in core.occurrences if one.relation not in core.operators]
    names = " join ".join(name for name in tables if name != CLOCK)
    joined = f" from {names}" if names else ""
    clock = f"; {_by_clock(core)}" if CLOCK in tables else ""
    yield f"select {shown}{joined}{where}{clock}"
    for one in core.occurrences:
        if one.relation in core.operators:
            yield from (f"{_STEP}{line}" for line in _operator_lines(core.operators[one.relation]))


def _by_clock(core: ViewDefinition) -> str:
    """How the rows are found that the clock moves."""
    found = [passage(core, one.alias, ("", "")) for one in core.occurrences if one.relation == CLOCK]
    computed = {one.alias for one in core.occurrences if one.relation in core.operators}
    if not all(one is not None and one.pages and one.alias not in computed for one in found):
        return "where the clock moves all rows are looked through"
    columns = dict.fromkeys(name for one in found if one is not None for name in one.pages)
    return f"rows that the clock passes are found by the order of {', '.join(columns)}"


def _operator_lines(operator: Operator) -> Iterator[str]:
    yield f"{operator.kind}{_computes(operator)}: {_way(operator)}"
    for core in operator.inputs:
        yield from (f"{_STEP}{line}" for line in _core_lines(core))


def _way(operator: Operator) -> str:
    """How a change of an input becomes one of the result."""
    if operator.kind == UNION_ALL:
        return "a change of an input is a change of the result"
    core, names = operator.inputs[0], operator.parts[0]
    expressions = {output.name: output.expression for output in core.outputs}
    parts = ", ".join(_text(_meaning(core, expressions[name])) for name in names)
    if operator.accumulators is not None:
        return f"a change is added to what is known of its {parts}" if parts else "a change is added to what is known"
    again = f"computed again where {parts} changes" if parts else "computed again as a whole"
    if not operator.linear:
        return again
    return f"for each row of the first input by itself; {again.replace('changes', 'of the second changes')}"


def _computes(operator: Operator) -> str:
    passed = {name for core in operator.inputs for name in core.schema.names}
    names = [name for name in operator.schema.names if name not in passed]
    return f" {', '.join(_text(_column(operator, name)) for name in names)}" if operator.kind in _NAMED else ""


def _meaning(core: ViewDefinition, tree: exp.Expr) -> exp.Expr:
    """An expression of a definition in terms of the relations of the store."""
    from sqlglot import exp

    relations = {one.alias: one.relation for one in core.occurrences}

    single = len([one for one in relations.values() if one != CLOCK]) == 1

    def meant(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if relations[node.table] == CLOCK:
            return exp.CurrentTimestamp()
        operator = core.operators.get(relations[node.table])
        if operator is not None:
            return _column(operator, node.name)
        return exp.column(node.name, table=None if single else node.table.split(".")[-1])

    return tree.transform(meant)


def _column(operator: Operator, name: str) -> exp.Expr:
    """What a column of an operator's result is."""
    from sqlglot import exp, parse_one

    outputs = {
        (f"i{place}", output.name): (core, output.expression)
        for place, core in enumerate(operator.inputs)
        for output in core.outputs
    }
    if operator.kind in ("EXISTS", "IN", "SUBQUERY") and name == operator.schema.names[-1]:
        return exp.Anonymous(this=operator.kind, expressions=[exp.column("…")])
    query: Any = parse_one(operator.sql, dialect="duckdb")
    aliased = [one for one in query.selects if isinstance(one, exp.Alias) and one.alias == name]
    given: exp.Expr | None = aliased[0].this if aliased else None
    if given is None:
        place = next((key for key in outputs if key[1] == name), None)
        return exp.column(name) if place is None else _meaning(*outputs[place])

    def meant(node: exp.Expr) -> exp.Expr:
        known = outputs.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        return node if known is None else _meaning(*known)

    return given.transform(meant)


def _text(tree: exp.Expr) -> str:
    from sqlglot import exp

    def as_written(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Paren) and isinstance(node.this, exp.Div) and isinstance(node.this.this, exp.Cast):
            summed = node.this.this.find(exp.Sum)  # an average
            return node if summed is None else exp.Avg(this=summed.this.copy())
        if not isinstance(node, exp.Anonymous) or node.name.lower() != "list_aggregate":
            return node
        values = node.expressions[0].find(exp.ArrayAgg)  # a sum over sorted values, as it was before
        return exp.Anonymous(this=node.expressions[1].name, expressions=[values.this.copy()])

    return tree.transform(as_written).sql(dialect="duckdb").replace('"…"', "…")
