"""Views over views: a view in FROM is replaced by what it is made of.

Select, project and join of selects, projects and joins is again one of them. So a view over views is kept by the same
deltas over the same tables as any other, and no view has to be computed for the sake of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.views.definition import Definition, Occurrence, Output
from strandline.views.scope import column

if TYPE_CHECKING:
    from sqlglot import exp


def flattened(definition: Definition, inner: Mapping[str, Definition]) -> Definition:
    """The definition over tables and what-ifs alone; `inner` holds the flat definitions of views by name."""
    from sqlglot import exp

    if not any(one.relation in inner for one in definition.occurrences):
        return definition
    occurrences: list[Occurrence] = []
    conditions: list[exp.Expr] = []
    meanings: dict[tuple[str, str], exp.Expr] = {}
    for one in definition.occurrences:
        found = inner.get(one.relation)
        if found is None:
            occurrences.append(one)
            continue
        below = {each.alias: f"{one.alias}.{each.alias}" for each in found.occurrences}
        occurrences += [Occurrence(below[each.alias], each.relation) for each in found.occurrences]
        conditions += [] if found.condition is None else [_renamed(found.condition, below)]
        meanings |= {(one.alias, output.name): _renamed(output.expression, below) for output in found.outputs}
    conditions += [] if definition.condition is None else [_substituted(definition.condition, meanings)]
    condition = exp.and_(*conditions, copy=False) if conditions else None
    outputs = tuple(Output(one.name, _substituted(one.expression, meanings)) for one in definition.outputs)
    return replace(definition, occurrences=tuple(occurrences), condition=condition, outputs=outputs)


def _renamed(tree: exp.Expr, aliases: Mapping[str, str]) -> exp.Expr:
    from sqlglot import exp

    return tree.transform(lambda node: column(aliases[node.table], node.name) if isinstance(node, exp.Column) else node)


def _substituted(tree: exp.Expr, meanings: Mapping[tuple[str, str], exp.Expr]) -> exp.Expr:
    from sqlglot import exp

    def meaning(node: exp.Expr) -> exp.Expr:
        found = meanings.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        if found is None:
            return node
        # Parentheses keep `a.total * 2` what it was where total is `x + y`.
        return found.copy() if isinstance(found, exp.Column) else exp.Paren(this=found.copy())

    return tree.transform(meaning)
