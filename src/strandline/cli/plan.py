"""`strandline plan`: what a run of a pipeline would do and cost, without doing it."""

from __future__ import annotations

from dataclasses import asdict

import click

from strandline.cli.options import running
from strandline.cli.output import console, emit_json, say
from strandline.cli.run import means_of
from strandline.cli.stores import size


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--remote", metavar="URL", help="A Spark Connect server: sc://host:port.")
@running
def plan(file: str, remote: str | None, runner: str, as_json: bool) -> int:
    """What `strandline run FILE` would do and cost: nothing is applied, locked or written.

    Exits with 1 if something would stop the run.

    \b
    Example:
      strandline plan shop.toml
    """
    from strandline.pipeline import Pipeline, read_settings

    found = Pipeline(read_settings(file), means=means_of(runner, remote)).plan()
    if as_json:
        emit_json({**asdict(found), "new": found.new, "trouble": found.trouble})
        return 1 if found.trouble else 0
    out = console()
    if found.resumes is not None:
        out.print(f"First finishes step {found.resumes}, which an earlier run left.", markup=False)
    heading = f"Step {found.step}, snapshot {found.snapshot}:" if found.new else "Nothing new, no step:"
    out.print(heading, markup=False)
    for source in found.sources:
        if source.trouble:
            out.print(f"  {source.name}: would stop the step. {source.trouble}", markup=False)
            continue
        rows = "" if source.rows is None else f"{source.rows:,} rows, "
        out.print(f"  {source.name}: {source.extract} ({rows}{size(source.bytes)})", markup=False)
        reads = f"; reads about {size(source.reads)} ({source.runner})" if source.reads else ""
        out.print(f"    {source.how}: {source.why}{reads}", markup=False)
        for kind in ("added", "widened", "kept"):
            if source.drift.get(kind):
                out.print(f"    columns {kind}: {', '.join(source.drift[kind])}", markup=False)
    for name, words in {**found.replicas, **found.dumps}.items():
        out.print(f"  {name}: {words}", markup=False)
    say("Nothing was done.")
    return 1 if found.trouble else 0
