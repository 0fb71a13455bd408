"""`strandline create`, `load`, `tables`, `describe`, `alter`, `history` and `export`: a new store, rows into a table,
which tables a store has, what one is and becomes, what became of a row, and a table as a table of others.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import click

from strandline.cli.inputs import names_of, source_of, source_options
from strandline.cli.output import answer, emit_json, running, say, telling
from strandline.cli.store_access import (
    STATE,
    NoRows,
    check_table,
    count_of,
    show_rows,
    show_table,
    store_argument,
    tables_of,
    version_option,
)
from strandline.engine import byte_count
from strandline.errors import InputError, SchemaError


@click.command()
@store_argument
@telling
def create(store: str, as_json: bool) -> int:
    """Makes a new, empty store. STORE is a folder, or an s3://bucket/prefix URL.

    \b
    Example:
      strandline create shop
    """
    from strandline.pages import create_store
    from strandline.storage import open_storage

    storage = open_storage(store)
    create_store(storage, NoRows(), NoRows()).close()
    return answer(
        {"store": storage.url},
        f"A new store: {store}. Load a table with: strandline load {store} TABLE SOURCE --key COLUMN",
        as_json=as_json,
    )


@click.command()
@store_argument
@click.argument("table")
@click.argument("source", type=click.Path())
@click.option("-k", "--key", multiple=True, help="Key column of a new table; repeat, or separate by commas.")
@click.option(
    "--mode",
    type=click.Choice(["append", "overwrite", "upsert"]),
    default="append",
    show_default=True,
    help="What becomes of rows that are there: stay, go, or are replaced by key.",
)
@click.option("--message", default="", help="A message for the log.")
@source_options
@version_option
@running
def load(store: str, table: str, source: str, as_json: bool, runner: str, **given: Any) -> int:
    """Loads SOURCE into TABLE, in one transaction. The table is created when it is not there.

    SOURCE is whatever `strandline diff` reads: files, folders or globs (Parquet, CSV, JSON lines, Arrow,
    BOOK.xlsx#SHEET), Delta or Iceberg tables, STORE#NAME, tables of databases, whose primary key is that of a new
    table unless another is given.

    \b
    Examples:
      strandline load shop orders monday.parquet --key id
      strandline load shop orders tuesday.csv --mode upsert
      strandline load shop late sqlite:///shop.db --query "select * from t where n > 5" --key id
    """
    key = names_of(given["key"])
    with tables_of(store, given["version"]) as opened, ExitStack() as stack:
        rows = source_of(source, given, stack)
        there = table in opened.tables()
        if not there:
            key = key or getattr(rows, "primary_key", ())
        if there and key and key != opened.table(table).key:
            raise InputError(
                f"{table} has the key {', '.join(opened.table(table).key) or '(none)'}, not {', '.join(key)}",
                doing=f"loading {source}",
                hint="Leave --key out",
            )
        with opened.transaction(given["message"] or f"load {source}", runner=runner) as transaction:
            if not there:
                count = transaction.create_table(table, rows, key=key or None)
            else:
                verbs = {
                    "append": transaction.insert,
                    "overwrite": transaction.overwrite,
                    "upsert": transaction.upsert,
                }
                count = verbs[given["mode"]](table, rows)
        record = {"table": table, "created": not there, "changed": count, "rows": opened.table(table).count()}
    if as_json:
        emit_json(record)
    else:
        done = (
            "created with" if not there else {"append": "grew by", "overwrite": "changed in"}.get(given["mode"], "took")
        )
        say(f"{table} {done} {count_of(count, 'row')} from {source}; it has {record['rows']:,} now.")
    return 0


_at_option = click.option("--at", metavar="STATE", help=f"As of an older state: {STATE}.")


@click.command()
@store_argument
@_at_option
@version_option
@telling
def tables(store: str, at: str | None, version: str, as_json: bool) -> int:
    """The tables of STORE, with their keys, rows and bytes.

    \b
    Examples:
      strandline tables shop
      strandline tables shop --at monday
    """
    from strandline.pages import parse_at
    from strandline.store import table_sizes

    with tables_of(store, version) as opened, opened.state(parse_at(opened.pages, at)) as view:
        rows = table_sizes(view).to_pylist()
    if as_json:
        emit_json({"tables": rows})
        return 0
    names = ("table", "key", "rows", "bytes")
    show_rows(names, [(row["table"], ", ".join(row["key"]), row["rows"], byte_count(row["bytes"])) for row in rows])
    if not rows:
        say(f"There are no tables. Load one: strandline load {store} TABLE SOURCE --key COLUMN")
    return 0


@click.command()
@store_argument
@click.argument("table")
@_at_option
@version_option
@telling
def describe(store: str, table: str, at: str | None, version: str, as_json: bool) -> int:
    """The columns of TABLE, its key, its size and its snapshots.

    \b
    Example:
      strandline describe shop orders
    """
    from strandline.pages import parse_at

    with tables_of(store, version) as opened:
        check_table(opened, table, f"describing {table}")
        facts = opened.table(table).describe(at=parse_at(opened.pages, at))
    if as_json:
        columns = [{"name": name, "type": kind, "nullable": nullable} for name, kind, nullable in facts.columns]
        emit_json({**asdict(facts), "columns": columns})
        return 0
    rows = [
        (name, kind, "" if nullable else "not null", "key" if name in facts.key else "")
        for name, kind, nullable in facts.columns
    ]
    show_rows(("column", "type", "nulls", "key"), rows, table)
    if facts.name != table:
        say(f"Its name was {facts.name}.")
    say(f"{count_of(facts.rows, 'row')}, {byte_count(facts.bytes)} in {count_of(facts.pages, 'page')}.")
    say(f"Snapshots: {', '.join(facts.snapshots) or 'none'}.")
    return 0


@click.command()
@store_argument
@click.argument("table")
@click.argument("key", nargs=-1, required=True)
@version_option
@telling
def history(store: str, table: str, key: tuple[str, ...], version: str, as_json: bool) -> int:
    """Every state of one row of TABLE, the oldest first. States are those of the snapshots, and the present one.

    Give a value for each column of the key; bytes that are no text are written \\x00. A state is shown with the
    snapshot in which it is first met. Exits with 1 if there never was such a row.

    \b
    Examples:
      strandline history shop orders 1007
      strandline history shop stock oslo 7
    """
    with tables_of(store, version) as opened:
        check_table(opened, table, f"reading the history of a row of {table}")
        held = opened.table(table)
        rows = held.history(*_values(key, held))
    if as_json:
        emit_json({"table": table, "key": list(key), "states": rows.to_pylist()})
    else:
        show_table(rows)
        if not len(rows):
            say(f"No snapshot of {store} has such a row, and there is none now.")
    return 0 if len(rows) else 1


@click.command()
@store_argument
@click.argument("table")
@click.argument("path", type=click.Path())
@click.option(
    "--to",
    type=click.Choice(["parquet", "csv", "jsonl", "arrow", "delta", "iceberg"]),
    help="What PATH becomes, if its suffix does not say; delta and iceberg need their extras.  [default: parquet]",
)
@_at_option
@click.option("--overwrite", is_flag=True, help="Replace a file; give a Delta table a new version.")
@version_option
@telling
def export(store: str, table: str, path: str, at: str | None, version: str, as_json: bool, **how: Any) -> int:
    """Writes TABLE as a file, a Delta or an Iceberg table.

    \b
    Examples:
      strandline export shop orders orders.csv
      strandline export shop orders orders_delta --to delta --at monday
    """
    from strandline.pages import parse_at

    with tables_of(store, version) as opened:
        check_table(opened, table, f"exporting {table}")
        done = opened.table(table).export(path, at=parse_at(opened.pages, at), **how)
    return answer(asdict(done), f"{count_of(done.rows, 'row')} of {table} in {path} ({done.to}).", as_json=as_json)


@click.command()
@store_argument
@click.argument("table")
@click.option("--add", nargs=2, metavar="COLUMN TYPE", help="A new column at the end; see --default.")
@click.option(
    "--default", metavar="VALUE", help="What the rows that are there hold in the new column; without it null."
)
@click.option("--rename", nargs=2, metavar="OLD NEW", help="Another name for a column; views that read it follow.")
@click.option("--widen", nargs=2, metavar="COLUMN TYPE", help="A type that holds all values of a column, and more.")
@version_option
@telling
def alter(store: str, table: str, version: str, as_json: bool, default: str | None, **asked: Any) -> int:
    """Adds, renames or widens a column of TABLE. No page is rewritten.

    \b
    Examples:
      strandline alter shop orders --add channel string --default shop
      strandline alter shop orders --rename qty quantity
      strandline alter shop orders --widen qty int64
    """
    verbs = [(verb, words) for verb, words in asked.items() if words is not None]
    if len(verbs) != 1:
        raise click.UsageError("Say one of --add, --rename and --widen.")
    ((verb, (column, to)),) = verbs
    if default is not None and verb != "add":
        raise click.UsageError("--default is what the rows hold in a column that --add adds.")
    followed: tuple[str, ...] = ()
    with tables_of(store, version) as opened:
        check_table(opened, table, f"altering {table}")
        held = opened.table(table)
        if verb == "add":
            held.add_column(column, to, default=None if default is None else _typed(default, column, to))
        elif verb == "rename":
            followed = held.rename_column(column, to)
        else:
            held.widen_column(column, to)
    if as_json:
        emit_json({"table": table, verb: [column, to], "views": list(followed)})
        return 0
    say(f"{table} has a new column {column}." if verb == "add" else f"{column} of {table} is {to} now.")
    if followed:
        say(f"Views that follow: {', '.join(followed)}.")
    return 0


def _typed(text: str, name: str, kind: str) -> Any:
    """The text of a command line as a value of a type."""
    import pyarrow as pa

    from strandline.relations import arrow_type
    from strandline.values import convert_text

    return convert_text(pa.array([text]), arrow_type(kind), name)[0]


_BYTE = re.compile(rb"\\x([0-9A-Fa-f]{2})")
"""A byte that is no letter, as DuckDB writes it."""


def _value(text: str, kind: Any) -> Any:
    """The value of a type that is written as this text."""
    import pyarrow as pa
    import pyarrow.types as pt

    from strandline.values import convert_text

    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind):
        data = _BYTE.sub(lambda byte: bytes.fromhex(byte[1].decode()), text.encode())
        return pa.scalar(data, kind).as_py()
    if pt.is_time(kind):
        return convert_text(pa.array([text]), kind, "")[0].as_py()
    return pa.scalar(text).cast(kind).as_py()


def _values(key: tuple[str, ...], table: Any) -> list[Any]:
    """The texts of a command line as values of the key's types."""
    import pyarrow as pa

    schema, names = table.schema, table.key
    if len(names) != len(key):
        return list(key)  # refused with the key's columns where it is looked up
    values = []
    for text, name in zip(key, names, strict=True):
        kind = schema.field(name).type
        try:
            values.append(_value(text, kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaError):
            raise click.UsageError(f"{text!r} is no value of {name}, which is {kind}") from None
    return values
