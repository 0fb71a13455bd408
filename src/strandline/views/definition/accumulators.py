"""Operators to whose results changes can be added: what is held of each, and how results follow from it.

    count(*), count(x)      how many
    sum(x), avg(x)          the exact sum of whole numbers or decimals, and how many
    min(x), max(x)          the value, as long as no row that has it goes
    ORDER BY … LIMIT n      the first rows, and some more, as long as n are left

Accumulators are the result of a query of their own over the rows of a group, so those of inserted rows are added, those
of deleted rows are taken away, and a group without rows is gone. A least or greatest value that was deleted has to be
computed again: `merged` says for which groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.values import (
    cast_rows,
    first_occurrences,
    free_name,
    is_sought,
    match,
    meets,
    plain_schema,
    quoted,
    sought_values,
)
from strandline.views.definition.regenerated import computed

if TYPE_CHECKING:
    from sqlglot import exp

ROWS = "rows"
"""The accumulator that counts the rows of a group."""

ADDED, LEAST, GREATEST = "sum", "min", "max"
"""How accumulators of the same group are put together."""

_DOING = "adding changes to groups"


class Accumulators(Protocol):
    """What is held of an operator: `sql` computes it over rows `i0`, in `schema`, by groups of the columns `keys`."""

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def sql(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def results(self, states: Sequence[pa.Table]) -> list[pa.Table]:
        """The rows of the operator, of what is held at each of some states."""
        ...

    def merged(self, old: pa.Table, inserted: pa.Table, deleted: pa.Table) -> tuple[pa.Table, pa.Table]:
        """What is held, with that of inserted rows and without that of deleted ones; and groups to compute again."""
        ...

    def parted(self, rows: pa.Table, groups: pa.Table) -> tuple[pa.Table, pa.Table]:
        """What is held of some groups, and of all others."""
        ...

    def together(self, pieces: Sequence[pa.Table]) -> pa.Table:
        """What is held of all rows, of what is held of some of them each."""
        ...


@dataclass(frozen=True)
class GroupAccumulators:
    """Those of a GROUP BY. `computing` has their SQL over `i0`, `kinds` says how each is put together,
    `results_sql` how the columns of the result follow.
    """

    keys: tuple[str, ...]
    computing: Mapping[str, str]
    schema: pa.Schema
    kinds: Mapping[str, str]
    results_sql: Mapping[str, str]

    @property
    def sql(self) -> str:
        return self._over("i0")

    def _over(self, rows: str) -> str:
        """Those of the rows of a table."""
        shown = [*map(quoted, self.keys), *(f"{text} AS {quoted(name)}" for name, text in self.computing.items())]
        return f"SELECT {', '.join(shown)} FROM {rows} AS i0{self._grouped}"

    @property
    def _grouped(self) -> str:
        return f" GROUP BY {', '.join(map(quoted, self.keys))}" if self.keys else ""

    def results(self, states: Sequence[pa.Table]) -> list[pa.Table]:
        """The rows of the GROUP BY, by one query for all states where there is something to compute."""
        held = {quoted(name): name for name in self.schema.names}
        if all(sql in held for sql in self.results_sql.values()):
            columns = dict(zip(self.keys, self.keys, strict=True)) | {
                n: held[sql] for n, sql in self.results_sql.items()
            }
            return [pa.table({name: rows.column(one) for name, one in columns.items()}) for rows in states]
        state = free_name("state", [*self.schema.names, *self.results_sql])
        places = np.repeat(np.arange(len(states)), [len(rows) for rows in states])
        rows = pa.concat_tables(states).append_column(state, pa.array(places))
        shown = [*map(quoted, self.keys), *(f"{sql} AS {quoted(name)}" for name, sql in self.results_sql.items())]
        results = computed(f"SELECT {', '.join(shown)}, {quoted(state)} FROM held", {"held": rows}, _DOING)
        of_state = np.asarray(results.column(state))
        results = results.drop_columns([state])
        return [results.filter(pa.array(of_state == place)) for place in range(len(states))]

    def merged(self, old: pa.Table, inserted: pa.Table, deleted: pa.Table) -> tuple[pa.Table, pa.Table]:
        """By one query: what computing takes here is mostly the price of asking. A least or greatest value is lost
        where one that was deleted is no greater, or no less, than the one that is held.
        """
        side, lost = (quoted(free_name(name, self.schema.names)) for name in ("side", "lost"))
        sides = [f"SELECT *, 0 AS {side} FROM old"]
        sides += [f"SELECT *, {sign} FROM ({self._over(rows)})" for sign, rows in ((1, "inserted"), (-1, "deleted"))]
        shown, gone = list(map(quoted, self.keys)), ["false"]
        for name, kind in self.kinds.items():
            column = quoted(name)
            if kind == ADDED:
                shown.append(f"SUM(CASE WHEN {side} < 0 THEN -{column} ELSE {column} END) AS {column}")
                continue
            shown.append(f"{kind}({column}) FILTER ({side} >= 0) AS {column}")
            parts = [f"{kind}({column}) FILTER ({side} {sign} 0)" for sign in "<="]
            gone.append(f"COALESCE({parts[0]} {'<=' if kind == LEAST else '>='} {parts[1]}, false)")
        having = f" HAVING SUM(CASE WHEN {side} < 0 THEN -{quoted(ROWS)} ELSE {quoted(ROWS)} END) > 0"
        sql = (
            f"SELECT {', '.join(shown)}, {' OR '.join(gone)} AS {lost} FROM ({' UNION ALL '.join(sides)})"
            f"{self._grouped}{having if self.keys else ''}"
        )
        rows = computed(sql, {"old": old, "inserted": inserted, "deleted": deleted}, _DOING)
        groups = rows.filter(rows.column(rows.num_columns - 1))
        names = [f"p{place}" for place in range(max(len(self.keys), 1))]
        again = groups.select(list(self.keys) or groups.column_names[:1]).rename_columns(names)
        return cast_rows(rows.select(self.schema.names), self.schema), again

    def parted(self, rows: pa.Table, groups: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Accumulators of some groups, and those of all others."""
        if not self.keys:
            return rows, rows.slice(0, 0)
        held, groups = rows.select(list(self.keys)), groups.select(list(self.keys))
        groups = groups.take(pa.array(np.unique(first_occurrences(groups))))
        sought = {name: groups.column(name) for name in self.keys if is_sought(groups.schema.field(name).type)}
        near = np.flatnonzero(meets(held, sought_values(sought, nulls=True)))
        chosen = np.zeros(len(rows), dtype=np.bool_)
        chosen[near[match(held.take(pa.array(near)), groups).old]] = True
        return rows.filter(pa.array(chosen)), rows.filter(pa.array(~chosen))

    def together(self, pieces: Sequence[pa.Table]) -> pa.Table:
        shown = [*map(quoted, self.keys)]
        shown += [f"{kind}({quoted(name)}) AS {quoted(name)}" for name, kind in self.kinds.items()]
        sql = f"SELECT {', '.join(shown)} FROM held{self._grouped}"
        return cast_rows(computed(sql, {"held": pa.concat_tables(pieces)}, _DOING), self.schema)


