"""SQL as text and as trees: the statements of a text, told where it is wrong; names and literals that our code writes.

`quoted` and `quoted_text` write in the form that DuckDB, PostgreSQL and SQLite share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from strandline.errors import SqlError, is_broken
from strandline.storage import import_whole

if TYPE_CHECKING:
    from sqlglot import exp

_SHOWN = 200


def load_sqlglot() -> None:
    """Before the first use of sqlglot, which an interrupt must not leave half imported."""
    import_whole("sqlglot", "sqlglot.dialects.duckdb", "strandline.values.duckdb_meaning")


def parse_sql(sql: str, doing: str, dialect: str = "duckdb") -> list[Any]:
    """The statements of a text. A mistake in it is told with its place, and what was expected."""
    if is_broken(sql):
        raise SqlError(f"{sql[:_SHOWN]!r} is no text: it holds half of a character", doing=doing)
    load_sqlglot()
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        if dialect == "duckdb":
            return _as_duckdb_reads(sql, doing)
        return [tree for tree in sqlglot.parse(sql, dialect=dialect) if tree is not None]
    except SqlglotError as error:
        places = getattr(error, "errors", None) or [{}]
        raise SqlError(f"{sql[:_SHOWN]!r} is not SQL{_mistake(places[0])}", doing=doing) from None


def _as_duckdb_reads(sql: str, doing: str) -> list[Any]:
    import_whole("strandline.values.duckdb_meaning")
    from strandline.values.duckdb_meaning import statements, text_to_parse

    reading = text_to_parse(sql)
    if reading.mistake:
        raise SqlError(f"{sql[:_SHOWN]!r} is not DuckDB's SQL: {reading.mistake}", doing=doing)
    if reading.text is None:
        raise SqlError(
            f"{sql[:_SHOWN]!r} could be read in another way than DuckDB reads it",
            doing=doing,
            hint="Put its parts into parentheses, and call functions by name instead of by signs",
        )
    trees = list(statements(reading.text))
    if reading.text != sql:
        for node in (node for tree in trees for node in tree.walk()):
            node.meta.pop("start", None)  # a place in DuckDB's writing, not in the user's
    return trees


def parse_written(sql: str) -> exp.Expr:
    """The one statement or expression of a text that was written from a tree, not by a user (`parse_sql`)."""
    load_sqlglot()
    from sqlglot.errors import ParseError

    from strandline.values.duckdb_meaning import statements

    trees = statements(sql)
    if len(trees) != 1:
        raise ParseError(f"{len(trees)} statements")
    return trees[0]


def translated(tree: Any, dialect: str, *, identify: bool = True) -> str:
    """A tree of DuckDB's SQL as a text of another dialect, or as it is."""
    import sqlglot

    text: str = tree.sql(dialect="duckdb", identify=identify)
    if dialect == "duckdb":
        return text
    tree = sqlglot.parse_one(text, dialect="duckdb")
    tree = tree.transform(_without_zone) if dialect == "spark" else tree
    written: str = tree.sql(dialect=dialect, identify=identify)
    return written


def _without_zone(node: Any) -> Any:
    """A TIMESTAMP has no zone in DuckDB; to Spark that word means an instant, by the session's zone."""
    from sqlglot import exp

    if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.TIMESTAMP:
        return exp.DataType(this=exp.DataType.Type.TIMESTAMPNTZ)
    return node


def parse_query(sql: str, doing: str, dialect: str = "duckdb") -> Any:
    """The one query of a text; what is none, or writes, is refused."""
    trees = parse_sql(sql, doing, dialect)
    from sqlglot import exp

    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlError("only one query, as SELECT …, can be run", doing=doing, hint="Give one SELECT")
    writing = trees[0].find(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Command, exp.Into)
    if writing is not None:
        raise SqlError(f"a query must not write: {writing.sql()[:60]}", doing=doing)
    return trees[0]


def conjuncts(tree: Any) -> Iterator[Any]:
    """The terms of a conjunction, however it is nested; a tree that is none is its only term."""
    from sqlglot import exp

    inner = tree.unnest()
    if isinstance(inner, exp.And):
        yield from conjuncts(inner.this)
        yield from conjuncts(inner.expression)
    else:
        yield inner


def _mistake(place: dict[str, Any]) -> str:
    """Where the parser stopped, and why, in words of ours."""
    if "col" not in place:
        return ": a quotation mark or a comment is not closed"
    token, description = place["highlight"], place["description"]
    line = f"line {place['line']}, " if place["line"] > 1 else ""
    where = f" at {line}position {place['col'] - len(token) + 1}"
    if description.startswith("Expecting "):
        return f"{where}: {description.removeprefix('Expecting ')} was expected, not {token!r}"
    if description.startswith("Required keyword"):
        return f"{where}: something is missing beside {token!r}"
    if description.startswith("Expected "):
        return f"{where}: {description.removeprefix('Expected ').partition(' but ')[0]} was expected after {token!r}"
    return f"{where}: {token!r} was not expected"


def quoted(*names: str | None) -> str:
    """An identifier, qualified where more than one name is given; None stands for no qualifier.

    >>> quoted('odd"name'), quoted("shop", "orders"), quoted(None, "orders")
    ('"odd""name"', '"shop"."orders"', '"orders"')
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names if name is not None)


def quoted_text(text: str) -> str:
    """A text as a literal.

    >>> print(quoted_text("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def free_name(name: str, taken: Iterable[str]) -> str:
    """A name for a column of our own beside columns that are called `taken`: none of them, whatever the case.

    Code that adds a column to a user's rows names it by this, and drops it before the user sees the rows.

    >>> free_name("place", ["id", "name"]), free_name("place", ["place", "Place_"])
    ('place', 'place__')
    """
    folded = {other.casefold() for other in taken}
    while name.casefold() in folded:
        name += "_"
    return name
