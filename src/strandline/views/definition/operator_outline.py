"""A definition as lines that a person reads: its operators, how a change goes through each, and what they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.values import parse_written
from strandline.views.definition.clock import passage
from strandline.views.definition.definition import CLOCK, Operator, ViewDefinition
from strandline.views.definition.set_operations import UNION_ALL

if TYPE_CHECKING:
    from sqlglot import exp

_STEP = "  "
_NAMED = ("GROUP BY", "WINDOW")
"""The operators of which it is said what they compute."""


@dataclass
class DeltaWork:
    """What a change took of an operator or a relation: changes of its inputs, rows read and how, its own changes."""

    came: int = 0
    read: int = 0
    gave: int = 0
    how: list[str] = field(default_factory=list)


Work = Mapping[str, DeltaWork]
"""By the names of operators and relations; that of the view without a name."""


def outline(
    definition: ViewDefinition, keys: Mapping[str, Sequence[str]] | None = None, work: Work | None = None
) -> list[str]:
    """The tree of a view, the result first; every line below another is an input of it.

    Of a view that is kept at commits, which is given the keys of its relations, it says for what all rows are read.
    With the work of one change it says for each operator and relation what that took.
    """
    if definition.regenerated:
        return [f"computed anew each time: {definition.regenerated}"]
    lines = [*_core_lines(definition, work or {}), *([] if keys is None else _looked_through(definition, keys))]
    return lines if work is None else [*lines, *_done(definition, work)]


def computed_whole(definition: ViewDefinition) -> list[str]:
    """The operators that a change of what they read computes again over all their rows: they have no parts, and nothing
    can be added to what they were.
    """
    wholly = [
        f"{one.kind}{_computes(one)}"
        for one in definition.every_operator().values()
        if one.inputs and one.kind != UNION_ALL and one.accumulators is None and not one.parts[0]
    ]
    return list(dict.fromkeys(wholly))


def _done(definition: ViewDefinition, work: Work) -> Iterator[str]:
    """What a change took of each relation, and what it is of the view."""
    yield f"the view: {work[''].gave} changed"
    for relation in dict.fromkeys(relation for relation, _ in definition.reads()):
        if relation in work:
            yield f"{relation}: {work[relation].gave} changed, {work[relation].read} read"


def _looked_through(definition: ViewDefinition, keys: Mapping[str, Sequence[str]]) -> list[str]:
    """The operators to which changes can't be added, and to whose parts no key leads."""
    lines = []
    for operator in definition.every_operator().values():
        led = any(_is_led_to(core, names, keys) for core, names in zip(operator.inputs, operator.parts, strict=True))
        changes = operator.inputs and operator.kind != UNION_ALL
        if changes and operator.accumulators is None and not led:
            read = dict.fromkeys(relation for core in operator.inputs for relation in core.relations)
            lines.append(f"at every commit that changes it all of {', '.join(read)} is read for {operator.kind}")
    return list(dict.fromkeys(lines))


def _is_led_to(core: ViewDefinition, parts: Sequence[str], keys: Mapping[str, Sequence[str]]) -> bool:
    """Whether what makes the parts of an operator begins the key of a table below it."""
    leading = {(one.alias, *keys.get(one.relation, ())[:1]) for one in core.occurrences}
    return any(output.source in leading for output in core.outputs if output.name in parts)


def _core_lines(core: ViewDefinition, work: Work) -> Iterator[str]:
    shown = ", ".join(_text(_meaning(core, output.expression)) for output in core.outputs)
    where = "" if core.condition is None else f" where {_text(_meaning(core, core.condition))}"
    only = core.operators.get(core.occurrences[0].relation) if len(core.occurrences) == 1 else None
    if only is not None and not where:
        yield from _operator_lines(only, work)
        return
    tables = [one.relation for one in core.occurrences if one.relation not in core.operators]
    names = " join ".join(name for name in tables if name != CLOCK)
    joined = f" from {names}" if names else ""
    clock = f"; {_by_clock(core)}" if CLOCK in tables else ""
    yield f"select {shown}{joined}{where}{clock}"
    for one in core.occurrences:
        if one.relation in core.operators:
            yield from (f"{_STEP}{line}" for line in _operator_lines(core.operators[one.relation], work))


def _by_clock(core: ViewDefinition) -> str:
    """How the rows are found that the clock moves."""
    passages = [passage(core, one.alias, ("", "")) for one in core.occurrences if one.relation == CLOCK]
    computed = {one.alias for one in core.occurrences if one.relation in core.operators}
    if not all(one is not None and one.pages and one.alias not in computed for one in passages):
        return "where the clock moves all rows are looked through"
    columns = dict.fromkeys(name for one in passages if one is not None for name in one.pages)
    return f"rows that the clock passes are found by the order of {', '.join(columns)}"


def _operator_lines(operator: Operator, work: Work) -> Iterator[str]:
    done = work.get(operator.name)
    took = "" if done is None else f" [{'; '.join([f'{done.came} in, {done.gave} out', *done.how])}]"
    yield f"{operator.kind}{_computes(operator)}: {_way(operator)}{took}"
    for core in operator.inputs:
        yield from (f"{_STEP}{line}" for line in _core_lines(core, work))


def _way(operator: Operator) -> str:
    """How a change of an input becomes one of the result."""
    if operator.kind == UNION_ALL:
        return "a change of an input is a change of the result"
    if not operator.inputs:
        return "rows that never change"
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
    names = [name for name in operator.schema.names if name not in passed and operator.kind in _NAMED]
    return f" {', '.join(_text(_column(operator, name)) for name in names)}" if names else ""


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
    from sqlglot import exp

    outputs = {
        (f"i{place}", output.name): (core, output.expression)
        for place, core in enumerate(operator.inputs)
        for output in core.outputs
    }
    if operator.kind in ("EXISTS", "IN", "SUBQUERY") and name == operator.schema.names[-1]:
        return exp.Anonymous(this=operator.kind, expressions=[exp.column("…")])
    query: Any = parse_written(operator.sql)
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
            return node if summed is None else _filtered(summed, exp.Avg(this=summed.this.copy()))
        if not isinstance(node, exp.Anonymous) or node.name.lower() != "list_aggregate":
            return node
        values = node.expressions[0].find(exp.ArrayAgg)  # a sum over sorted values, as it was before
        return _filtered(values, exp.Anonymous(this=node.expressions[1].name, expressions=[values.this.copy()]))

    return tree.transform(as_written).sql(dialect="duckdb").replace('"…"', "…")


def _filtered(called: exp.Expr, shown: exp.Expr) -> exp.Expr:
    """An aggregate as it is shown, with the FILTER of the one that computes it."""
    from sqlglot import exp

    around = called.parent
    return exp.Filter(this=shown, expression=around.expression.copy()) if isinstance(around, exp.Filter) else shown
