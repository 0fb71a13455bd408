"""`strandline create` and `load`: a new store, and rows into a table."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from strandline.cli.inputs import names_of, source_of, source_options
from strandline.cli.output import answer, emit_json, running, say, telling
from strandline.cli.store_access import NoRows, count_of, store_argument, tables_of, version_option
from strandline.errors import InputError


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
