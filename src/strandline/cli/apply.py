"""`strandline apply`: a relation after a change set."""

from __future__ import annotations

import click

from strandline.cli.options import pairs, running
from strandline.cli.output import emit_json, say


@click.command()
@click.argument("changes_path", metavar="CHANGES", type=click.Path())
@click.argument("relation", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="A .parquet file for the result, or a folder of them.")
@click.option("--lenient", is_flag=True, help="Let the last writer win where the changes don't fit.")
@click.option("--fill", multiple=True, metavar="COLUMN=VALUE", help="What a column holds that was added meanwhile.")
@running
def apply(
    changes_path: str, relation: str, out: str, lenient: bool, fill: tuple[str, ...], as_json: bool, runner: str
) -> int:
    """Applies a saved change set to a relation and writes the result.

    Changes that don't fit (an insert of a present key, an update or delete of an absent one) are an error that shows
    the keys; nothing is written then.

    \b
    Example:
      strandline apply tuesday.changes monday.parquet --out again.parquet
    """
    import strandline as sl

    changes = sl.Changes.load(changes_path)
    values = dict(pairs(fill, "--fill")) or None
    applied = changes.apply(relation, lenient=lenient, fill=values, runner=runner)
    applied.save(out)
    if as_json:
        emit_json({"out": out, "rows": applied.rows, "applied": changes.summary().changed})
    else:
        say(f"{changes.summary().changed:,} changes applied to {relation}: {applied.rows:,} rows in {out}.")
    return 0
