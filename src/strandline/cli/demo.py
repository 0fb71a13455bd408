"""`strandline demo`: the whole pipeline, end to end, on Spark."""

from __future__ import annotations

import click

from strandline.cli.options import running
from strandline.cli.output import emit_json, say


@click.command()
@click.option("--folder", type=click.Path(), help="Where to work; left behind for exploring.  [default: a new one]")
@running
def demo(folder: str | None, as_json: bool, runner: str) -> int:
    """A small shop from one night to the next, on Spark: two extracts, what changed, applying it, undoing it.

    \b
    Example:
      strandline demo --folder shop-demo
    """
    from strandline.demo import demo as run_demo

    figures = run_demo(say if not as_json else lambda words: None, folder)
    if as_json:
        emit_json(figures)
    return 0
