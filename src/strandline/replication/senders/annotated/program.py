"""The SQL of a base and of its copies: composed and checked when they are defined, and kept in the catalog.

As in R*, where CREATE SNAPSHOT compiled a snapshot's refresh, a refresh loads the texts and hands numbers to them. They
are composed again only if what they were made for has changed: another copy came, a column changed its type, or this
code composes other texts (`EDITION`).

A copy's condition, the paper's SnapRestrict, is part of them. It is SQL of the base's own database, which evaluates it:
`restriction` checks it once and writes it again with the names quoted; a row for which it is null does not qualify.

Which statements there are, and why they do what figures 3 and 7 say, is told in `statements`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import SqlError, StrandlineError
from strandline.relations import Database, Row
from strandline.replication.senders.annotated.base_table import ADDRESS, PAPER, TIME
from strandline.replication.senders.annotated.statements import (
    BROKEN,
    CHANGED,
    DELETED,
    EVERY,
    FRESH,
    LAST_QUAL,
    MET,
    RUNS,
    SENT,
    TOUCHED,
    UNLIKE,
    A,
    FixUpNumbers,
    Statements,
    met,
    met_since,
    runs,
    sent_by_lookup,
    sent_by_runs,
)
from strandline.values import parse_condition, parse_sql, quoted


@dataclass(frozen=True)
class Restriction:
    """`sql` is in the base's dialect and never null; `columns` are those it reads."""

    sql: str
    columns: tuple[str, ...]


def restriction(where: str | None, schema: pa.Schema, dialect: str) -> Restriction:
    """The condition over rows of `schema`; all rows without one."""
    if where is None:
        return Restriction("(1 = 1)", ())
    condition = parse_condition(where, schema)
    own = {name.lower(): name for name in condition.columns}
    tree = parse_sql(where, "reading a condition", dialect)[0]
    from sqlglot import exp

    for column in tree.find_all(exp.Column):
        column.this.set("this", own.get(column.name.lower(), column.name))
    text = tree.sql(dialect=dialect, identify=True, comments=False)
    falsehood = "FALSE" if dialect == "postgres" else "0"
    return Restriction(f"coalesce(({text}), {falsehood})", condition.columns)


def check_restriction(restricted: Restriction, where: str | None, database: Database, table: str) -> None:
    """Lets the base's database have its say, before anything is made."""
    try:
        database.execute(f"SELECT 1 FROM {table} WHERE {restricted.sql} LIMIT 0")
    except StrandlineError as error:
        raise SqlError(f"{where!r} is nothing that the base's database can evaluate: {error.why}") from None


EDITION = 5
"""Grows whenever other texts are composed for the same definition."""
TEMPORARY = (TOUCHED, SENT, MET, RUNS, UNLIKE, FRESH, DELETED, BROKEN, EVERY)

TOUCH_ALL, REMOVE_DELETED, ROW_COUNT, FILL = "touch all", "remove deleted", "row count", "fill"
ENTER, ENTER_ABOVE, ENTER_UNLIKE, UNSETTLED = "enter", "enter above", "enter unlike", "unsettled"
COUNTS, SCAN, NO_BROKEN, FIX_UP = "counts", "by scan", "no broken", "fix up"
MET_SINCE, MET_COUNT, SENT_BY_RUNS, MESSAGES = "met since", "met count", "sent by runs", "messages"
ROWS, ALL, SOME, LAG = "rows", "all rows", "some rows", "lag"
TABLES = {SCAN: TOUCHED, NO_BROKEN: BROKEN, MET_SINCE: MET, SENT_BY_RUNS: SENT}
"""Statements that make a temporary table in another way than the one that has the table's name."""


@dataclass(frozen=True)
class Program:
    """Texts by name; a temporary table's name stands for the statement that makes it. `made_for` is a digest."""

    made_for: str
    texts: Mapping[str, str]

    def __contains__(self, name: object) -> bool:
        return name in self.texts

    def run(self, database: Database, name: str, numbers: FixUpNumbers) -> list[Row]:
        return database.execute(self.texts[name], numbers.values())

    def to_text(self) -> str:
        return json.dumps({"made_for": self.made_for, "texts": dict(self.texts)})

    @staticmethod
    def from_text(text: str | None) -> Program | None:
        record = json.loads(text) if text else None
        return None if record is None else Program(record["made_for"], record["texts"])


def digest(*facts: object) -> str:
    """Of whatever a program is made for."""
    return hashlib.blake2b(repr((EDITION, *facts)).encode(), digest_size=16).hexdigest()


def compose_fix_up(base: Statements) -> dict[str, str]:
    """Figure 7, with what `qualifies` says of the touched entries."""
    return _tables(base, {**base.by_lookup(), SCAN: base.by_scan(), NO_BROKEN: base.no_broken()})


def compose_base(base: Statements, restrictions: Mapping[int, str]) -> dict[str, str]:
    """What a base needs: fix-up for no copy in particular, and the writing of annotations, which knows all copies."""
    return {
        **compose_fix_up(base),
        **(_merging(base) if base.dialect == "postgres" else _looking_up(base)),
        REMOVE_DELETED: base.remove_deleted(),
        ENTER: base.enter(),
        TOUCH_ALL: base.touch_all(),
        UNSETTLED: base.unsettled(),
        FILL: base.fill(restrictions),
        FIX_UP: base.fix_up(restrictions),
    }


