"""Random schemas, views and transactions: what the property tests of views draw from.

Join columns hold few values and NULL, so that rows meet, meet several times, and fail to meet. Tables have a key of one
or two columns, or none (then equal rows are common). Every view is plain SQL text, so that DuckDB, given the same
tables, is an oracle that shares nothing with the code under test.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from strandline.store import Store
from strandline.tables import Limits, TableTransaction

TINY = Limits(page_rows=4, cut_rows=3, join_rows=2, most_in_overlay=1, fewest_for_overlay=3)
FEW = st.integers(0, 3)
VALUES = {
    "x": st.one_of(st.none(), FEW),
    "y": st.one_of(st.none(), FEW),
    "s": st.sampled_from([None, "", "a", "ä", "a'b"]),
    "d": st.sampled_from([None, Decimal("0.10"), Decimal("1.00"), Decimal("-2.50")]),
}
TYPES = {"x": pa.int64(), "y": pa.int64(), "s": pa.string(), "d": pa.decimal128(6, 2)}
_oracle = duckdb.connect(":memory:", config={"threads": 1})
RARE = ("rekey", "column", "trade", "empty", "back")
KEYS: tuple[tuple[str, ...], ...] = ((), ("k",), ("k", "j"))


@dataclass
class Relations:
    """The tables of one example as plain rows: the oracle's own copy."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    steps: int = 0
    """How many were performed: names and keys that come later are new ones."""
    views: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Views that others stand on, in order: the query, and whether its rows are stored."""
    gone: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The rows that were deleted last."""

    def schema(self, name: str) -> pa.Schema:
        key = [pa.field(column, pa.int64(), nullable=False) for column in self.keys[name]]
        return pa.schema([*key, *(pa.field(column, kind) for column, kind in TYPES.items())])

    def table(self, name: str) -> pa.Table:
        return pa.Table.from_pylist(self.rows[name], schema=self.schema(name))

    def query(self, sql: str) -> Counter[tuple[Any, ...]]:
        """The query's rows as a multiset, by DuckDB alone."""
        for name in self.keys:
            _oracle.register(name, self.table(name))
        for name, (text, _) in self.views.items():
            _oracle.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
        return Counter(_oracle.sql(sql).fetchall())

    def create(self, store: Store) -> None:
        for name, key in self.keys.items():
            store.create_table(name, self.table(name), key=list(key) or None)

    def create_views(self, store: Store) -> None:
        """The views that others stand on; of those that are there, nothing changes."""
        for name, (text, stored) in self.views.items():
            store.view(name, text, stored=stored)


@st.composite
def relations(draw: st.DrawFn, least: int = 1, most: int = 4) -> Relations:
    """Tables with a few rows each."""
    found = Relations()
    for number in range(draw(st.integers(least, most))):
        name = f"t{number}"
        found.keys[name] = draw(st.sampled_from(KEYS))
        found.rows[name] = draw(new_rows(found, name, 8))
    return found


@st.composite
def new_rows(draw: st.DrawFn, known: Relations, name: str, most: int) -> list[dict[str, Any]]:
    """Rows for a table; keys differ among them."""
    key = known.keys[name]
    columns = {**dict.fromkeys(key, FEW), **VALUES}
    rows = draw(st.lists(st.fixed_dictionaries(columns), max_size=most))
    return list({tuple(row[c] for c in key): row for row in rows}.values()) if key else rows


@st.composite
def views(draw: st.DrawFn, known: Relations, most: int = 4) -> str:
    """One SELECT: one to `most` occurrences, joined by equalities of all kinds, inequalities, or not at all."""
    names = draw(st.lists(st.sampled_from(sorted(known.keys)), min_size=1, max_size=most))
    aliases = [f"a{place}" for place in range(len(names))]
    columns = [[*known.keys[name], *TYPES] for name in names]
    joins = [f"{names[0]} AS a0"]
    for place in range(1, len(names)):
        joins.append(_join(draw, names, aliases, columns, place))
    terms = [_term(draw, aliases, columns) for _ in range(draw(st.integers(0, 2)))]
    where = f" WHERE {draw(st.sampled_from([' AND ', ' OR '])).join(terms)}" if terms else ""
    return f"SELECT {', '.join(_outputs(draw, aliases, columns))} FROM {' '.join(joins)}{where}"


def _join(draw: st.DrawFn, names: list[str], aliases: list[str], columns: list[list[str]], place: int) -> str:
    mine = [c for c in columns[place] if c in ("k", "j", "x", "y")]
    other = draw(st.integers(0, place - 1))
    theirs = [c for c in columns[other] if c in ("k", "j", "x", "y")]
    sign = draw(st.sampled_from(["=", "=", "=", "<", "<="]))
    kind = draw(st.sampled_from(["JOIN", "JOIN", "JOIN", "CROSS"]))
    if kind == "CROSS":
        return f"CROSS JOIN {names[place]} AS {aliases[place]}"
    terms = [f"{aliases[other]}.{draw(st.sampled_from(theirs))} {sign} {aliases[place]}.{draw(st.sampled_from(mine))}"]
    if known_key(columns[place]) and draw(st.booleans()):
        terms = [
            f"{aliases[other]}.{draw(st.sampled_from(theirs))} = {aliases[place]}.{c}" for c in ("k", "j") if c in mine
        ]
    return f"JOIN {names[place]} AS {aliases[place]} ON {' AND '.join(terms)}"


