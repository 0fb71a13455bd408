"""`strandline demo` and `strandline bench`: the whole pipeline, end to end, and the tables of docs/benchmarks.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from strandline.cli.output import emit_json, running, say, telling
from strandline.errors import NotFound

TROUBLE = 2
BENCHMARKS = ("goals", "growth", "diff", "window", "store", "whatif", "refresh", "dump", "views", "papers")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--rows", type=click.IntRange(min=1), help="Rows of the large tables, for a quicker run.")
@telling
def bench(names: tuple[str, ...], rows: int | None, as_json: bool) -> int:
    """Runs the benchmarks against peers and prints their tables.

    They live beside the source, in benchmarks/, and need the packages of the `bench` extra: `make bench` installs them.

    \b
    Example:
      strandline bench diff --rows 2000000
    """
    root = Path(__file__).parents[3]
    known = [name for name in BENCHMARKS if (root / "benchmarks" / f"{name}.py").exists()]
    if not known:
        raise NotFound(
            "the benchmarks are not installed with the package",
            doing="running benchmarks",
            hint="Run in a clone: make bench",
        )
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"There is no benchmark {unknown[0]!r}. Choose from {', '.join(known)}.")
    code, printed = 0, {}
    for name in names or known:
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        command += (
            ["--rows", str(rows)] if rows and name not in ("goals", "growth", "window", "store", "papers") else []
        )
        ended = subprocess.run(command, cwd=root, text=True, stdout=subprocess.PIPE if as_json else None)
        code, printed[name] = max(code, TROUBLE if ended.returncode else 0), ended.stdout
    if as_json:
        emit_json({"tables": printed, "failed": bool(code)})
    return code


@click.command()
@click.option("--folder", type=click.Path(), help="Where to work; left behind for exploring.  [default: a new one]")
@running
def demo(folder: str | None, as_json: bool, runner: str) -> int:
    """A shop's three nights on Spark, end to end. Extracts, a what-if, a view at two sites, dumps, a disaster.

    \b
    Example:
      strandline demo --folder shop-demo
    """
    from strandline.cli.demo_story import run_demo

    figures = run_demo(say if not as_json else lambda words: None, folder, "inline" if runner == "inline" else "spark")
    if as_json:
        emit_json(figures)
    return 0
