"""Where irrelevance is proved: whether a changed row can matter to a view, before any join.

The preliminary relevance check of Chao, Diehr and Saharia. The changed row stands in for one occurrence of its
relation. The view's condition is taken as disjuncts, each a conjunction of terms (`terms`), and the row is
irrelevant if every disjunct is refuted, in one of three ways:

1. A term over the row alone is computed, and must be true: false or NULL refutes the conjunction. For a view without
   joins this is exact.
2. A side of a comparison that reads the row alone is NULL: the comparison never holds.
3. The other terms become inequalities `x ≤ y + c` between columns of the other occurrences, in which the row's
   values are constants. A cycle of negative length in their graph means that no rows of the other relations can join
   with this one: the test of Rosenkrantz and Hunt (`inequality_graph`).

*Irrelevant* is never wrong, and comes with a proof. What the proof does not understand (`comparison_types` lists what
it does), or can't refute, is *potentially* relevant, and the join decides. For conjunctions of `x ≤ y + c` without ≠
over exact types the test is complete. In a self join, each occurrence is tested by itself: a row is irrelevant to the
view if it is so in every occurrence.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import COUNTED, Changes, ChangeSet, after_table, before_table
from strandline.errors import InputError, SchemaError, SqlError, shortened
from strandline.values import (
    Condition,
    Flags,
    array_of,
    arrow_condition,
    parse_condition,
    parse_written,
    plain,
    plain_schema,
    quoted_text,
    sql_rounds,
)
from strandline.views.definition import CLOCK, ViewDefinition, unqualified
from strandline.views.relevance.inequality_graph import InequalityGraph, StatedInequality
from strandline.views.relevance.terms import Conjunction, RowExpression, TermReader, disjuncts
from strandline.views.store_state import StoreState

if TYPE_CHECKING:
    from sqlglot import exp


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 60


@dataclass(frozen=True)
class Verdict:
    """Irrelevant, with one sentence for each disjunct of the condition, or potentially relevant, without a proof."""

    relevant: bool
    proof: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "potentially relevant" if self.relevant else f"irrelevant: {'; '.join(self.proof)}"


def relevant(
    definition: ViewDefinition, schemas: Mapping[str, pa.Schema], alias: str, row: Mapping[str, Any]
) -> Verdict:
    """Whether a row that is added to or taken from occurrence `alias` can matter; `schemas` are the relations' own."""
    return _test(definition, schemas, alias).verdict(row)


def mask(definition: ViewDefinition, schemas: Mapping[str, pa.Schema], alias: str, table: pa.Table) -> pa.BooleanArray:
    """Which rows can matter in occurrence `alias`; the same as `relevant` for each, at once."""
    return pa.array(_test(definition, schemas, alias).mask(table))


def _test(definition: ViewDefinition, schemas: Mapping[str, pa.Schema], alias: str) -> RelevanceTest:
    text = None if definition.condition is None else definition.condition_text
    return _prepared_test(text, tuple((one.alias, schemas[one.relation]) for one in definition.occurrences), alias)


@lru_cache(maxsize=256)
def _prepared_test(condition: str | None, occurrences: tuple[tuple[str, pa.Schema], ...], alias: str) -> RelevanceTest:

    tree = None if condition is None else parse_written(condition)
    return RelevanceTest(tree, dict(occurrences), alias)


@dataclass(frozen=True)
class _RowTerm:
    """A term over the changed row alone, which must be true."""

    tree: exp.Expr
    condition: Condition


@dataclass(frozen=True)
class _NotNull:
    """A side of a comparison, over the changed row alone, that must not be NULL."""

    tree: exp.Expr
    side: RowExpression


@dataclass(frozen=True)
class _Disjunct:
    """A conjunction, prepared; `graphs` has one graph for each family of values, `terms` leads from text to terms."""

    row_terms: tuple[_RowTerm, ...]
    not_null: tuple[_NotNull, ...]
    graphs: tuple[InequalityGraph, ...]
    terms: Mapping[str, exp.Expr]