def known_key(columns: list[str]) -> bool:
    return "k" in columns


def _term(draw: st.DrawFn, aliases: list[str], columns: list[list[str]]) -> str:
    place = draw(st.integers(0, len(aliases) - 1))
    alias = aliases[place]
    return draw(
        st.sampled_from(
            [
                f"{alias}.x < 2",
                f"{alias}.y = 1",
                f"NOT {alias}.x = 1",
                f"{alias}.s IS NULL",
                f"{alias}.d > 0",
                f"coalesce({alias}.x, 0) + 1 <> {alias}.y",
                f"{alias}.s IN ('a', 'ä')",
                f"{alias}.x BETWEEN 0 AND {alias}.y",
                *([f"{alias}.k = 2"] if "k" in columns[place] else []),
            ]
        )
    )


def _outputs(draw: st.DrawFn, aliases: list[str], columns: list[list[str]]) -> list[str]:
    everything = [(alias, column) for alias, own in zip(aliases, columns, strict=True) for column in own]
    keys: list[tuple[str, str]] = [pair for pair in everything if pair[1] in ("k", "j")]
    chosen = draw(st.lists(st.sampled_from(everything), min_size=1, max_size=4, unique=True))
    if keys and bool(draw(st.integers(0, 1))):
        chosen = list(dict.fromkeys([*keys, *chosen]))
    found = [f"{alias}.{column} AS {alias}_{column}" for alias, column in chosen]
    if draw(st.booleans()):
        found.append(f"coalesce({aliases[0]}.x, 0) * 2 + 1 AS made")
    return found


@st.composite
def transactions(draw: st.DrawFn, known: Relations) -> list[tuple[str, str, Any]]:
    """A few steps, each (verb, table, what): rows to insert or upsert, or a value of x to delete, to update or to give
    other keys; or another column, or that x and y trade their names; or that all rows go, or the last ones return.
    """
    steps: list[tuple[str, str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(known.keys)))
        verb = draw(st.sampled_from(["put", "put", "put", "delete", "delete", "update", "update", *RARE]))
        steps.append((verb, name, draw(new_rows(known, name, 4)) if verb == "put" else draw(FEW)))
    return steps


def perform(store: Store, known: Relations, steps: list[tuple[str, str, Any]]) -> None:
    """One transaction, on the store and on the oracle."""
    with store.transaction() as transaction:
        for verb, name, what in steps:
            key = known.keys[name]
            known.steps += 1
            if verb == "put" and what:
                rows = pa.Table.from_pylist(what, schema=known.schema(name))
                _ = transaction.upsert(name, rows) if key else transaction.insert(name, rows)
                taken = {tuple(row[c] for c in key) for row in what} if key else set()
                kept = [row for row in known.rows[name] if not key or tuple(row[c] for c in key) not in taken]
                known.rows[name] = [*kept, *what]
            elif verb == "delete":
                transaction.delete(name, where="x = :x", params={"x": what})
                known.gone[name] = [row for row in known.rows[name] if row["x"] == what]
                known.rows[name] = [row for row in known.rows[name] if row["x"] != what]
            elif verb == "update":
                transaction.update(name, where="y = :y", set={"x": "y - 1", "s": "'u'"}, params={"y": what})
                known.rows[name] = [
                    {**row, "x": what - 1, "s": "u"} if row["y"] == what else row for row in known.rows[name]
                ]
            else:
                _perform_rare(transaction, known, (verb, name, what))


def _perform_rare(transaction: TableTransaction, known: Relations, step: tuple[str, str, Any]) -> None:
    verb, name, what = step
    if verb == "rekey" and known.keys[name]:
        moved = 4**known.steps  # rows never meet: a key is the sum of another set of such
        transaction.update(name, where="x = :x", set={"k": f"k + {moved}"}, params={"x": what})
        known.rows[name] = [{**row, "k": row["k"] + moved} if row["x"] == what else row for row in known.rows[name]]
    elif verb == "empty":
        transaction.delete(name)
        known.gone[name], known.rows[name] = known.rows[name], []
    elif verb == "back":
        taken = {_key_values(known, name, row) for row in known.rows[name]} if known.keys[name] else set()
        back = [row for row in known.gone.get(name, []) if _key_values(known, name, row) not in taken]
        if back:
            transaction.insert(name, pa.Table.from_pylist(back, schema=known.schema(name)))
        known.rows[name] = [*known.rows[name], *back]
    elif verb == "column":
        transaction.add_column(name, f"more{known.steps}", "int64", default=what)
    elif verb == "trade":
        for old, new in (("x", "spare"), ("y", "x"), ("spare", "y")):
            transaction.rename_column(name, old, new)
        known.rows[name] = [{**row, "x": row["y"], "y": row["x"]} for row in known.rows[name]]


def _key_values(known: Relations, name: str, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in known.keys[name])


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows of an Arrow table as a multiset."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def rounded(rows: Counter[Any]) -> Counter[Any]:
    """DuckDB's own averages differ in the last digits, as a query is planned."""
    return Counter(tuple(f"{one:.14e}" if isinstance(one, float) else one for one in row) for row in rows.elements())
