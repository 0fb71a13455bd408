"""Delta queries: what a view's rows become when its relations change.

ΔV = Σᵢ R₁ⁿᵉʷ ⋈ … ⋈ Rᵢ₋₁ⁿᵉʷ ⋈ ΔRᵢ ⋈ Rᵢ₊₁ᵒˡᵈ ⋈ … ⋈ Rₙᵒˡᵈ, counts multiplied and added up. Each occurrence is an Rᵢ of
its own, so a self join needs nothing special. A term whose ΔRᵢ is empty or irrelevant costs nothing; in others the
change comes first, and each further relation is read only where its key can equal what is already there: the join
keys of the change choose the pages. What can't be reached by key is read whole, by kernels where it is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from strandline.changes import COUNT
from strandline.values import no_rows
from strandline.views.definition import Occurrence, ViewDefinition
from strandline.views.join import Join, JoinRunner, joined, net, run_join
from strandline.views.relevance import mask
from strandline.views.store_state import StoreState

if TYPE_CHECKING:
    from sqlglot import exp

Column = tuple[str, str]


class DeltaSides(Protocol):
    """The two states between which a view changes."""

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        """What changed in a relation: rows with `_count`."""
        ...

    def site(self, *, new: bool) -> StoreState:
        """A state to read relations from."""
        ...

    def rows(self, relation: str, columns: Sequence[str], keys: pa.Table | None, *, new: bool) -> pa.Table:
        """Rows of a relation in one of the states, all or those of some keys."""
        ...


@dataclass(frozen=True)
class TwoStates:
    """Two states of the store, both readable."""

    older: StoreState
    newer: StoreState
    changed: dict[str, int] = field(default_factory=dict)
    """How many rows of each relation were seen to differ: the update counts once, like an insert or a delete."""

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        found = self.newer.delta(self.older, relation, columns)
        signs = np.asarray(found.column(COUNT), dtype=np.int64)
        self.changed[relation] = max(int(signs[signs > 0].sum()), int(-signs[signs < 0].sum()))
        return found

    def site(self, *, new: bool) -> StoreState:
        return self.newer if new else self.older

    def rows(self, relation: str, columns: Sequence[str], keys: pa.Table | None, *, new: bool) -> pa.Table:
        site = self.site(new=new)
        return site.rows(relation, columns) if keys is None else site.rows_of_keys(relation, columns, keys)


def delta_rows(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner | None = None) -> pa.Table:
    """ΔV: rows of the view with `_count`, net."""
    join = Join.of(definition)
    deltas: dict[Occurrence, pa.Table] = {}
    for one in definition.occurrences:
        found = sides.delta(one.relation, join.columns_of(one.alias))
        deltas[one] = relevant_rows(definition, sides, one, found)
    terms = [
        _term(definition, join, sides, _Term(place, deltas[one]), running or JoinRunner())
        for place, one in enumerate(definition.occurrences)
        if len(deltas[one])
    ]
    return net(pa.concat_tables(terms)) if terms else no_rows(join.rows_schema)


def relevant_rows(definition: ViewDefinition, sides: DeltaSides, one: Occurrence, delta: pa.Table) -> pa.Table:
    """The changed rows that the relevance test does not rule out."""
    if not len(delta) or definition.condition is None:
        return delta
    site = sides.site(new=True)
    schemas = {relation: site.shape(relation).schema for relation in definition.relations}
    return delta.filter(mask(definition, schemas, one.alias, delta))


@dataclass(frozen=True)
class _Term:
    """ΔRᵢ: its place among the occurrences, and its rows."""

    place: int
    delta: pa.Table


def _term(definition: ViewDefinition, join: Join, sides: DeltaSides, term: _Term, running: JoinRunner) -> pa.Table:
    changed = definition.occurrences[term.place]
    known: dict[str, pa.Table] = {changed.alias: term.delta}
    whole: dict[str, StoreState] = {}
    equalities = list(_equalities(definition, sides))
    for place, one in _reachable_first(definition, sides, changed, equalities):
        new = place < term.place
        columns = join.columns_of(one.alias)
        keys = _keys(one, known, equalities, sides)
        if keys is None and sides.site(new=new).bytes(one.relation) >= running.inline_limit:
            whole[one.alias] = sides.site(new=new)
            continue
        known[one.alias] = sides.rows(one.relation, columns, keys, new=new)
        if not len(known[one.alias]):
            return no_rows(join.rows_schema)
    if whole:
        relations = {one.alias: one.relation for one in definition.occurrences}
        return run_join(join, known, {alias: (site, relations[alias]) for alias, site in whole.items()}, running)
    return joined(join, known)


def _reachable_first(
    definition: ViewDefinition, sides: DeltaSides, changed: Occurrence, equalities: Sequence[tuple[Column, Column]]
) -> Iterator[tuple[int, Occurrence]]:
    """The other occurrences, those first whose keys are known from what stands before them."""
    rest = [(place, one) for place, one in enumerate(definition.occurrences) if one is not changed]
    seen = {changed.alias}
    while rest:
        chosen = next((item for item in rest if _leading(item[1], seen, equalities, sides)), rest[0])
        rest.remove(chosen)
        seen.add(chosen[1].alias)
        yield chosen


def _leading(
    one: Occurrence, seen: set[str], equalities: Sequence[tuple[Column, Column]], sides: DeltaSides
) -> list[tuple[str, Column]]:
    """The leading key columns of an occurrence that are equal to a column of another one that is known already."""
    site = sides.site(new=False)
    if not site.is_table(one.relation):
        return []
    found = []
    for name in site.shape(one.relation).key:
        partners = [other for mine, other in equalities if mine == (one.alias, name) and other[0] in seen]
        if not partners:
            break
        found.append((name, partners[0]))
    # All must come from one occurrence, so that their values stand side by side.
    return [pair for pair in found if pair[1][0] == found[0][1][0]]


def _keys(
    one: Occurrence, known: Mapping[str, pa.Table], equalities: Sequence[tuple[Column, Column]], sides: DeltaSides
) -> pa.Table | None:
    """What the leading key columns of an occurrence can be; None if nothing is known of them."""
    leading = _leading(one, set(known), equalities, sides)
    if not leading:
        return None
    table = known[leading[0][1][0]]
    return pa.table({name: table.column(column) for name, (_, column) in leading})


def _equalities(definition: ViewDefinition, sides: DeltaSides) -> Iterator[tuple[Column, Column]]:
    """Pairs of columns of one type that are equal in every row, each pair in both directions."""
    from sqlglot import exp

    shapes = {one.alias: sides.site(new=False).shape(one.relation) for one in definition.occurrences}
    for term in definition.conjuncts():
        if isinstance(term, exp.EQ):
            left, right = term.this.unnest(), term.expression.unnest()
            if isinstance(left, exp.Column) and isinstance(right, exp.Column) and _alike(left, right, shapes):
                yield (left.table, left.name), (right.table, right.name)
                yield (right.table, right.name), (left.table, left.name)


def _alike(left: exp.Column, right: exp.Column, shapes: Mapping[str, object]) -> bool:
    types = [shapes[one.table].schema.field(one.name).type for one in (left, right)]  # type: ignore[attr-defined]
    return left.table != right.table and bool(types[0] == types[1])


def without_counts(rows: pa.Table) -> pa.Table:
    """Rows as often as they are counted."""
    counts = np.asarray(rows.column(COUNT), dtype=np.int64)
    return rows.drop_columns([COUNT]).take(pa.array(np.repeat(np.arange(len(rows)), counts)))