SPARE = 100
"""How many more rows than it shows are held of a LIMIT."""


@dataclass(frozen=True)
class FirstRows:
    """What is held of ORDER BY … LIMIT: the first rows of an order that leaves no choice, `end` of them for the result.

    Each says whether there are rows behind the last of them; what is inserted there is not held.
    """

    query: str
    order: str
    end: int
    columns: pa.Schema
    keys: tuple[str, ...] = ()

    @property
    def most(self) -> int:
        return self.end + SPARE

    @property
    def more(self) -> str:
        """The column that says whether there are rows behind the last."""
        return free_name("more", self.columns.names)

    @property
    def sql(self) -> str:
        return f"SELECT *, COUNT(*) OVER () > {self.most} AS {quoted(self.more)} FROM i0 {self.order} LIMIT {self.most}"

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(self.columns).append(pa.field(self.more, pa.bool_()))

    def results(self, states: Sequence[pa.Table]) -> list[pa.Table]:
        return [computed(self.query, {"i0": rows.select(self.columns.names)}, _DOING) for rows in states]

    def merged(self, old: pa.Table, inserted: pa.Table, deleted: pa.Table) -> tuple[pa.Table, pa.Table]:
        more = bool(len(old)) and bool(old.column(self.more)[0].as_py())
        old, inserted, deleted = (one.select(self.columns.names) for one in (old, inserted, deleted))
        inside = self._before_last(old, inserted) if more else inserted
        left = computed("SELECT * FROM old EXCEPT ALL SELECT * FROM gone", {"old": old, "gone": deleted}, _DOING)
        rows = pa.concat_tables([cast_rows(one, plain_schema(self.columns)) for one in (left, inside)])
        held = computed(f"SELECT * FROM i0 {self.order} LIMIT {self.most}", {"i0": rows}, _DOING)
        is_more = pa.array([more or len(rows) > self.most] * len(held), pa.bool_())
        lost = [1] if more and len(rows) < self.end else []
        return cast_rows(held.append_column(self.more, is_more), self.schema), pa.table({"p0": lost})

    def _before_last(self, old: pa.Table, inserted: pa.Table) -> pa.Table:
        """The inserted rows that come before the last of those that were held."""
        mark = quoted(free_name("is inserted", self.columns.names))
        both = f"SELECT *, false AS {mark} FROM old UNION ALL SELECT *, true FROM inserted"
        ordered = computed(f"SELECT * FROM ({both}) AS i0 {self.order}", {"old": old, "inserted": inserted}, _DOING)
        is_new = np.asarray(ordered.column(ordered.num_columns - 1), dtype=np.bool_)
        last = int(np.flatnonzero(~is_new)[-1])
        return ordered.slice(0, last).filter(pa.array(is_new[:last])).select(self.columns.names)

    def parted(self, rows: pa.Table, groups: pa.Table) -> tuple[pa.Table, pa.Table]:
        return rows, rows.slice(0, 0)

    def together(self, pieces: Sequence[pa.Table]) -> pa.Table:
        rows = pa.concat_tables(pieces)
        more = len(rows) > self.most or any(len(one) and one.column(self.more)[0].as_py() for one in pieces)
        sql = f"SELECT * FROM i0 {self.order} LIMIT {self.most}"
        first = computed(sql, {"i0": rows.select(self.columns.names)}, _DOING)
        return cast_rows(first.append_column(self.more, pa.array([more] * len(first), pa.bool_())), self.schema)


