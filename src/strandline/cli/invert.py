"""`strandline invert`: the change set that undoes another."""

from __future__ import annotations

import click

from strandline.cli.options import running
from strandline.cli.output import emit_json, say


@click.command()
@click.argument("changes_path", metavar="CHANGES", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="The folder of the inverse, e.g. undo.changes.")
@running
def invert(changes_path: str, out: str, as_json: bool, runner: str) -> int:
    """The change set that undoes a saved one. It needs before images.

    \b
    Example:
      strandline invert tuesday.changes --out undo.changes
    """
    import strandline as sl

    inverse = sl.Changes.load(changes_path).invert(runner=runner)
    inverse.save(out)
    if as_json:
        emit_json({"out": out, **inverse.summary().to_json()})
    else:
        say(f"{out}: {inverse.summary()}.")
    return 0
