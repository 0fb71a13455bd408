"""`strandline replicate`: a copy of a base, of a view or of a table, somewhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from strandline.cli.output import emit_json, say


@click.command()
@click.argument("places", nargs=-1, metavar="BASE TARGET | STORE VIEW TARGET", type=click.Path())
@click.option("--where", help="Copy only rows that meet this SQL condition.")
@click.option("--columns", multiple=True, help="Copy only these columns; repeat, or separate by commas.")
@click.option("--name", help="What to call the copy.  [default: its table's name]")
@click.option(
    "--method",
    type=click.Choice(["auto", "differential", "full"]),
    default="auto",
    show_default=True,
    help="Of a base's copy: how it is refreshed unless told otherwise.",
)
@click.option("--keep", metavar="TIME", help="Of a view's copy: how long it may be away: 12h, 30d.  [default: 30d]")
@click.option(
    "--runner",
    type=click.Choice(["auto", "spark", "inline"]),
    default="auto",
    show_default=True,
    help="Who reads the rows: Spark tasks side by side, or this process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def replicate(places: tuple[str, ...], columns: tuple[str, ...], method: str, as_json: bool, **given: Any) -> int:
    """Copy a table of PostgreSQL or SQLite (a base), or a view or a table of a store, to another place.

    `strandline refresh` keeps it fresh.

    TARGET is duckdb:///file#table, sqlite:///file#table, postgresql://…#table or parquet:///folder or
    strandline:///store#table. Stopped, the same command goes on.

    \b
    Example:
      strandline replicate sqlite:///shop.db#orders duckdb:///cheap.duckdb#cheap --where "price < 10"
      strandline replicate SHOP cheap duckdb:///cheap.duckdb#cheap
    """
    chosen = [part for text in columns for part in text.split(",")] or None
    if len(places) == 3:
        status = _of_a_view(places, chosen, given)
    elif len(places) == 2:
        status = _of_a_base(places, chosen, method, given)
    else:
        raise click.UsageError("say BASE TARGET, or STORE VIEW TARGET")
    if as_json:
        emit_json(status)
    else:
        say(f"{status['name']}: {status['messages']} messages, {status['bytes']} bytes to {status['target']}.")
    return 0


def _of_a_base(places: Sequence[str], columns: list[str] | None, method: str, given: dict[str, Any]) -> dict[str, Any]:
    if given.pop("keep") is not None:
        raise click.UsageError("--keep is for copies of a view or a table of a store")
    from strandline.detect.annotated.base import base as annotated_base

    return annotated_base(places[0]).replicate(places[1], columns=columns, method=method, **given).status()


def _of_a_view(places: Sequence[str], columns: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    from strandline.cli.stores import tables_of

    store, view, target = places
    given = {name: value for name, value in given.items() if (name, value) != ("keep", None)}
    with tables_of(store) as held:
        return held.view(view).replicate(target, columns=columns, **given).status()
