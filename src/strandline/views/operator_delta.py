"""What operators do to changes: the delta of a view that is more than select, project and join.

An operator is a relation among others. Its delta follows from the deltas of its inputs in one of three ways:

- UNION ALL of the changes is the change of the UNION ALL.
- Parts: an operator works part by part, so only the parts that a change touches can change. Their rows are read as they
  were, the change is added to them, and the operator is computed over both: Δ = Op(A + ΔA | touched) − Op(A | touched).
  Parts that are untouched, or read by the way, are the same in both and cancel out.
- An operator that is linear in its first input needs no more of a change there than the change: Op(ΔA, B_new). For a
  change of B the parts that it touches are computed before and after, over the rows that A had.

Nothing is kept from one refresh to the next, so nothing can drift; what is read is what the touched parts hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from strandline.changes import COUNT, difference
from strandline.values import no_rows, plain_schema, restore
from strandline.views.definition import Operator, Shape, ViewDefinition, operator_rows
from strandline.views.delta_query import DeltaSides, delta_rows, rows_sought
from strandline.views.join import JoinRunner, net
from strandline.views.store_state import Sought, StoreState, is_sought


def view_delta(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner | None = None) -> pa.Table:
    """ΔV of any definition that deltas can follow: rows of the view with `_count`, net."""
    if not definition.operators:
        return delta_rows(definition, sides, running)
    return delta_rows(definition, OperatorSides.of(definition, sides, running or JoinRunner()), running)


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
        """Nothing for an operator: its rows are computed here."""
        return 0 if relation in self.operators else super().bytes(relation)


@dataclass(frozen=True)
class OperatorSides:
    """Two states as `DeltaSides` in which operators are relations."""

    below: DeltaSides
    operators: Mapping[str, Operator]
    running: JoinRunner
    deltas: dict[str, pa.Table] = field(default_factory=dict)

    @staticmethod
    def of(definition: ViewDefinition, sides: DeltaSides, running: JoinRunner) -> OperatorSides:
        operators = {name: operator for core in definition.cores() for name, operator in core.operators.items()}
        return OperatorSides(sides, operators, running)

    def state(self, *, new: bool) -> StoreState:
        state = self.below.state(new=new)
        return OperatorState(state.view, state.cache, self.operators)

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        operator = self.operators.get(relation)
        if operator is None:
            return self.below.delta(relation, columns)
        if relation not in self.deltas:
            self.deltas[relation] = self._delta(operator)
        rows = self.deltas[relation]
        kept = [*(columns or operator.schema.names[:1]), COUNT]
        return rows.select(kept) if len(kept) == rows.num_columns else net(rows.select(kept))

    def rows(self, relation: str, columns: Sequence[str], sought: Sought, *, new: bool) -> pa.Table:
        operator = self.operators.get(relation)
        if operator is None:
            return self.below.rows(relation, columns, sought, new=new)
        places = {name: place for place, name in enumerate(operator.shown) if name in sought.values}
        wanted = {place: sought.values[name] for name, place in places.items() if name is not None}
        inputs = [
            self._input(operator, place, wanted, new=new, nulls=sought.nulls) for place in range(len(operator.inputs))
        ]
        rows = _computed(operator, [_expanded(one) for one in inputs])
        return rows.select(list(columns) or operator.schema.names[:1])

    def _input(
        self, operator: Operator, place: int, wanted: Mapping[int, pa.ChunkedArray], *, new: bool, nulls: bool = True
    ) -> pa.Table:
        """Rows of an input with `_count`, of the parts whose columns have these values."""
        names = operator.parts[place]
        values = {names[one]: column for one, column in wanted.items() if is_sought(column.type)}
        sought = Sought(values=values, nulls=nulls)
        return net(rows_sought(operator.inputs[place], self, sought, new=new, running=self.running))

    def _delta(self, operator: Operator) -> pa.Table:
        deltas = [delta_rows(one, self, self.running) for one in operator.inputs]
        if not any(map(len, deltas)):
            return no_rows(plain_schema(operator.schema).append(pa.field(COUNT, pa.int64())))
        if operator.kind == "UNION ALL":
            return self._difference(
                operator, [_expanded(one, -1) for one in deltas], [_expanded(one) for one in deltas]
            )
        if not operator.linear:
            return self._of_parts(operator, deltas, range(len(deltas)))
        of_others = self._of_parts(operator, [no_rows(deltas[0].schema), *deltas[1:]], range(1, len(deltas)))
        if not len(deltas[0]):
            return of_others
        return net(pa.concat_tables([of_others, self._of_first(operator, deltas[0])]))

    def _of_first(self, operator: Operator, delta: pa.Table) -> pa.Table:
        """The change of an operator that is linear in its first input, for a change of that one."""
        touched = _touched(operator, [delta], [0])
        others = [
            _expanded(self._input(operator, place, dict(enumerate(touched.columns)), new=True))
            for place in range(1, len(operator.inputs))
        ]
        return self._difference(operator, [_expanded(delta, -1), *others], [_expanded(delta), *others])

    def _of_parts(self, operator: Operator, deltas: Sequence[pa.Table], changed: Sequence[int]) -> pa.Table:
        """The change of an operator in the parts that a change touches."""
        if not any(len(deltas[place]) for place in changed):
            return no_rows(plain_schema(operator.schema).append(pa.field(COUNT, pa.int64())))
        touched = _touched(operator, [deltas[place] for place in changed], changed)
        wanted = dict(enumerate(touched.columns))
        old = [self._input(operator, place, wanted, new=False) for place in range(len(operator.inputs))]
        new = [net(pa.concat_tables([rows, delta])) for rows, delta in zip(old, deltas, strict=True)]
        parts = touched if touched.num_columns else None
        return self._difference(operator, [_expanded(one) for one in old], [_expanded(one) for one in new], parts)

    def _difference(
        self, operator: Operator, old: list[pa.Table], new: list[pa.Table], parts: pa.Table | None = None
    ) -> pa.Table:
        return difference(_computed(operator, old, parts), _computed(operator, new, parts)).rows


def _touched(operator: Operator, deltas: Sequence[pa.Table], places: Sequence[int]) -> pa.Table:
    """The parts that changes of these inputs touch, as the values that make them."""
    names = [f"p{place}" for place in range(len(operator.parts[0]))]
    tables = [
        delta.select(list(operator.parts[place])).rename_columns(names)
        for delta, place in zip(deltas, places, strict=True)
    ]
    return pa.concat_tables(tables) if names else pa.table({})


def _expanded(rows: pa.Table, sign: int = 1) -> pa.Table:
    """Rows that have a count of this sign, as often as it says."""
    counts = np.asarray(rows.column(COUNT), dtype=np.int64) * sign
    plain = rows.drop_columns([COUNT])
    if (counts == 1).all():
        return plain
    return plain.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))


def _computed(operator: Operator, inputs: Sequence[pa.Table], parts: pa.Table | None = None) -> pa.Table:
    return restore(operator_rows(operator, inputs, parts), plain_schema(operator.schema))
