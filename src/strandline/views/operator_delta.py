"""What operators do to changes: the delta of a view that is more than select, project and join.

An operator is a relation among others. Its delta follows from the deltas of its inputs in one of four ways:

- UNION ALL of the changes is the change of the UNION ALL.
- Parts: an operator works part by part, so only the parts that a change touches can change. Their rows are read as they
  were and as they are, and the operator is computed over both: Δ = Op(A + ΔA | touched) − Op(A | touched).
- An operator that is linear in its first input needs no more of a change there than the change: Op(ΔA, B_new). For a
  change of B the parts that it touches are computed before and after, over the rows that A had.
- Groups of aggregates to which changes can be added (`definition/accumulators`): new = old + inserted − deleted. The
  accumulators of a state are remembered in memory, by the content of the relations that they follow from; where they
  are not known, they are computed.

Nothing is stored from one refresh to the next, so nothing can drift, or be of another state.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from strandline.changes import COUNT, counted_rows
from strandline.engine import Spool
from strandline.relations import read_table
from strandline.tables import PageFiles, Remembered
from strandline.values import cast_rows, is_sought, meets, no_rows, plain_schema, sought_values
from strandline.views.definition import (
    CLOCK,
    UNION_ALL,
    Accumulators,
    DeltaWork,
    Operator,
    Shape,
    ViewDefinition,
    operator_over_relations,
    operator_rows,
)
from strandline.views.delta_query import DeltaSides, delta_rows, is_entered_by_key, is_reached_by_keys, rows_sought
from strandline.views.join import JoinRunner, net, repeated
from strandline.views.store_state import Sought, StoreState
from strandline.views.view_kernels import ViewKernels

logger = logging.getLogger(__name__)

MOST_CHUNKS = 32
"""What is remembered of groups is put together where it is in more pieces than that."""


def view_delta(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner | None = None) -> pa.Table:
    """ΔV of any definition that deltas can follow: rows of the view with `_count`, net."""
    if not definition.operators:
        return delta_rows(definition, sides, running)
    return delta_rows(definition, OperatorSides.of(definition, sides, running or JoinRunner()), running)


def work_of(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner) -> dict[str, DeltaWork]:
    """What ΔV takes of each operator and relation of a view, by their names, and without a name what it is."""
    relations = OperatorSides.of(definition, sides, running)
    relations.work[""].gave = len(delta_rows(definition, relations, running))
    return dict(relations.work)


def columns_read(definition: ViewDefinition, state: StoreState) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The relations that a view reads, each once, with the columns that it reads of them anywhere."""
    reads = list(definition.reads())
    for relation in definition.relations:
        names = {name for one, columns in reads if one == relation for name in columns}
        yield relation, tuple(name for name in state.record(relation).names if name in names or not names)
    if definition.reads_clock:
        yield CLOCK, ()


@dataclass(frozen=True)
class OperatorState(StoreState):
    """A state that knows the operators of a view as relations."""

    operators: Mapping[str, Operator]

    def shape(self, relation: str) -> Shape:
        operator = self.operators.get(relation)
        return super().shape(relation) if operator is None else operator.shape

    def is_table(self, relation: str) -> bool:
        return relation not in self.operators and super().is_table(relation)

    def bytes(self, relation: str) -> int:
        """Less than any limit for an operator: its rows are computed here."""
        return -1 if relation in self.operators else super().bytes(relation)


