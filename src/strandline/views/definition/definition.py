"""What a view is: select, project and inner joins over relations, and operators where it is more, as facts.

The paper's RMV is π_X σ_C(Y) (r₁ × … × r_p). Here the r's are `occurrences` (a relation that is joined with itself
occurs twice), C is `condition` (WHERE, ON, USING and NATURAL as one conjunction) and X is `outputs`. When X holds a
key of the result the view is *keyed*; otherwise it is *counted*, and equal rows are held once, with their number.

What is no select, project or join (groups, outer joins, subqueries, windows, set operations) is an `Operator`: a query
over definitions of this kind, and itself a relation that definitions read like a table. So a view is a tree in which
both alternate.

Every column in these expressions is qualified by its occurrence's alias, and quoted, in DuckDB's dialect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.changes import COUNTED, KEYED
from strandline.storage import cached_property
from strandline.tables import PREFIX
from strandline.values import SIGNATURE_ALGORITHM, conjuncts

if TYPE_CHECKING:
    from sqlglot import exp

    from strandline.views.definition.accumulators import Accumulators


NO_COLUMNS = pa.schema([])
CLOCK = f"{PREFIX}clock"
"""The relation of one row that has the time."""
QualifiedColumn = tuple[str, str]
"""An occurrence's alias and the name of a column."""


@dataclass(frozen=True)
class Shape:
    """What a definition has to know of a relation: its columns, and its key (empty: none)."""

    schema: pa.Schema
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Occurrence:
    """One mention of a table, what-if or view in the FROM clause. Aliases differ, whatever their case."""

    alias: str
    relation: str


@dataclass(frozen=True)
class OutputColumn:
    """One column of the result."""

    name: str
    expression: exp.Expr

    @property
    def source(self) -> QualifiedColumn | None:
        """The alias and the column that it is, if it is nothing but a column."""
        from sqlglot import exp

        tree = self.expression
        return (tree.table, tree.name) if isinstance(tree, exp.Column) else None


@dataclass(frozen=True)
class ViewDefinition:
    """A checked definition. `key` holds names of outputs; it is empty in a counted view.

    `regenerated` says why such a view can only be computed anew each time; it is empty where deltas do. Such a view has
    no `condition`, and its outputs are the columns of the whole query.
    """

    name: str
    sql: str
    occurrences: tuple[Occurrence, ...]
    condition: exp.Expr | None
    outputs: tuple[OutputColumn, ...]
    key: tuple[str, ...]
    schema: pa.Schema
    regenerated: str = ""
    operators: Mapping[str, Operator] = field(default_factory=dict)
    """The operators among the relations of `occurrences`, by name."""

    @property
    def form(self) -> str:
        return KEYED if self.key else COUNTED

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """The relations of the store that it reads, through operators too, each once."""
        return tuple(dict.fromkeys(relation for relation, _ in self.reads()))

    def cores(self) -> Iterator[ViewDefinition]:
        """Itself, and the definitions that its operators read, however deep."""
        yield self
        for operator in self.operators.values():
            for definition in operator.inputs:
                yield from definition.cores()

    def every_operator(self) -> dict[str, Operator]:
        """Its operators and those below them, by name."""
        return {name: operator for core in self.cores() for name, operator in core.operators.items()}

    def reads(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each mention of a relation of the store, with the columns that are read of it; none means all of them."""
        for core in self.cores():
            for one in core.occurrences:
                if one.relation not in core.operators and one.relation != CLOCK:
                    yield one.relation, () if core.regenerated else core.columns_of(one.alias)

    @cached_property
    def reads_clock(self) -> bool:
        """Whether what it shows depends on the time, and can be followed."""
        return any(one.relation == CLOCK for core in self.cores() for one in core.occurrences)

    def conjuncts(self) -> Iterator[exp.Expr]:
        """The terms of the condition, all of which must hold."""
        if self.condition is not None:
            yield from conjuncts(self.condition)

    @cached_property
    def condition_text(self) -> str:
        """The condition as SQL."""
        return "true" if self.condition is None else sql_text(self.condition)

    def columns_of(self, alias: str) -> tuple[str, ...]:
        """The columns of an occurrence that the condition or an output reads."""
        return tuple(sorted({name for table, name in self._columns if table == alias}))

    @cached_property
    def _columns(self) -> frozenset[tuple[str, str]]:
        """The columns that the condition or an output reads, each with the occurrence that it is of."""
        from sqlglot import exp

        trees = [output.expression for output in self.outputs]
        trees += [] if self.condition is None else [self.condition]
        return frozenset((column.table, column.name) for tree in trees for column in tree.find_all(exp.Column))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what it means: two texts that say the same have the same one.

        Copies without a key name their rows by signatures: those of another algorithm are compared and signed anew.
        """
        meaning = [
            [[one.alias, one.relation] for one in self.occurrences],
            sorted(sql_text(term) for term in self.conjuncts()),
            [[output.name, sql_text(output.expression)] for output in self.outputs],
            list(self.key),
            self.schema.to_string(),
            self.sql if self.regenerated else "",
            *([] if self.key else [SIGNATURE_ALGORITHM]),
        ]
        return hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Operator:
    """A query over definitions (`i0`, `i1`, … in `sql`) that is more than select, project and join.

    It works part by part: `parts` names columns of each input, and the rows of all inputs that have the same values in
    them make their rows of the result among themselves. No columns mean one part, which is everything. `shown` says
    for each of these columns which column of the result shows it, if one does.

    An operator that is `linear` takes the rows of its first input each for itself: a row more there is its rows more.
    """

    kind: str
    sql: str
    inputs: tuple[ViewDefinition, ...]
    parts: tuple[tuple[str, ...], ...]
    schema: pa.Schema
    key: tuple[str, ...] = ()
    shown: tuple[str | None, ...] = ()
    linear: bool = False
    accumulators: Accumulators | None = None
    """What is held of each part so that changes can be added to it, if the operator is made of such aggregates."""

    @property
    def shape(self) -> Shape:
        return Shape(self.schema, self.key)

    def accumulating(self, held: Accumulators) -> Operator:
        """The operator whose result are its accumulators."""
        return replace(self, sql=held.sql, schema=held.schema, accumulators=None)

    @cached_property
    def name(self) -> str:
        """What it is called as a relation. Operators that compute the same have the same name."""
        meaning = [self.kind, self.sql, [one.fingerprint for one in self.inputs], self.parts, self.schema.to_string()]
        return f"{self.kind} {hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:16]}"


def sql_text(tree: exp.Expr, dialect: str = "duckdb") -> str:
    """An expression as SQL, its identifiers quoted."""
    return tree.sql(dialect=dialect, identify=True, comments=False)


def unqualified(tree: exp.Expr) -> str:
    """An expression that reads one occurrence alone, as SQL over that relation's own columns."""
    from sqlglot import exp

    bare = tree.copy()
    for column in bare.find_all(exp.Column):
        column.set("table", None)
    return sql_text(bare)
