"""Proofs in words: terms and values as a person writes them.

Whether a changed row can matter to a view, before any join: the preliminary relevance check of the paper.

The changed row stands in for one occurrence of its relation. Terms over it alone are computed, and must be true:
false or NULL means irrelevant (the paper's test of a conjunction; for a view without joins it is exact). The other
terms become a graph of inequalities between columns of the other occurrences, in which the row's values are
constants: a cycle of negative length means that no rows of the other relations can join with this one (Rosenkrantz
and Hunt). Each disjunct of the condition is tested, and all must fail.

*Irrelevant* is never wrong, and comes with a proof. Otherwise the row is *potentially* relevant, and the join
decides. For conjunctions of `x ≤ y + c` without ≠ over exact types the test is complete. In a self join, each
occurrence is tested by itself: a row is irrelevant to the view if it is so in every occurrence.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import SqlError
from strandline.values import Condition, parse_condition, quoted_text
from strandline.views.relevance.conditions import Conjunction, disjuncts
from strandline.views.relevance.family import FamilyGraph, Said
from strandline.views.relevance.graph import Flags
from strandline.views.relevance.terms import LinearPiece, Reader

if TYPE_CHECKING:
    from sqlglot import exp

    from strandline.views.definition import ViewDefinition


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 60


def readable(tree: exp.Expr) -> str:
    """A term without needless quotes, with ≤, ≥ and ≠."""
    from sqlglot import exp

    tree = tree.unnest()
    signs: dict[type[exp.Expr], str] = {exp.LTE: "≤", exp.GTE: "≥", exp.NEQ: "≠"}
    if type(tree) in signs:
        return f"{_text(tree.this)} {signs[type(tree)]} {_text(tree.expression)}"
    return _text(tree)


def facts(trees: Iterable[exp.Expr], alias: str, row: Mapping[str, Any]) -> str:
    """What the changed row holds in the columns that these terms read."""
    from sqlglot import exp

    columns = (column for tree in trees for column in tree.find_all(exp.Column) if column.table == alias)
    told = [f"{_text(column)} {_value(row.get(column.name))}" for column in columns]
    return " and ".join(dict.fromkeys(told))


def together(terms: Sequence[str], told: str) -> str:
    """That terms can't all hold, given what the row holds."""
    said = " and ".join(terms)
    if told:
        return f"{said} {'contradicts' if len(terms) == 1 else 'contradict'} {told}"
    return f"{said} can't {'hold' if len(terms) == 1 else 'both hold' if len(terms) == 2 else 'all hold'}"


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
    return f"= {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}"


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
    text = None
    if definition.condition is not None:
        text = definition.condition.sql(dialect="duckdb", identify=True, comments=False)
    return _made(text, tuple((one.alias, schemas[one.relation]) for one in definition.occurrences), alias)


@lru_cache(maxsize=256)
def _made(condition: str | None, occurrences: tuple[tuple[str, pa.Schema], ...], alias: str) -> RelevanceTest:
    import sqlglot

    tree = None if condition is None else sqlglot.parse_one(condition, dialect="duckdb")
    return RelevanceTest(tree, dict(occurrences), alias)


@dataclass(frozen=True)
class _Own:
    """A term over the changed row alone."""

    tree: exp.Expr
    condition: Condition


@dataclass(frozen=True)
class _Needed:
    """A piece that must not be NULL, as the term compares it."""

    tree: exp.Expr
    piece: LinearPiece


@dataclass(frozen=True)
class _Disjunct:
    own: tuple[_Own, ...]
    needed: tuple[_Needed, ...]
    graphs: tuple[FamilyGraph, ...]
    trees: Mapping[str, exp.Expr]


