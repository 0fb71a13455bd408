"""Whether the outputs of a view hold a key of its result.

A row of the result is told apart by the keys of all its occurrences. A column is *determined* by chosen outputs if it
is one of them, if a term of the condition equates it with a determined column or with a constant, or if the key of its
occurrence is determined, as then the whole row is. So `orders JOIN customers ON orders.customer = customers.id` has
the key of `orders`: an order determines its customer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.types as pt

from strandline.errors import SchemaError
from strandline.tables.keys import check_key_types
from strandline.views.definition import Occurrence, Output, Shape

if TYPE_CHECKING:
    from sqlglot import exp

Column = tuple[str, str]


def result_key(
    occurrences: Sequence[Occurrence],
    shapes: Mapping[str, Shape],
    terms: Iterable[exp.Expr],
    outputs: Sequence[Output],
) -> tuple[str, ...]:
    """The names of outputs that are a key of the result, as few as can be; empty if there is none."""
    if not all(shapes[one.alias].key for one in occurrences):
        return ()
    facts = [*_equalities(terms, shapes)]
    equated = {column for fact in facts for column in fact if column is not None}
    chosen = {output.name: output.source for output in outputs if _fits(output.source, shapes, equated)}
    if not _determines(chosen.values(), facts, occurrences, shapes):
        return ()
    keys = {(one.alias, name) for one in occurrences for name in shapes[one.alias].key}
    # Columns of keys go last, so that a key column is kept where another column would do as well.
    for name in sorted(chosen, key=lambda name: chosen[name] in keys):
        fewer = {other: source for other, source in chosen.items() if other != name}
        if fewer and _determines(fewer.values(), facts, occurrences, shapes):
            chosen = fewer
    return tuple(chosen)


def _determines(
    start: Iterable[Column | None],
    facts: Sequence[tuple[Column, Column | None]],
    occurrences: Sequence[Occurrence],
    shapes: Mapping[str, Shape],
) -> bool:
    known = {column for column in start if column is not None} | {one for one, other in facts if other is None}
    whole: set[str] = set()
    grown = True
    while grown:
        size = len(known)
        for one, other in facts:
            if other is not None and (one in known or other in known):
                known |= {one, other}
        for occurrence in occurrences:
            shape = shapes[occurrence.alias]
            if occurrence.alias not in whole and all((occurrence.alias, name) in known for name in shape.key):
                whole.add(occurrence.alias)
                known |= {(occurrence.alias, name) for name in shape.schema.names}
        grown = len(known) > size
    return len(whole) == len(occurrences)


def _equalities(terms: Iterable[exp.Expr], shapes: Mapping[str, Shape]) -> Iterator[tuple[Column, Column | None]]:
    """Pairs of columns that are equal in every row of the result; None stands for a constant."""
    from sqlglot import exp

    for term in terms:
        if not isinstance(term, exp.EQ):
            continue
        left, right = term.this.unnest(), term.expression.unnest()
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            one, other = (left.table, left.name), (right.table, right.name)
            # Columns of different types may be equal to several values each: 16777217 and 16777216 as floats.
            if shapes[one[0]].schema.field(one[1]).type == shapes[other[0]].schema.field(other[1]).type:
                yield one, other
        for side, constant in ((left, right), (right, left)):
            if isinstance(side, exp.Column) and isinstance(constant, exp.Literal) and _exact(side, constant, shapes):
                yield (side.table, side.name), None


def _exact(side: exp.Column, constant: exp.Literal, shapes: Mapping[str, Shape]) -> bool:
    type_ = shapes[side.table].schema.field(side.name).type
    return bool((pt.is_string(type_) and constant.is_string) or (pt.is_integer(type_) and constant.is_int))


def _fits(source: Column | None, shapes: Mapping[str, Shape], equated: set[Column]) -> bool:
    """Whether an output may be part of a key: its values have an order, and are never null."""
    if source is None:
        return False
    alias, name = source
    try:
        check_key_types(shapes[alias].schema, [name])
    except SchemaError:
        return False
    return source in equated or name in shapes[alias].key or not shapes[alias].schema.field(name).nullable
