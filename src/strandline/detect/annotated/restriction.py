"""SnapRestrict: a copy's condition, checked once and put into the dialect of the base's own database, which evaluates
it. A row for which it is null does not qualify."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import SqlError, StrandlineError
from strandline.relations.expressions import parse_condition
from strandline.replicas.databases import Database


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
    import sqlglot

    text = sqlglot.transpile(condition.sql, read="duckdb", write=dialect, identify=True, comments=False)[0]
    falsehood = "FALSE" if dialect == "postgres" else "0"
    return Restriction(f"coalesce(({text}), {falsehood})", condition.columns)


def check_restriction(found: Restriction, where: str | None, database: Database, table: str) -> None:
    """Lets the base's database have its say, before anything is made."""
    try:
        database.execute(f"SELECT 1 FROM {table} WHERE {found.sql} LIMIT 0")
    except StrandlineError as error:
        raise SqlError(f"{where!r} is nothing that the base's database can evaluate: {error.why}") from None