@dataclass(frozen=True)
class OperatorSides:
    """Two states as `DeltaSides` in which operators are relations."""

    below: DeltaSides
    operators: Mapping[str, Operator]
    running: JoinRunner
    deltas: dict[str, pa.Table] = field(default_factory=dict)
    work: dict[str, DeltaWork] = field(default_factory=lambda: defaultdict(DeltaWork))
    """By operator and by relation."""

    @staticmethod
    def of(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner) -> OperatorSides:
        return OperatorSides(sides, definition.every_operator(), running)

    def state(self, *, new: bool) -> StoreState:
        state = self.below.state(new=new)
        return OperatorState(state.view, state.cache, self.operators, instant=state.instant, named_by=state.named_by)

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        operator = self.operators.get(relation)
        if operator is None:
            changed = self.below.delta(relation, columns)
            self.work[relation].gave = len(changed)
            return changed
        if relation not in self.deltas:
            self.deltas[relation] = self._delta(operator)
        rows = self.deltas[relation]
        kept = [*(columns or operator.schema.names[:1]), COUNT]
        return rows.select(kept) if len(kept) == rows.num_columns else net(rows.select(kept))

    def rows(self, relation: str, columns: Sequence[str], sought: Sought, *, new: bool) -> pa.Table:
        operator = self.operators.get(relation)
        if operator is None:
            rows = self.below.rows(relation, columns, sought, new=new)
            self.work[relation].read += len(rows)
            return rows
        kept = list(columns) or operator.schema.names[:1]
        places = {name: place for place, name in enumerate(operator.shown) if name in sought.values}
        wanted = {place: sought.values[name] for name, place in places.items() if name is not None}
        accumulators = operator.accumulators
        if accumulators is not None and self._is_accumulated(operator, wanted, new=new):
            groups = self._known_accumulators(operator, accumulators, new=new)
            values = {accumulators.keys[place]: column for place, column in wanted.items() if is_sought(column.type)}
            if values:
                groups = groups.filter(pa.array(meets(groups, sought_values(values, nulls=sought.nulls))))
            return _results(operator, accumulators, groups)[0].select(kept)
        if not self._is_entered_by_key(operator, wanted):
            return self._every_row(operator, new=new).select(kept)
        inputs = [
            self._input(operator, place, wanted, new=new, nulls=sought.nulls) for place in range(len(operator.inputs))
        ]
        return operator_rows(operator, list(map(repeated, inputs))).select(kept)

    def content(self, relations: Iterable[str], *, new: bool) -> Hashable | None:
        return self.below.content(relations, new=new)

    def _is_accumulated(self, operator: Operator, wanted: Mapping[int, pa.ChunkedArray], *, new: bool) -> bool:
        """Whether accumulators are added to: they are remembered, or keys don't lead to all rows of the groups."""
        content = self._content(operator, new=new)
        if content is None:
            return False
        sought = Sought(values={operator.parts[0][place]: wanted[place] for place in wanted})
        return self._memory.recall(content) is not None or not is_reached_by_keys(operator.inputs[0], self, sought)

    def _known_accumulators(self, operator: Operator, accumulators: Accumulators, *, new: bool) -> pa.Table:
        """The accumulators of all groups."""
        content = self._content(operator, new=new)
        known = self._memory.recall(content)
        if known is None:
            known = self._compute_accumulators(operator, accumulators, new=new)
            self._memory.remember(content, known)
        return known

    def _compute_accumulators(self, operator: Operator, accumulators: Accumulators, *, new: bool) -> pa.Table:
        """The accumulators of all groups, computed from the rows."""
        if not accumulators.keys:
            with self._kernels(operator) as kernels:
                if kernels is not None:
                    return kernels.accumulated(operator, accumulators, new=new)
        return self._every_row(operator.accumulating(accumulators), new=new)

    def _content(self, operator: Operator, *, new: bool) -> Hashable | None:
        """What identifies the rows that an operator gives at one of the states."""
        relations = dict.fromkeys(relation for core in operator.inputs for relation in core.relations)
        if any(core.reads_clock for core in operator.inputs):
            relations[CLOCK] = None
        content = self.below.content(relations, new=new)
        return None if content is None else (operator.name, content)

    @property
    def _memory(self) -> Remembered:
        return self.below.state(new=True).cache.remembered

    def _every_row(self, operator: Operator, *, new: bool) -> pa.Table:
        """All rows of an operator: on Spark, from what is remembered below it, or by one query over all relations."""
        with self._kernels(operator) as kernels:
            if kernels is not None:
                scans = kernels.operator_rows(operator, new=new)
                return read_table(scans) if scans else no_rows(plain_schema(operator.schema))
        every = range(len(operator.inputs))
        if all(self._is_remembered(core, new=new) for core in operator.inputs):
            return operator_rows(operator, [repeated(self._input(operator, place, {}, new=new)) for place in every])
        return self._whole(operator, every if new else ())

    def _is_remembered(self, core: ViewDefinition, *, new: bool) -> bool:
        """Whether a definition reads nothing but operators whose rows are known."""
        contents = [
            self._content(core.operators[one.relation], new=new) if one.relation in core.operators else None
            for one in core.occurrences
        ]
        return all(content is not None and self._memory.recall(content) is not None for content in contents)

    def _is_entered_by_key(self, operator: Operator, wanted: Mapping[int, pa.ChunkedArray]) -> bool:
        """Whether a key leads to the parts; otherwise all relations have to be looked through."""
        return any(
            is_entered_by_key(core, self, Sought(values={names[place]: wanted[place] for place in wanted}))
            for core, names in zip(operator.inputs, operator.parts, strict=True)
        )

    @contextmanager
    def _kernels(self, operator: Operator) -> Iterator[ViewKernels | None]:
        """The kernels that look through all relations, where these are so large that they run on Spark."""
        relations = {relation for core in operator.inputs for relation in core.relations}
        runner = self.running.on_spark(self.below.state(new=True), relations)
        if runner is None:
            yield None
            return
        with Spool() as spool:
            self._tell(operator, "computed on Spark over all that it reads")
            yield ViewKernels(self.below, self.running, runner, spool)

    def _whole(self, operator: Operator, new: Collection[int], parts: pa.Table | None = None) -> pa.Table:
        """The rows of an operator by one query over the relations below it; of these inputs at the new state."""
        relations = []
        for place, core in enumerate(operator.inputs):
            columns = columns_read(core, self.below.state(new=place in new))
            read = {name: self.everything(name, some, new=place in new) for name, some in columns}
            relations.append({name: _plain(one) for name, one in read.items()})
        state = "as it is" if new else "as it was"
        self._tell(operator, f"computed over all that it reads, {state}")
        return operator_over_relations(operator, relations, parts)

    def everything(self, relation: str, columns: Sequence[str], *, new: bool) -> pa.Table | PageFiles:
        if relation in self.operators:
            return self.rows(relation, columns, Sought(), new=new)
        rows = self.below.everything(relation, columns, new=new)
        read = len(rows) if isinstance(rows, pa.Table) else self.below.state(new=new).count(relation)
        self.work[relation].read += read
        return rows

    def _input(
        self, operator: Operator, place: int, wanted: Mapping[int, pa.ChunkedArray], *, new: bool, nulls: bool = True
    ) -> pa.Table:
        """Rows of an input with `_count`, of the parts whose columns have these values, and maybe of others."""
        names = operator.parts[place]
        values = {names[one]: column for one, column in wanted.items() if is_sought(column.type)}
        sought = Sought(values=values, nulls=nulls)
        rows = rows_sought(operator.inputs[place], self, sought, new=new, running=self.running)
        parts = " of the parts that changed" if values else ""
        state = "as they are" if new else "as they were"
        self._tell(operator, f"{len(rows)} rows of input {place + 1} read{parts}, {state}")
        return rows

    def _delta(self, operator: Operator) -> pa.Table:
        deltas = [delta_rows(one, self, self.running) for one in operator.inputs]
        changed = {place: delta for place, delta in enumerate(deltas) if len(delta)}
        if operator.kind == UNION_ALL:
            rows = _difference(operator, [repeated(one, -1) for one in deltas], [repeated(one) for one in deltas])
            return self._counted(operator, sum(map(len, deltas)), rows)
        accumulators = operator.accumulators
        if accumulators is not None and changed:
            wanted = dict(enumerate(_touched(operator, changed).columns))
            if self._is_accumulated(operator, wanted, new=False):
                return self._delta_by_accumulators(operator, accumulators, changed[0])
        elif accumulators is not None:
            self._memory.keep(self._content(operator, new=False), self._content(operator, new=True))
        first = changed.pop(0, None) if operator.linear else None
        terms = [] if first is None else [self._linear_delta(operator, first)]
        terms += [self._delta_by_parts(operator, changed)] if changed else []
        if not terms:
            return no_rows(plain_schema(operator.schema).append(pa.field(COUNT, pa.int64())))
        delta = terms[0] if len(terms) == 1 else net(pa.concat_tables(terms))
        return self._counted(operator, sum(map(len, deltas)), delta)

    def _counted(self, operator: Operator, came: int, delta: pa.Table) -> pa.Table:
        """An operator's change, told and counted."""
        logger.info("%s: %d changes of its inputs are %d of its result", operator.kind, came, len(delta))
        work = self.work[operator.name]
        work.came, work.gave = came, len(delta)
        return delta

    def _tell(self, operator: Operator, how: str) -> None:
        """How rows were read for a change of an operator."""
        logger.info("%s: %s", operator.kind, how)
        self.work[operator.name].how.append(how)

    def _linear_delta(self, operator: Operator, delta: pa.Table) -> pa.Table:
        """The change of an operator that is linear in its first input, for a change of that one."""
        wanted = dict(enumerate(_touched(operator, {0: delta}).columns))
        others = [repeated(self._input(operator, place, wanted, new=True)) for place in range(1, len(operator.inputs))]
        return _difference(operator, [repeated(delta, -1), *others], [repeated(delta), *others])

    def _delta_by_accumulators(self, operator: Operator, accumulators: Accumulators, delta: pa.Table) -> pa.Table:
        """The change of groups to which changes can be added."""
        old = self._known_accumulators(operator, accumulators, new=False)
        touched, others = accumulators.parted(old, delta)
        new, lost = accumulators.merged(touched, repeated(delta), repeated(delta, -1))
        if len(lost):
            new = self._computed_again(operator, accumulators, new, lost)
        self._memory.remember(self._content(operator, new=True), _in_few_chunks(pa.concat_tables([others, new])))
        self.work[operator.name].how.append(f"added to {len(new)} of {len(old)} groups that are known")
        rows = counted_rows(*_results(operator, accumulators, touched, new))
        return self._counted(operator, len(delta), rows)

    def _computed_again(
        self, operator: Operator, accumulators: Accumulators, rows: pa.Table, lost: pa.Table
    ) -> pa.Table:
        """Accumulators of groups, those of the lost ones computed from the rows of these."""
        wanted, groups = dict(enumerate(lost.columns)), operator.accumulating(accumulators)
        relations = {relation for core in groups.inputs for relation in core.relations}
        if not accumulators.keys or self.running.on_spark(self.below.state(new=True), relations) is not None:
            return accumulators.parted(self._compute_accumulators(operator, accumulators, new=True), rows)[0]
        if self._is_entered_by_key(groups, wanted):
            again = operator_rows(groups, [repeated(self._input(groups, 0, wanted, new=True))], lost)
        else:
            again = self._whole(groups, (0,), lost)
        return pa.concat_tables([accumulators.parted(rows, lost.rename_columns(accumulators.keys))[1], again])

    def _delta_by_parts(self, operator: Operator, changed: Mapping[int, pa.Table]) -> pa.Table:
        """The change of an operator in the parts that changes of its inputs touch; other inputs are as they were."""
        touched = _touched(operator, changed)
        wanted = dict(enumerate(touched.columns))
        parts = touched if touched.num_columns else None
        if not self._is_entered_by_key(operator, wanted):
            with self._kernels(operator) as kernels:
                if kernels is not None:
                    return net(kernels.operator_delta(operator, changed, parts))
            return counted_rows(self._whole(operator, (), parts), self._whole(operator, changed, parts))
        old = [self._input(operator, place, wanted, new=False) for place in range(len(operator.inputs))]
        new = list(old)
        for place, delta in changed.items():
            read = operator.inputs[place]
            if len(read.occurrences) == 1 and not read.operators:
                new[place] = self._input(operator, place, wanted, new=True)
            else:  # adding the change is less work than computing it again
                new[place] = pa.concat_tables([old[place], delta])
        return _difference(operator, list(map(repeated, old)), list(map(repeated, new)), parts)