class RelevanceTest:
    """The test of one occurrence, prepared once. `schemas` leads from aliases to columns. Safe for many threads."""

    def __init__(self, condition: exp.Expr | None, schemas: Mapping[str, pa.Schema], alias: str) -> None:
        self._alias = alias
        self._schema = schemas[alias]
        reader = Reader(alias, schemas)
        self._disjuncts = tuple(_prepared(one, reader, self._schema) for one in disjuncts(condition, alias))

    def mask(self, table: pa.Table) -> Flags:
        """Which rows of `table` are potentially relevant."""
        row = _Rows(table)
        found: Flags = np.zeros(len(table), dtype=np.bool_)
        for one in self._disjuncts:
            possible: Flags = np.ones(len(table), dtype=np.bool_)
            for own in one.own:
                possible &= row.holds(own.condition)
            for needed in one.needed:
                possible &= row.known(needed.piece)
            for graph in one.graphs:
                if possible.any():
                    possible &= graph.possible(row.values, len(table))
            found |= possible
            if found.all():
                break
        return found

    def verdict(self, row: Mapping[str, Any]) -> Verdict:
        """The test of one row, with the proof."""
        rows = _Rows(pa.Table.from_pylist([dict(row)], schema=self._schema))
        proofs = []
        for one in self._disjuncts:
            proof = self._refuted(one, rows, row)
            if proof is None:
                return Verdict(True)
            proofs.append(proof)
        return Verdict(False, tuple(dict.fromkeys(proofs)))

    def _refuted(self, disjunct: _Disjunct, rows: _Rows, row: Mapping[str, Any]) -> str | None:
        for own in disjunct.own:
            if not rows.holds(own.condition)[0]:
                told = facts([own.tree], self._alias, row)
                return (
                    f"{told}, but the view needs {readable(own.tree)}" if told else f"{readable(own.tree)} never holds"
                )
        for needed in disjunct.needed:
            if not rows.known(needed.piece)[0]:
                told = facts([needed.tree], self._alias, row)
                return f"{told}, but the view needs {readable(needed.tree)}, which NULL never satisfies"
        for graph in disjunct.graphs:
            terms = graph.contradiction(rows.values)
            if terms is not None:
                trees = [disjunct.trees[term] for term in terms if term in disjunct.trees]
                return together(terms, facts(trees, self._alias, row))
        return None


def _prepared(terms: Conjunction, reader: Reader, schema: pa.Schema) -> _Disjunct:
    own: list[_Own] = []
    needed: list[_Needed] = []
    said: dict[str, list[Said]] = {}
    trees: dict[str, exp.Expr] = {}
    for tree in terms:
        if reader.is_own(tree):
            condition = _condition(tree, schema)
            own += [] if condition is None else [_Own(tree, condition)]
            continue
        reading = reader.read(tree)
        needed += [_Needed(tree, piece) for piece in reading.pieces]
        trees[readable(tree)] = tree
        for inequality in reading.inequalities:
            said.setdefault(inequality.family, []).append(Said(inequality, readable(tree)))
    graphs = tuple(FamilyGraph(family, members) for family, members in said.items())
    return _Disjunct(tuple(own), tuple(needed), graphs, trees)


def _condition(tree: exp.Expr, schema: pa.Schema) -> Condition | None:
    """A term over the changed row; None if it can't be computed by itself, which only weakens the test."""
    from sqlglot import exp

    bare = tree.copy()
    for column in list(bare.find_all(exp.Column)):
        column.set("table", None)
    try:
        return parse_condition(bare.sql(dialect="duckdb", identify=True, comments=False), schema)
    except SqlError:
        return None


class _Rows:
    """Changed rows, and what was computed of them: terms that several disjuncts share are computed once."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._held: dict[str, Flags] = {}
        self._found: dict[str, pa.ChunkedArray | None] = {}

    def holds(self, condition: Condition) -> Flags:
        """Where a term is true. A term that fails to compute is left to the join, which computes only what it meets."""
        if condition.sql not in self._held:
            try:
                self._held[condition.sql] = np.asarray(condition.mask(self._table), dtype=np.bool_)
            except SqlError:
                self._held[condition.sql] = np.ones(len(self._table), dtype=np.bool_)
        return self._held[condition.sql]

    def values(self, piece: LinearPiece) -> pa.ChunkedArray | None:
        text = piece.expression.sql
        if text not in self._found:
            try:
                self._found[text] = piece.values(self._table)
            except SqlError:
                self._found[text] = None
        return self._found[text]

    def known(self, piece: LinearPiece) -> Flags:
        """Where a piece is not NULL; one answer for all rows if it is a constant."""
        values = self.values(piece)
        return np.ones(1, dtype=np.bool_) if values is None else np.asarray(pc.is_valid(values), dtype=np.bool_)


def summary(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a view in which the relation occurs several times: one for each occurrence."""
    if any(verdict.relevant for verdict in verdicts):
        return Verdict(True)
    return Verdict(False, tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.proof)))
