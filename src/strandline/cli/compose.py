"""`strandline compose`: several change sets as one."""

from __future__ import annotations

import click

from strandline.cli.options import pairs, running
from strandline.cli.output import emit_json, say


@click.command()
@click.argument("changes_paths", metavar="FIRST THEN…", nargs=-1, required=True, type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="The folder of the result, e.g. week.changes.")
@click.option("--fill", multiple=True, metavar="COLUMN=VALUE", help="What a column holds that was added meanwhile.")
@running
def compose(changes_paths: tuple[str, ...], out: str, fill: tuple[str, ...], as_json: bool, runner: str) -> int:
    """Saved change sets, applied one after the other, as one net change set.

    \b
    Example:
      strandline compose monday.changes tuesday.changes wednesday.changes --out week.changes
    """
    import strandline as sl

    if len(changes_paths) < 2:
        raise click.UsageError("Give at least two change sets, the earliest first.")
    values = dict(pairs(fill, "--fill")) or None
    result = sl.Changes.load(changes_paths[0])
    for path in changes_paths[1:]:
        result = result.compose(sl.Changes.load(path), fill=values, runner=runner)
    result.save(out)
    if as_json:
        emit_json({"out": out, **result.summary().to_json()})
    else:
        say(f"{out}: {result.summary()}.")
    return 0