def _in_few_chunks(rows: pa.Table) -> pa.Table:
    """Each refresh adds some, and every read pays for each; copying them all every time would cost more."""
    return rows.combine_chunks() if rows.column(0).num_chunks > MOST_CHUNKS else rows


def _difference(
    operator: Operator, old: Sequence[pa.Table], new: Sequence[pa.Table], parts: pa.Table | None = None
) -> pa.Table:
    """What an operator gives over new inputs and does not over old ones, with `_count`."""
    return counted_rows(operator_rows(operator, old, parts), operator_rows(operator, new, parts))


def _results(operator: Operator, accumulators: Accumulators, *states: pa.Table) -> list[pa.Table]:
    """The rows of an operator that follow from accumulators, at each of some states."""
    return [cast_rows(rows, plain_schema(operator.schema)) for rows in accumulators.results(states)]


def _touched(operator: Operator, changed: Mapping[int, pa.Table]) -> pa.Table:
    """The parts that changes of inputs, by their places, touch: the values that make them."""
    names = [f"p{place}" for place in range(len(operator.parts[0]))]
    tables = [delta.select(list(operator.parts[place])).rename_columns(names) for place, delta in changed.items()]
    return pa.concat_tables(tables) if names else pa.table({})


def _plain(rows: pa.Table | PageFiles) -> pa.Table | PageFiles:
    """All rows of a relation, which may have counts."""
    return repeated(rows) if isinstance(rows, pa.Table) and COUNT in rows.column_names else rows
