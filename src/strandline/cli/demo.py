"""`strandline demo`: the whole pipeline, end to end, on Spark."""

from __future__ import annotations

import click

from strandline.cli.options import running
from strandline.cli.output import emit_json, say


@click.command()
@click.option("--folder", type=click.Path(), help="Where to work; left behind for exploring.  [default: a new one]")
@running
def demo(folder: str | None, as_json: bool, runner: str) -> int:
    """A shop's three nights on Spark, end to end: extracts, a what-if, a view at two sites, dumps, a disaster.

    \b
    Example:
      strandline demo --folder shop-demo
    """
    from strandline.demo import demo as run_demo

    figures = run_demo(say if not as_json else lambda words: None, folder)
    if as_json:
        emit_json(figures)
    return 0