@dataclass(frozen=True)
class Summand:
    """An aggregate over `i0`: its function, what it is given (as SQL), its FILTER, and the type of what it is given."""

    function: str
    given: str
    condition: str
    type: pa.DataType | None

    @staticmethod
    def of(tree: exp.Expr, type_: pa.DataType | None) -> Summand | None:
        """An aggregate of one value without more; None for others."""
        from sqlglot import exp

        condition = tree.args["expression"].sql(dialect="duckdb") if isinstance(tree, exp.Filter) else ""
        called = tree.this if isinstance(tree, exp.Filter) else tree
        if not isinstance(called, exp.AggFunc) or isinstance(called.this, exp.Distinct):
            return None
        if any(value for name, value in called.args.items() if name not in ("this", "big_int")):
            return None  # max(x, n) is a list of n values
        given = called.this.sql(dialect="duckdb", identify=True)
        return Summand(called.sql_name().lower(), given, condition, type_)

    def call(self, function: str) -> str:
        return f"{function}({self.given})" + (f" FILTER ({self.condition})" if self.condition else "")

    def accumulators(self, name: str) -> tuple[dict[str, tuple[str, str]], str] | None:
        """Accumulators by name (a kind, and SQL), and the result that follows from them; None if there are none."""
        first, second = f"{name} 0", f"{name} 1"
        if self.function == "count":
            return {first: (ADDED, self.call("COUNT"))}, quoted(first)
        if self.type is None or pt.is_nested(self.type):
            return None
        if self.function in (LEAST, GREATEST):
            return {first: (self.function, self.call(self.function))}, quoted(first)
        if self.function not in ("sum", "avg") or not is_summed_exactly(self.type):
            return None
        scale = self.type.scale if pt.is_decimal(self.type) else 0
        total = f"CAST(COALESCE({self.call('SUM')}, 0) AS DECIMAL(38, {scale}))"
        held = {first: (ADDED, total), second: (ADDED, self.call("COUNT"))}
        if self.function == "avg":
            return held, average(quoted(first), quoted(second), self.type)
        summed = quoted(first) if scale else f"CAST({quoted(first)} AS HUGEINT)"
        return held, f"CASE WHEN {quoted(second)} > 0 THEN {summed} END"


def average(total: str, count: str, type_: pa.DataType) -> str:
    """An exact sum, divided by a count: by one division of doubles, of a decimal's digits as a whole number.

    DuckDB divides in one of two ways, whose last digits differ, as a query happens to be planned.
    """
    scale = type_.scale if pt.is_decimal(type_) else 0
    digits = f"CAST(REPLACE(CAST({total} AS VARCHAR), '.', '') AS HUGEINT)" if scale > 0 else total
    return f"(CAST({digits} AS DOUBLE) / NULLIF({count} * {10 ** max(scale, 0)}, 0))"


def is_summed_exactly(type_: pa.DataType) -> bool:
    """Whether sums of values of a type are exact: those of whole numbers and decimals."""
    return bool(pt.is_integer(type_) or (pt.is_decimal128(type_) and type_.scale >= 0))


def accumulators_of(
    keys: Sequence[str], aggregates: Mapping[str, Summand | None], empty: pa.Table
) -> Accumulators | None:
    """The accumulators of aggregates over `i0`, which has the columns of `empty`; None if one of them has none."""
    held = {ROWS: (ADDED, "COUNT(*)")}
    results = {}
    for name, summand in aggregates.items():
        parts = None if summand is None else summand.accumulators(name)
        if parts is None:
            return None
        held |= parts[0]
        results[name] = parts[1]
    computing = {name: text for name, (_, text) in held.items()}
    kinds = {name: kind for name, (kind, _) in held.items()}
    made = GroupAccumulators(tuple(keys), computing, pa.schema([]), kinds, results)
    fields = list(computed(made.sql, {"i0": empty}, _DOING).schema)[len(keys) :]
    schema = plain_schema(pa.schema([*(empty.schema.field(name) for name in keys), *fields]))
    return replace(made, schema=schema)
