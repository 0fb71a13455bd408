"""Delta queries: what a view's rows become when its relations change.

ΔV = Σᵢ R₁ⁿᵉʷ ⋈ … ⋈ Rᵢ₋₁ⁿᵉʷ ⋈ ΔRᵢ ⋈ Rᵢ₊₁ᵒˡᵈ ⋈ … ⋈ Rₙᵒˡᵈ, counts multiplied and added up. Each occurrence is an Rᵢ of
its own, so a self join needs nothing special. A term whose ΔRᵢ is empty or irrelevant costs nothing; in others the
change comes first, and each further relation is read only where it can equal what is already there. Join keys of the
change choose the pages of a relation; where other columns join it, all its pages are read, and only rows that meet the
change are kept. What no equality connects is read whole, by kernels where it is large.

The clock is an Rᵢ, too: its change is the old instant taken away and the new one added. The rows that it meets in both
cancel out, so only those are read that a comparison with it takes in at one of the two and not at the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from strandline.changes import COUNT
from strandline.tables import PageFiles
from strandline.values import is_sought, no_rows
from strandline.views.definition import (
    CLOCK,
    Occurrence,
    QualifiedColumn,
    ViewDefinition,
    at_instants,
    equalities_of,
    passage,
)
from strandline.views.join import Join, JoinRunner, joined, net, run_join
from strandline.views.relevance import mask
from strandline.views.store_state import KnownPages, Sought, StoreState

Equalities = Sequence[tuple[QualifiedColumn, QualifiedColumn]]


class DeltaSides(Protocol):
    """The two states between which a view changes."""

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        """What changed in a relation: rows with `_count`."""
        ...

    def state(self, *, new: bool) -> StoreState:
        """A state to read relations from."""
        ...

    def rows(self, relation: str, columns: Sequence[str], sought: Sought, *, new: bool) -> pa.Table:
        """Rows of a relation in one of the states: those that are sought, and maybe others."""
        ...

    def everything(self, relation: str, columns: Sequence[str], *, new: bool) -> pa.Table | PageFiles:
        """All rows of a relation in one of the states, or the files that hold them."""
        ...

    def content(self, relations: Iterable[str], *, new: bool) -> Hashable | None:
        """What identifies the rows of relations in one of the states, at any later time; None where nothing does."""
        ...


@dataclass(frozen=True)
class TwoStates:
    """Two states of the store, both readable."""

    older: StoreState
    newer: StoreState
    changed: dict[str, int] = field(default_factory=dict)
    """How many rows of each relation were seen to differ: the update counts once, like an insert or a delete."""
    pages: KnownPages = field(default_factory=dict)
    """What was read of whole tables: most pages are the same in both states."""

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        delta = self.newer.delta(self.older, relation, columns)
        if relation == CLOCK:
            return delta
        counts = np.asarray(delta.column(COUNT), dtype=np.int64)
        self.changed[relation] = max(int(counts[counts > 0].sum()), int(-counts[counts < 0].sum()))
        return delta

    def state(self, *, new: bool) -> StoreState:
        return self.newer if new else self.older

    def rows(self, relation: str, columns: Sequence[str], sought: Sought, *, new: bool) -> pa.Table:
        if sought.everything:
            return self.state(new=new).rows_sharing(relation, columns, self.pages)
        return self.state(new=new).rows_sought(relation, columns, sought)

    def everything(self, relation: str, columns: Sequence[str], *, new: bool) -> pa.Table | PageFiles:
        files = self.state(new=new).files(relation, columns)
        return self.rows(relation, columns, Sought(), new=new) if files is None else files

    def content(self, relations: Iterable[str], *, new: bool) -> Hashable:
        return tuple(self.state(new=new).content(relation) for relation in relations)


def delta_rows(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner | None = None) -> pa.Table:
    """ΔV: rows of the view with `_count`, net."""
    join, running = Join.of(definition), running or JoinRunner()
    terms = []
    for place, changed in enumerate(definition.occurrences):
        delta = sides.delta(changed.relation, join.columns_of(changed.alias))
        term = _Term(join, changed, place)
        if changed.relation == CLOCK:
            known = _passed_rows(definition, sides, term, delta, running)
        else:
            known = {changed.alias: relevant_rows(definition, sides, term, changed.alias, delta)}
        if all(map(len, known.values())):
            terms.append(_run_term(definition, sides, known, term, running))
    if not terms:
        return no_rows(join.rows_schema)
    return terms[0] if _keeps_rows_apart(definition, join) else net(pa.concat_tables(terms))


def _keeps_rows_apart(definition: ViewDefinition, join: Join) -> bool:
    """Whether what is read of the only relation is shown as it is: rows that differ there differ in the view."""
    columns = set(join.columns_of(definition.occurrences[0].alias))
    return len(definition.occurrences) == 1 and bool(columns) and columns <= {name for _, name in join.taken.values()}


def _passed_rows(
    definition: ViewDefinition, sides: DeltaSides, term: _Term, delta: pa.Table, running: JoinRunner
) -> dict[str, pa.Table]:
    """What a term begins with in which the clock moves: its change, and the rows that it has passed."""
    clock = term.first.alias
    instants = (sides.state(new=False).instant, sides.state(new=True).instant)
    passed = passage(definition, clock, instants) if len(delta) else None
    if passed is None:
        return {clock: delta}
    place = next(place for place, one in enumerate(definition.occurrences) if one.alias == passed.alias)
    relation, new = definition.occurrences[place].relation, term.is_new(place)
    if sides.state(new=new).bytes(relation) >= running.filter_limit:
        return {clock: delta}
    columns = term.join.columns_of(passed.alias)
    return {clock: delta, passed.alias: sides.rows(relation, columns, Sought(passed=passed), new=new)}


def rows_sought(
    definition: ViewDefinition, sides: DeltaSides, sought: Sought, *, new: bool, running: JoinRunner
) -> pa.Table:
    """Rows of the view at one of the states, with `_count`: those whose outputs are sought, and maybe others."""
    join = Join.of(definition)
    place, wanted = _where_sought(definition, sides, sought, new=new)
    one = definition.occurrences[place]
    term = _Term(join, one, place, new)
    if not wanted.values and wanted.keys is None and sides.state(new=new).bytes(one.relation) >= running.inline_limit:
        return _run_term(definition, sides, {}, term, running)
    first = sides.rows(one.relation, join.columns_of(one.alias), wanted, new=new)
    return _run_term(definition, sides, {one.alias: first}, term, running)


def is_entered_by_key(definition: ViewDefinition, sides: DeltaSides, sought: Sought) -> bool:
    """Whether sought values of outputs lead to rows of a table by its key, and not to most of them."""
    place, wanted = _where_sought(definition, sides, sought, new=False)
    relation = definition.occurrences[place].relation
    return wanted.keys is not None and not sides.state(new=False).are_most(relation, wanted.keys)


def is_reached_by_keys(definition: ViewDefinition, sides: DeltaSides, sought: Sought) -> bool:
    """Whether sought values lead to rows of a table by its key, and from there by keys to those of all others."""
    if not is_entered_by_key(definition, sides, sought):
        return False
    first, _ = _where_sought(definition, sides, sought, new=False)
    seen = {definition.occurrences[first].alias}
    equalities = list(_join_equalities(definition, sides))
    for _, one in _reachable_first(definition, sides, list(seen), equalities):
        if sides.state(new=False).bytes(one.relation) >= 0 and not _leading(one, seen, equalities, sides):
            return False
        seen.add(one.alias)
    return True


def _where_sought(definition: ViewDefinition, sides: DeltaSides, sought: Sought, *, new: bool) -> tuple[int, Sought]:
    """The occurrence with which to begin, and what its rows must have: by its key if that is sought."""
    best: tuple[int, int, Sought] = (0, 0, Sought())
    state = sides.state(new=new)
    for place, one in enumerate(definition.occurrences):
        sources = {output.source: output.name for output in definition.outputs if output.source is not None}
        values = {
            name: sought.values[sources[one.alias, name]]
            for name in state.shape(one.relation).schema.names
            if sources.get((one.alias, name)) in sought.values
        }
        leading = state.shape(one.relation).key[:1]
        by_key = bool(leading) and leading[0] in values and state.is_table(one.relation)
        if by_key and not values[leading[0]].null_count:
            keys = pa.table({leading[0]: values[leading[0]]})
            best = max(best, (2, -place, Sought(keys)), key=lambda item: item[:2])
        elif values:
            best = max(best, (1, -place, Sought(values=values, nulls=True)), key=lambda item: item[:2])
    return -best[1], best[2]


def relevant_rows(definition: ViewDefinition, sides: DeltaSides, term: _Term, alias: str, rows: pa.Table) -> pa.Table:
    """The rows of an occurrence, changed or met, that the relevance test does not rule out, at the instants that the
    term is about: what the clock makes of them later is a change by the clock. Where nothing is joined, the condition
    itself says it at once.
    """
    if not len(rows) or definition.condition is None or len(definition.occurrences) == 1:
        return rows
    state = sides.state(new=True)
    schemas = {one.relation: state.shape(one.relation).schema for one in definition.occurrences}
    instants = {
        one.alias: sides.state(new=term.is_new(place)).instant
        for place, one in enumerate(definition.occurrences)
        if one.relation == CLOCK
    }
    if instants:
        definition = replace(definition, condition=at_instants(definition.condition, instants))
    return rows.filter(mask(definition, schemas, alias, rows))


@dataclass(frozen=True)
class _Term:
    """A join that begins with one occurrence: with a change of it (then states are old and new as the sum says), or
    with rows of it at one state.
    """

    join: Join
    first: Occurrence
    place: int
    new: bool | None = None

    def is_new(self, place: int) -> bool:
        """Whether the occurrence at a place is read at the new state."""
        return place < self.place if self.new is None else self.new


def _run_term(
    definition: ViewDefinition, sides: DeltaSides, known: dict[str, pa.Table], term: _Term, running: JoinRunner
) -> pa.Table:
    """The rows of a join that begins with rows that are known, each further relation read where it can meet them.

    Nothing known means that the first is too large to be read here.
    """
    join = term.join
    whole = {} if known else {term.first.alias: sides.state(new=term.is_new(term.place))}
    equalities = list(_join_equalities(definition, sides))
    rest = list(_reachable_first(definition, sides, [*known, term.first.alias], equalities))
    for place, one in rest:
        new = term.is_new(place)
        columns = join.columns_of(one.alias)
        sought = _sought(one, known, equalities, sides)
        limit = running.filter_limit if sought.values else running.inline_limit
        if sought.keys is None and sides.state(new=new).bytes(one.relation) >= limit:
            whole[one.alias] = sides.state(new=new)
            continue
        known[one.alias] = sides.rows(one.relation, columns, sought, new=new)
        if one is not rest[-1][1]:  # less is sought of those that follow
            known[one.alias] = relevant_rows(definition, sides, term, one.alias, known[one.alias])
        if not len(known[one.alias]):
            return no_rows(join.rows_schema)
    if whole:
        relations = {one.alias: one.relation for one in definition.occurrences}
        return run_join(join, known, {alias: (state, relations[alias]) for alias, state in whole.items()}, running)
    return joined(join, known)


def _reachable_first(
    definition: ViewDefinition,
    sides: DeltaSides,
    there: Sequence[str],
    equalities: Equalities,
) -> Iterator[tuple[int, Occurrence]]:
    """The occurrences that are not there yet, those first whose keys are known from what stands before them, then those
    of which any column is.
    """
    rest = [(place, one) for place, one in enumerate(definition.occurrences) if one.alias not in there]
    seen = set(there)
    while rest:
        by_key = [item for item in rest if _leading(item[1], seen, equalities, sides)]
        by_value = [item for item in rest if any(m[0] == item[1].alias and o[0] in seen for m, o in equalities)]
        chosen = [*by_key, *by_value, *rest][0]
        rest.remove(chosen)
        seen.add(chosen[1].alias)
        yield chosen


def _leading(
    one: Occurrence, seen: set[str], equalities: Equalities, sides: DeltaSides
) -> list[tuple[str, QualifiedColumn]]:
    """The leading key columns of an occurrence that are equal to a column of another one that is known already."""
    state, newer = sides.state(new=False), sides.state(new=True)
    if not (state.is_table(one.relation) and newer.is_table(one.relation)):
        return []
    leading = []
    key = state.shape(one.relation).key
    for name in key if key == newer.shape(one.relation).key else ():
        partners = [other for mine, other in equalities if mine == (one.alias, name) and other[0] in seen]
        if not partners:
            break
        leading.append((name, partners[0]))
    # All must come from one occurrence, so that their values stand side by side.
    return [pair for pair in leading if pair[1][0] == leading[0][1][0]]


def _sought(one: Occurrence, known: Mapping[str, pa.Table], equalities: Equalities, sides: DeltaSides) -> Sought:
    """What the rows of an occurrence must have in common with those that are known."""
    leading = _leading(one, set(known), equalities, sides)
    if leading:
        table = known[leading[0][1][0]]
        return Sought(pa.table({name: table.column(column) for name, (_, column) in leading}))
    met = [(mine[1], other) for mine, other in equalities if mine[0] == one.alias and other[0] in known]
    met.sort(key=lambda pair: len(known[pair[1][0]]), reverse=True)  # of two for one column the shorter stays
    values = {name: known[alias].column(column) for name, (alias, column) in met}
    return Sought(values={name: column for name, column in values.items() if is_sought(column.type)})


def _join_equalities(
    definition: ViewDefinition, sides: DeltaSides
) -> Iterator[tuple[QualifiedColumn, QualifiedColumn]]:
    """Pairs of columns of two occurrences that are equal in every row, each pair in both directions."""
    state = sides.state(new=False)
    shapes = {occurrence.alias: state.shape(occurrence.relation) for occurrence in definition.occurrences}
    for left, right in equalities_of(definition.conjuncts(), shapes):
        if right is not None and left[0] != right[0]:
            yield left, right
            yield right, left