def _merging(base: Statements) -> dict[str, str]:
    """How fix-up meets the rows of a base: in one merge of them and their annotations."""
    made = {UNLIKE: base.unlike(), DELETED: base.deleted_of(), FRESH: base.fresh_of()}
    return {**_tables(base, made), ENTER_UNLIKE: base.enter_of(), COUNTS: base.counts_of()}


def _looking_up(base: Statements) -> dict[str, str]:
    """The same one question after the other."""
    above = {} if base.key.given else {ENTER_ABOVE: base.enter_above()}
    return {**_tables(base, {DELETED: base.deleted()}), **above, ROW_COUNT: base.row_count(), COUNTS: base.counts()}


def compose_copy(base: Statements, readings: Sequence[str]) -> dict[str, str]:
    """What a copy needs: its own fix-up, its messages, and its rows."""
    if base.dialect == "postgres" and base.algorithm != PAPER:
        made = {MET: met(), MET_SINCE: met_since(base), RUNS: runs(base)}
        made |= {SENT: sent_by_lookup(base), SENT_BY_RUNS: sent_by_runs(base)}
    else:
        made = {SENT: base.sent()}
    counting = {MET_COUNT: f"SELECT count(*) FROM {MET}"} if MET in made else {}
    a, columns = base.address, "".join(f", {reading}" for reading in readings)
    chosen = f"SELECT {a}{columns} FROM {base.rows}"
    return {
        **compose_fix_up(base),
        **_tables(base, made),
        **counting,
        MESSAGES: f"SELECT {A}, {LAST_QUAL}, {CHANGED} FROM {SENT} ORDER BY {A} NULLS LAST",
        ROWS: f"{chosen} JOIN {SENT} ON {a} = {A} WHERE {CHANGED} ORDER BY {A}",
        ALL: all_rows(base, readings),
        SOME: f"SELECT s.{quoted(ADDRESS)}{columns} FROM {base.annotated_rows} WHERE {base.qualifies}",
        LAG: _lag(base),
    }


def all_rows(base: Statements, readings: Sequence[str]) -> str:
    """What a copy should hold: addresses, and what the expressions give."""
    chosen = ", ".join([base.address, *readings])
    return f"SELECT {chosen} FROM {base.rows} WHERE {base.qualifies} ORDER BY {base.address}"


def _lag(base: Statements) -> str:
    """How many rows there are, and how many of them changed since the copy's position.

    In PostgreSQL, where a join costs as much as the rest of a small refresh, new rows are counted above all others, and
    elsewhere by how many more rows than entries there are.
    """
    late = f"sum(CASE WHEN s.{quoted(TIME)} <= {base.number('since')} THEN 0 ELSE 1 END)"
    if base.dialect != "postgres":
        return f"SELECT count(*), {late} FROM {base.table} b LEFT JOIN {base.annotations} s ON {base.same}"
    counted = f"SELECT coalesce({late}, 0) AS late, count(*) AS entries, max(s.{quoted(ADDRESS)}) AS last"
    above = "0" if base.key.given else f"(SELECT count(*) FROM {base.rows} WHERE {base.address} > e.last)"
    return (
        f"SELECT n, CAST(late + above + greatest(0, n - above - entries) AS bigint) FROM "
        f"(SELECT e.*, (SELECT count(*) FROM {base.table}) AS n, {above} AS above "
        f"FROM ({counted} FROM {base.annotations} s) e) c"
    )


def _tables(base: Statements, made: Mapping[str, str]) -> dict[str, str]:
    """PostgreSQL takes temporary tables away with the transaction, SQLite when it is asked to."""
    end = " ON COMMIT DROP" if base.dialect == "postgres" else ""
    return {name: f"CREATE TEMP TABLE {TABLES.get(name, name)}{end} AS {sql}" for name, sql in made.items()}


_MAKING = (UNLIKE, DELETED, FRESH, NO_BROKEN, BROKEN, EVERY, SCAN, TOUCHED, MET_SINCE, MET, RUNS, SENT_BY_RUNS, SENT)
"""Each after what it reads."""


def check(database: Database, program: Program) -> None:
    """Lets the database have its say on every statement, without doing anything: tables are made empty."""
    numbers = FixUpNumbers().values()
    for name in (name for name in _MAKING if name in program):
        database.execute(
            f"DROP TABLE IF EXISTS {'pg_temp' if database.dialect == 'postgres' else 'temp'}.{TABLES.get(name, name)}"
        )
        head, _, select = program.texts[name].partition(" AS ")
        empty = f"{select} WITH NO DATA" if database.dialect == "postgres" else f"SELECT * FROM ({select}) LIMIT 0"
        database.execute(f"{head} AS {empty}", numbers)
    for name in program.texts.keys() - set(_MAKING):
        database.execute(f"EXPLAIN {program.texts[name]}", numbers)


def forget(database: Database) -> None:
    """Removes what a transaction before this one left in a connection."""
    if database.dialect != "postgres":
        for name in TEMPORARY:
            database.execute(f"DROP TABLE IF EXISTS temp.{name}")