class RelevanceTest:
    """The test of one occurrence, prepared once. `schemas` leads from aliases to columns. Safe for many threads."""

    def __init__(self, condition: exp.Expr | None, schemas: Mapping[str, pa.Schema], alias: str) -> None:
        self._alias = alias
        schemas = {name: plain_schema(schema) for name, schema in schemas.items()}
        self._schema = schemas[alias]
        reader = TermReader(alias, schemas)
        self._disjuncts = tuple(
            _prepared(one, reader, self._schema) for one in disjuncts(condition, alias, reader.types)
        )

    def mask(self, table: pa.Table) -> Flags:
        """Which rows of `table` are potentially relevant."""
        rows = _Rows(plain(table))
        relevant: Flags = np.zeros(len(table), dtype=np.bool_)
        for disjunct in self._disjuncts:
            possible: Flags = np.ones(len(table), dtype=np.bool_)
            for term in disjunct.row_terms:
                possible &= rows.holds(term.condition)
            for needed in disjunct.not_null:
                possible &= rows.known(needed.side)
            for graph in disjunct.graphs:
                if possible.any():
                    possible &= graph.possible(rows.values, len(table))
            relevant |= possible
            if relevant.all():
                break
        return relevant

    def verdict(self, row: Mapping[str, Any]) -> Verdict:
        """The test of one row, with the proof."""
        values = [array_of([row.get(field.name)], field.type) for field in self._schema]
        rows = _Rows(pa.Table.from_arrays(values, schema=self._schema))
        proofs = []
        for disjunct in self._disjuncts:
            proof = self._refutation(disjunct, rows, row)
            if proof is None:
                return Verdict(True)
            proofs.append(proof)
        return Verdict(False, tuple(dict.fromkeys(proofs)))

    def _refutation(self, disjunct: _Disjunct, rows: _Rows, row: Mapping[str, Any]) -> str | None:
        """Why one row can't satisfy a disjunct, whatever it joins with; None if it may."""
        for term in disjunct.row_terms:
            if not rows.holds(term.condition)[0]:
                facts, needs = _row_facts([term.tree], self._alias, row), _readable(term.tree)
                return f"{facts}, but the view needs {needs}" if facts else f"{needs} never holds"
        for needed in disjunct.not_null:
            if not rows.known(needed.side)[0]:
                facts = _row_facts([needed.tree], self._alias, row)
                return f"{facts}, but the view needs {_readable(needed.tree)}, which NULL never satisfies"
        for graph in disjunct.graphs:
            cycle = graph.contradiction(rows.values)
            if cycle is not None:
                trees = [disjunct.terms[term] for term in cycle if term in disjunct.terms]
                return _contradiction(cycle, _row_facts(trees, self._alias, row))
        return None


def _prepared(conjunction: Conjunction, reader: TermReader, schema: pa.Schema) -> _Disjunct:
    row_terms: list[_RowTerm] = []
    not_null: list[_NotNull] = []
    stated: dict[str, list[StatedInequality]] = {}
    terms: dict[str, exp.Expr] = {}
    for tree in conjunction:
        if reader.is_own(tree):
            condition = _condition(tree, schema)
            row_terms += [] if condition is None else [_RowTerm(tree, condition)]
            continue
        reading = reader.read(tree)
        not_null += [_NotNull(tree, side) for side in reading.not_null]
        terms[_readable(tree)] = tree
        for inequality in reading.inequalities:
            stated.setdefault(inequality.family, []).append(StatedInequality(inequality, _readable(tree)))
    graphs = tuple(InequalityGraph(family, members) for family, members in stated.items())
    return _Disjunct(tuple(row_terms), tuple(not_null), graphs, terms)


def _condition(tree: exp.Expr, schema: pa.Schema) -> Condition | None:
    """A term over the changed row; None if it can't be computed by itself, which only weakens the test."""
    from sqlglot import exp

    if any(sql_rounds(schema.field(column.name).type) for column in tree.find_all(exp.Column)):
        return None
    try:
        return parse_condition(unqualified(tree), schema)
    except SqlError:
        return None


class _Rows:
    """Changed rows, and what was computed of them: terms that several disjuncts share are computed once."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._held: dict[str, Flags] = {}
        self._values: dict[str, pa.ChunkedArray | None] = {}

    def holds(self, condition: Condition) -> Flags:
        """Where a term is true. A term that fails to compute is left to the join, which computes only what it meets."""
        if condition.sql not in self._held:
            simple = arrow_condition(condition.sql, "", self._table.schema)
            try:
                held = condition.mask(self._table) if simple is None else pc.fill_null(simple(self._table), False)
                self._held[condition.sql] = np.asarray(held, dtype=np.bool_)
            except SqlError:
                self._held[condition.sql] = np.ones(len(self._table), dtype=np.bool_)
        return self._held[condition.sql]

    def values(self, side: RowExpression) -> pa.ChunkedArray | None:
        """An expression's values, one for all rows if it is a constant; None if it fails to compute."""
        text = side.expression.sql
        if text not in self._values:
            try:
                self._values[text] = side.values(self._table)
            except SqlError:
                self._values[text] = None
        return self._values[text]

    def known(self, side: RowExpression) -> Flags:
        """Where an expression is not NULL; one answer for all rows if it is a constant."""
        values = self.values(side)
        return np.ones(1, dtype=np.bool_) if values is None else np.asarray(pc.is_valid(values), dtype=np.bool_)


