"""`strandline replicate`: a copy of a base, somewhere else."""

from __future__ import annotations

from typing import Any

import click

from strandline.cli.output import emit_json, say


@click.command()
@click.argument("base_url", metavar="BASE")
@click.argument("target")
@click.option("--where", help="Copy only rows that meet this SQL condition.")
@click.option("--columns", multiple=True, help="Copy only these columns; repeat, or separate by commas.")
@click.option("--name", help="What to call the copy.  [default: its table's name]")
@click.option(
    "--method",
    type=click.Choice(["auto", "differential", "full"]),
    default="auto",
    show_default=True,
    help="How it is refreshed unless told otherwise.",
)
@click.option(
    "--runner",
    type=click.Choice(["auto", "spark", "inline"]),
    default="auto",
    show_default=True,
    help="Who reads the rows: Spark tasks side by side, or this process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def replicate(
    base_url: str,
    target: str,
    columns: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> int:
    """Copy a table of PostgreSQL or SQLite to another place, to be kept fresh with `strandline refresh`.

    TARGET is duckdb:///file#table, sqlite:///file#table, postgresql://…#table, parquet:///folder or
    strandline:///store#table. Stopped, the same command goes on.

    \b
    Example:
      strandline replicate sqlite:///shop.db#orders duckdb:///cheap.duckdb#cheap --where "price < 10"
    """
    from strandline.detect import annotated

    chosen = [part for text in columns for part in text.split(",")] or None
    copy = annotated.base(base_url).replicate(target, columns=chosen, **given)
    status = copy.status()
    if as_json:
        emit_json(status)
    else:
        say(f"{status['name']}: {status['messages']} messages, {status['bytes']} bytes to {status['target']}.")
    return 0
