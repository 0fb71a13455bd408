"""`strandline changes`: what changed in a table from one state to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from strandline.cli.options import running
from strandline.cli.output import console, emit_json
from strandline.cli.stores import STATE, store_argument, tables_of, version_option

if TYPE_CHECKING:
    from strandline.changes import Changes


@click.command()
@store_argument
@click.argument("table")
@click.option("--since", required=True, metavar="STATE", help=f"The older state: {STATE}.")
@click.option("--until", metavar="STATE", help="The newer state.  [default: now]")
@click.option("--out", type=click.Path(), help="Write the changes: .parquet, .csv, .jsonl, .sql or .changes.")
@click.option(
    "--layout",
    type=click.Choice(["changes", "column_by_column", "side_by_side", "sparse", "left", "right"]),
    default="changes",
    show_default=True,
    help="How rows are laid out in --out.",
)
@click.option("--sql-table", default="", help="The table that a .sql script changes.")
@click.option("--dialect", default="standard", show_default=True, help="The dialect of a .sql script.")
@click.option("--html", "html_path", type=click.Path(), help="Write a report to open in a browser.")
@click.option("--limit", type=int, default=3, show_default=True, help="Examples of each kind to show.")
@version_option
@running
def changes(store: str, table: str, since: str, until: str | None, as_json: bool, runner: str, **given: Any) -> int:
    """What changed in TABLE since a state; only pages that differ are read.

    Exits with 0 if nothing changed, 1 if something did, 2 on trouble.

    \b
    Examples:
      strandline changes shop orders --since monday
      strandline changes shop orders --since monday --until tuesday --out tuesday.changes
    """
    if runner != "auto":
        raise click.UsageError("changes chooses by size where its work runs; leave --runner out")
    from strandline.pages import parse_at
    from strandline.report import summary_json

    with tables_of(store, given["version"]) as opened:
        older, newer = parse_at(opened.pages, since), parse_at(opened.pages, until)
        found = opened.changes(table, since=older, until=newer)
    _write(found, given)
    if as_json:
        emit_json(summary_json(found.header))
    else:
        _print(found, given["limit"])
    return 1 if found.header.counts.rows else 0


def _write(found: Changes, given: dict[str, Any]) -> None:
    from strandline.changes.shape import ChangeSet
    from strandline.report import Out, format_of, html_report, positions_by_key, write_out, write_text

    if given["out"]:
        if format_of(given["out"]) == "changes" and given["layout"] == "changes":
            found.save(given["out"])
        else:
            out = Out(given["out"], layout=given["layout"], table=given["sql_table"], dialect=given["dialect"])
            write_out(found.header, found.tables(), out)
    if given["html_path"]:
        rows = found.to_arrow()
        where = positions_by_key(ChangeSet(found.header, rows))
        write_text([html_report(found.header, rows, where=where)], given["html_path"])


def _print(found: Changes, limit: int) -> None:
    from strandline.changes.shape import ChangeSet
    from strandline.report import examples, summary_view

    shown = examples(ChangeSet(found.header, found.to_arrow()), limit) if limit else []
    console().print(summary_view(found.header, examples=shown))
