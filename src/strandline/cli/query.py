"""`strandline query`: SQL over the tables of a store."""

from __future__ import annotations

import click

from strandline.cli.options import running
from strandline.cli.output import emit_json, say
from strandline.cli.stores import STATE, show_rows, store_argument, tables_of, version_option


@click.command()
@store_argument
@click.argument("sql")
@click.option("--at", metavar="STATE", help=f"Ask an older state: {STATE}.")
@click.option("--out", type=click.Path(), help="Write the rows: .parquet, .csv or .jsonl.")
@click.option("--limit", type=int, default=100, show_default=True, help="Rows to print; 0 prints all.")
@version_option
@running
def query(
    store: str,
    sql: str,
    at: str | None,
    out: str | None,
    limit: int,
    version: str,
    as_json: bool,
    runner: str,
) -> int:
    """Runs a query over the tables of STORE and prints its rows.

    With --json all rows are printed, as the list `rows` of one object.

    \b
    Examples:
      strandline query shop "SELECT state, count(*) FROM orders GROUP BY state"
      strandline query shop "SELECT * FROM orders WHERE qty > 3" --at monday --out many.parquet
    """
    from strandline.pages import parse_at
    from strandline.report import write_rows

    with tables_of(store, version) as opened:
        rows = opened.query(sql, at=parse_at(opened.pages, at), runner=runner)
    if out is not None:
        write_rows(rows, out)
        if as_json:
            emit_json({"rows": len(rows), "out": out})
        else:
            say(f"{len(rows):,} rows in {out}.")
        return 0
    if as_json:
        emit_json({"columns": rows.column_names, "rows": rows.to_pylist()})
        return 0
    shown = rows if limit <= 0 else rows.slice(0, limit)
    show_rows(rows.column_names, (tuple(row.values()) for row in shown.to_pylist()))
    if len(shown) < len(rows):
        say(f"{len(shown):,} of {len(rows):,} rows; --limit 0 prints all.")
    return 0