def _readable(tree: exp.Expr) -> str:
    """A term without needless quotes, with ≤, ≥ and ≠."""
    from sqlglot import exp

    tree = tree.unnest()
    signs: dict[type[exp.Expr], str] = {exp.LTE: "≤", exp.GTE: "≥", exp.NEQ: "≠"}
    if type(tree) in signs:
        return f"{_text(tree.this)} {signs[type(tree)]} {_text(tree.expression)}"
    return _text(tree)


def _row_facts(trees: Iterable[exp.Expr], alias: str, row: Mapping[str, Any]) -> str:
    """What the changed row holds in the columns that these terms read."""
    from sqlglot import exp

    columns = (column for tree in trees for column in tree.find_all(exp.Column) if column.table == alias)
    values = [f"{_text(column)} {_value(row.get(column.name))}" for column in columns]
    return " and ".join(dict.fromkeys(values))


def _contradiction(terms: Sequence[str], facts: str) -> str:
    """That terms can't all hold, given what the row holds (`facts`; empty: whatever it holds)."""
    conjunction = " and ".join(terms)
    if facts:
        return f"{conjunction} {'contradicts' if len(terms) == 1 else 'contradict'} {facts}"
    return f"{conjunction} can't {'hold' if len(terms) == 1 else 'both hold' if len(terms) == 2 else 'all hold'}"


def _text(tree: exp.Expr) -> str:
    from sqlglot import exp

    shown = tree.copy()
    for name in shown.find_all(exp.Identifier):
        name.set("quoted", _PLAIN.fullmatch(name.name) is None)
    return shown.sql(dialect="duckdb", comments=False)


def _value(value: Any) -> str:
    if value is None:
        return "is NULL"
    if isinstance(value, bool):
        return f"is {str(value).lower()}"
    if isinstance(value, str):
        text = quoted_text(value)
    else:
        text = value.isoformat(" ") if isinstance(value, dt.datetime) else str(value)
    return f"= {shortened(text, _SHOWN)}"


@dataclass(frozen=True)
class Why:
    """The verdict on one row that comes into a relation or leaves it."""

    relation: str
    row: Mapping[str, Any]
    verdict: Verdict

    @property
    def relevant(self) -> bool:
        return self.verdict.relevant

    @property
    def proof(self) -> tuple[str, ...]:
        return self.verdict.proof

    def __str__(self) -> str:
        return str(self.verdict)


def why(definition: ViewDefinition, state: StoreState, change: Any, relation: str | None = None) -> list[Why]:
    """The verdict on each row of a change: a row, several, a table of them, or a change set with both its images."""
    doing = f"asking what a change means to {definition.name!r}"
    if definition.regenerated:
        raise InputError(f"it is computed anew each time: {definition.regenerated}", doing=doing)
    chosen = _relation(definition, relation, doing)
    schemas = {one: state.shape(one).schema for one in (*definition.relations, CLOCK)}
    cores = list(definition.cores())
    schemas |= {name: operator.schema for core in cores for name, operator in core.operators.items()}
    places = [(core, one.alias) for core in cores for one in core.occurrences if one.relation == chosen]
    answers = []
    for row in _rows(change, schemas[chosen], doing):
        verdicts = [relevant(core, schemas, alias, row) for core, alias in places]
        answers.append(Why(chosen, row, summary(verdicts)))
    return answers


def summary(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a view in which the relation occurs several times: one for each occurrence."""
    if any(verdict.relevant for verdict in verdicts):
        return Verdict(True)
    return Verdict(False, tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.proof)))


def _relation(definition: ViewDefinition, relation: str | None, doing: str) -> str:
    read = definition.relations
    if relation is None and len(read) == 1:
        return read[0]
    if relation not in read:
        problem = "say which relation changes" if relation is None else f"it does not read {relation!r}"
        raise InputError(problem, doing=doing, hint=f"It reads {', '.join(read)}")
    return relation


def _rows(change: Any, schema: pa.Schema, doing: str) -> Iterator[dict[str, Any]]:
    if isinstance(change, Mapping):
        change = [change]
    if isinstance(change, Changes):
        tables = [_images(part) for part in change.sets()]
        yield from (row for table in tables for row in table.select(schema.names).to_pylist())
        return
    for row in change.to_pylist() if isinstance(change, pa.Table) else change:
        unknown = sorted(set(row) - set(schema.names))
        if unknown:
            names = ", ".join(schema.names)
            raise SchemaError(f"there is no column {unknown[0]!r}", doing=doing, hint=f"The columns are {names}")
        yield {name: row.get(name) for name in schema.names}


def _images(changes: ChangeSet) -> pa.Table:
    if changes.header.form == COUNTED:
        return changes.rows
    gone = before_table(changes).filter(pa.compute.not_equal(changes.rows.column("_change"), "insert"))
    come = after_table(changes).filter(pa.compute.not_equal(changes.rows.column("_change"), "delete"))
    return pa.concat_tables([gone.select(come.column_names), come])
