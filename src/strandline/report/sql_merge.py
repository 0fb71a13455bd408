"""A change set as SQL: MERGE statements that bring a table of a database to the new state.

Deletes come first, then updates and inserts together, in batches with a VALUES list as their source. Running the
script twice is harmless: what is gone stays gone, and what is there is set again. Names are quoted and literals
escaped by sqlglot for the dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes.shape import DELETE, Header
from strandline.errors import ChangesError, InputError, SqlError
from strandline.report.cells import of_kind, require_keyed
from strandline.report.values import python_values

if TYPE_CHECKING:
    from sqlglot import exp

DIALECTS = ("standard", "duckdb", "postgres", "spark", "snowflake")
BATCH = 500
LINE = 1_000_000  # a row of the VALUES list stays on one line
DOING = "writing changes as SQL"
_FOLDED = re.compile(r"[a-z_][a-z0-9_]*")


def sql_merge(header: Header, tables: Iterable[pa.Table], table_name: str, dialect: str = "standard") -> Iterator[str]:
    """The statements, each ending in a semicolon, that make the changes in the table of that name.

    Everything is checked before the first statement: counted sets, sets over a schema that drifted, types without
    literals and unknown dialects are refused. `tables` are the rows of the set; they are gone through twice, so they
    are kept at hand.
    """
    target = _target(table_name, _dialect(dialect))
    _check(header, _dialect(dialect))
    return _statements(header, list(tables), target, _dialect(dialect))


def _statements(header: Header, rows: Sequence[pa.Table], target: exp.Table, dialect: str) -> Iterator[str]:
    for part in rows:
        gone = part.select(header.key).filter(pa.array(of_kind(part, DELETE)))
        for batch in _batches(gone):
            yield _sql(_merge(target, batch, header.key, dialect, deletes=True), dialect)
    for part in rows:
        kept = part.select(header.columns).filter(pa.array(~of_kind(part, DELETE)))
        for batch in _batches(kept):
            yield _sql(_merge(target, batch, header.key, dialect, deletes=False), dialect)


def _check(header: Header, dialect: str) -> None:
    from strandline.report.sql_types import sql_type

    require_keyed(header, DOING)
    drifted = (*header.added, *header.removed, *header.retyped)
    if drifted:
        raise ChangesError(
            f"the schema changed ({', '.join(drifted)}), and a MERGE changes rows alone",
            doing=DOING,
            hint="Alter the table first and compare again, or leave these columns out",
        )
    for field in header.after_schema:
        sql_type(field.name, field.type, dialect)


def _merge(target: exp.Table, batch: pa.Table, key: Sequence[str], dialect: str, *, deletes: bool) -> exp.Merge:
    from sqlglot import exp

    merged = exp.Merge(
        this=exp.alias_(target.copy(), "target", table=True),
        using=_source(batch, dialect),
        on=exp.and_(*(_meets(name, batch.column(name).null_count > 0, dialect) for name in key)),
    )
    if deletes:
        branches = [exp.When(matched=True, then=exp.var("DELETE"))]
    else:
        branches = [exp.When(matched=False, then=_insert(batch.column_names, dialect))]
        values = [name for name in batch.column_names if name not in key]
        if values:
            pairs = [exp.EQ(this=exp.column(_name(n, dialect)), expression=_incoming(n, dialect)) for n in values]
            branches.insert(0, exp.When(matched=True, then=exp.Update(expressions=pairs)))
    merged.set("whens", exp.Whens(expressions=branches))
    return merged


def _source(batch: pa.Table, dialect: str) -> exp.Expression:
    """`(SELECT CAST(c1 AS …) AS "id", … FROM (VALUES …) AS v(c1, …)) AS source`."""
    from sqlglot import exp

    from strandline.report.sql_types import check_values, converted, literal, needs_text, sql_type

    columns, chosen = [], []
    for place, field in enumerate(batch.schema):
        values = python_values(batch.column(place))
        check_values(field, values, dialect)
        as_text = needs_text(field.type, values)
        columns.append([literal(value, as_text=as_text) for value in values])
        target = sql_type(field.name, field.type, dialect)
        cast = converted(exp.column(f"c{place + 1}", table="v"), field.type, target, dialect)
        chosen.append(exp.alias_(cast, _name(field.name, dialect)))
    lines = [exp.Tuple(expressions=list(line)) for line in zip(*columns, strict=True)]
    names = [exp.to_identifier(f"c{place + 1}") for place in range(len(columns))]
    values_list = exp.Values(expressions=lines, alias=exp.TableAlias(this=exp.to_identifier("v"), columns=names))
    return exp.select(*chosen).from_(values_list).subquery("source")


def _meets(name: str, nulls: bool, dialect: str) -> exp.Expression:
    """Where keys are equal. The null-safe comparison, which databases can't hash, only where a key is null."""
    from sqlglot import exp

    kind = exp.NullSafeEQ if nulls else exp.EQ
    return kind(this=exp.column(_name(name, dialect), table="target"), expression=_incoming(name, dialect))


def _insert(names: Sequence[str], dialect: str) -> exp.Insert:
    from sqlglot import exp

    return exp.Insert(
        this=exp.Tuple(expressions=[exp.column(_name(name, dialect)) for name in names]),
        expression=exp.Tuple(expressions=[_incoming(name, dialect) for name in names]),
    )


def _incoming(name: str, dialect: str) -> exp.Column:
    from sqlglot import exp

    return exp.column(_name(name, dialect), table="source")


def _name(name: str, dialect: str) -> exp.Identifier:
    """A quoted name; Snowflake folds unquoted names to upper case, so there plain ones stay unquoted."""
    from sqlglot import exp

    plain = dialect == "snowflake" and (_FOLDED.fullmatch(name) or (_FOLDED.fullmatch(name.lower()) and name.isupper()))
    return exp.to_identifier(name, quoted=not plain or name.upper() in _reserved())


@cache
def _reserved() -> frozenset[str]:
    from sqlglot.dialects.snowflake import Snowflake

    return frozenset(word.upper().split()[0] for word in Snowflake.Tokenizer.KEYWORDS if word.strip())


def _target(table_name: str, dialect: str) -> exp.Table:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        table: Any = exp.maybe_parse(table_name, into=exp.Table, dialect=dialect or None)
    except SqlglotError as error:
        raise SqlError(f"{table_name!r} is no name of a table: {str(error).splitlines()[0]}", doing=DOING) from None
    if not isinstance(table, exp.Table) or not table.name or table.args.get("alias"):
        raise SqlError(f"{table_name!r} is no name of a table", doing=DOING, hint="Give a name such as shop.orders")
    return table


def _dialect(name: str) -> str:
    if name not in DIALECTS:
        raise InputError(f"unknown dialect {name!r}", doing=DOING, hint=f"Choose one of {', '.join(DIALECTS)}")
    return "" if name == "standard" else name


def _sql(statement: exp.Expression, dialect: str) -> str:
    return f"{statement.sql(dialect=dialect or None, pretty=True, max_text_width=LINE)};"


def _batches(rows: pa.Table) -> Iterator[pa.Table]:
    for start in np.arange(0, len(rows), BATCH).tolist():
        yield rows.slice(start, BATCH)
