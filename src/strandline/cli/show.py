"""`strandline show`: what a saved change set holds."""

from __future__ import annotations

import click

from strandline.cli.options import running
from strandline.cli.output import console, draw_rows, emit_json


@click.command()
@click.argument("path", type=click.Path())
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to show.")
@running
def show(path: str, limit: int, as_json: bool, runner: str) -> int:
    """What a saved change set holds: its counts, its columns, and some of its rows.

    \b
    Example:
      strandline show tuesday.changes --limit 5
    """
    import strandline as sl
    from strandline.report import summary_json, summary_view

    changes = sl.Changes.load(path)
    if as_json:
        emit_json(summary_json(changes.header))
        return 0
    console().print(summary_view(changes.header))
    rows = next(changes.tables(), None)
    if rows is not None and limit:
        shown = rows.slice(0, limit)
        draw_rows("", shown.column_names, (tuple(row.values()) for row in shown.to_pylist()))
    return 0
