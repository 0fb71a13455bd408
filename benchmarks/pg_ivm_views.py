"""How many of the views in pg_ivm's own regression tests are kept by differences here.

    python -m benchmarks.pg_ivm_views CHECKOUT/expected/pg_ivm.out CHECKOUT/expected/outer_join.out …

Reads what its tests print: each `create_immv` is a view, which pg_ivm refuses where an ERROR follows. The view is
defined over tables of the same columns. Columns without a name get one, and types of PostgreSQL's own become text.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import sqlglot
from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from strandline.errors import InputError, StrandlineError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

STATEMENT = re.compile(
    r"CREATE TABLE (?P<table>\w+)\s*\((?P<columns>[^;]*?)\)(?:\s*INHERITS[^;]*)?;"
    r"|CREATE (?:MATERIALIZED )?VIEW (?P<view>\w+)(?:\([^)]*\))? AS\s*(?P<shown>[^;]*);"
    r"|create_immv\s*\(\s*'(?P<name>[^']*)'\s*,\s*'(?P<sql>(?:[^']|'')*)'\s*\)\s*;+(?P<after>(?:\s*\n(?!ERROR)[^\n]*)?\n?(?:NOTICE[^\n]*\n)*[^\n]*)",
    re.IGNORECASE,
)
KEPT, WHOLE, ANEW, REFUSED = "by differences", "by differences, computed whole", "computed anew", "refused"
OTHER_TYPES = re.compile(r"\b(name|mytype|json)\b(?=\s*[,)]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """A view of the tests: whether pg_ivm accepts it, what becomes of it here, and why."""

    sql: str
    accepted: bool
    here: str
    why: str = ""


def views(text: str) -> Iterator[Found]:
    """The views of what one test prints, in order."""
    tables: dict[str, str] = {}
    shown: dict[str, str] = {}
    for match in STATEMENT.finditer(text):
        if match["table"]:
            tables[match["table"].lower()] = OTHER_TYPES.sub("text", re.sub(r"REFERENCES[^,]*", "", match["columns"]))
        elif match["view"]:
            shown[match["view"].lower()] = match["shown"]
        else:
            sql = match["sql"].replace("''", "'").strip().rstrip(";")
            here, why = become(match["name"], sql, tables, shown)
            yield Found(" ".join(sql.split()), "ERROR" not in match["after"], here, why)


def become(name: str, sql: str, tables: dict[str, str], shown: dict[str, str]) -> tuple[str, str]:
    """What becomes of a view over these tables and views, and why."""
    with create_on(MemoryStorage()) as store:
        make(store, tables)
        try:
            for other, text in shown.items():
                if re.search(rf"\b{other}\b", sql, re.IGNORECASE):
                    store.view(other, text)
            view = store.view("v", named(sql, name))
        except (StrandlineError, SqlglotError) as error:
            return refusal(store, sql, name), " ".join(str(error).split())
        return (WHOLE, ", ".join(view.computed_whole)) if view.computed_whole else (KEPT, "")


def refusal(store: Store, sql: str, name: str) -> str:
    try:
        store.view("v", named(sql, name), strict=False)
    except (StrandlineError, SqlglotError):
        return REFUSED
    return ANEW


def make(store: Store, tables: dict[str, str]) -> None:
    with duckdb.connect() as connection:
        for table, columns in tables.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
            rows = connection.table(table).to_arrow_table()
            key = [
                row[0]
                for row in connection.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE pk").fetchall()
            ]
            store.create_table(table, rows, key=key or None)


def named(sql: str, name: str) -> str:
    """The query with a name for each column: those that are given with the view's name, and others where none are."""
    tree = sqlglot.parse_one(sql, dialect="postgres")
    given = re.findall(r"\w+", name.partition("(")[2])
    for query in tree.find_all(exp.Select):
        _name_columns(query, given if query is tree else [])
    return str(tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE))


def _name_columns(query: exp.Select, given: Sequence[str]) -> None:
    own, shown = (exp.Alias, exp.Column), query.expressions
    names = [one.alias_or_name if isinstance(one, own) else f"column{place}" for place, one in enumerate(shown)]
    if len(given) > len(names):
        raise InputError(f"{len(given)} names for {len(names)} columns")
    names = [*given, *names[len(given) :]]
    if not any(isinstance(one, exp.Star) for one in shown):
        apart = [f"{name}_{place}" if name in names[:place] else name for place, name in enumerate(names)]
        pairs = zip(shown, apart, strict=True)
        query.set("expressions", [exp.alias_(one.unalias(), name) for one, name in pairs])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("printed", nargs="+", type=Path, help="what its tests print: expected/*.out")
    arguments.add_argument("--all", action="store_true", help="show every view, and not only those that are not kept")
    chosen = arguments.parse_args()
    counted: Counter[tuple[bool, str]] = Counter()
    for path in chosen.printed:
        for one in views(path.read_text()):
            counted[one.accepted, one.here] += 1
            if chosen.all or one.here != KEPT:
                print(
                    f"{'accepted' if one.accepted else 'refused'} by pg_ivm, here {one.here}: {one.sql}\n    {one.why}"
                )
    for accepted in (True, False):
        parts = {here: number for (by_it, here), number in counted.items() if by_it == accepted}
        print(f"{'accepted' if accepted else 'refused'} by pg_ivm: {sum(parts.values())}: {parts}")


if __name__ == "__main__":
    main()
