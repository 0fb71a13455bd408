"""`strandline run`: one run of a declared pipeline, or one after another on a schedule.

`strandline plan`: what a run of a pipeline would do and cost, without doing it.

`strandline status`: how a pipeline stands.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.output import complain, console, emit_json, running, say
from strandline.cli.store_access import instant, json_option, show_rows, size, when
from strandline.engine import VARIABLE

if TYPE_CHECKING:
    from strandline.pipeline import Pipeline, Ran, RunMeans


FAILED = 1


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--wait", is_flag=True, help="If another run is under way, wait for its end instead of refusing.")
@click.option("--watch", "watching", is_flag=True, help="Run again and again on a schedule, until stopped.")
@click.option("--every", default="1h", show_default=True, metavar="TIME", help="How often with --watch: 30m, 1h, 1d.")
@click.option("--remote", metavar="URL", help="A Spark Connect server: sc://host:port.")
@running
def run(file: str, wait: bool, watching: bool, every: str, remote: str | None, runner: str, as_json: bool) -> int:
    """Takes one step of the pipeline in FILE: extract, detect, apply, snapshot, refresh, dump, report.

    All tables change in one transaction or none does. Killed at any point and started again, it finishes the same step
    and doubles nothing. Exits with 0 if all is well, 1 if a guard stopped the step or a copy or dump is behind, 2 on
    trouble.

    \b
    Examples:
      strandline run shop.toml
      strandline run shop.toml --master spark://host:7077
      strandline run shop.toml --watch --every 30m
    """
    from strandline.pipeline import Pipeline, duration, read_settings

    pipeline = Pipeline(read_settings(file), means=means_of(runner, remote))
    if not watching:
        return one_run(pipeline, wait=wait, as_json=as_json)
    return _watch(pipeline, duration(every), wait=wait, as_json=as_json)


def _watch(pipeline: Pipeline, period: float, *, wait: bool, as_json: bool) -> int:
    from strandline.errors import StrandlineError
    from strandline.pipeline import stopping, watch

    def once() -> None:
        try:
            one_run(pipeline, wait=wait, as_json=as_json)
        except StrandlineError as error:
            if as_json:
                emit_json({"outcome": "failed", **error.to_json()})
            complain(f"strandline: {error}")

    with stopping() as stop:
        watch(once, period, stop, time.time)
    say("Stopped watching.")
    return 0


def one_run(pipeline: Pipeline, *, wait: bool, as_json: bool) -> int:
    """One run, told; the exit code."""
    from strandline.errors import GuardTripped

    try:
        ran = pipeline.run(wait=wait)
    except GuardTripped as error:
        if as_json:
            emit_json({"outcome": "stopped", **error.to_json()})
        say(f"Stopped: {error}")
        return FAILED
    if as_json:
        emit_json(facts(ran))
    else:
        tell(ran)
    return FAILED if ran.behind else 0


def means_of(runner: str, remote: str | None) -> RunMeans:
    """Where the work runs: on Spark as soon as a master or server is named."""
    from strandline.pipeline import RunMeans

    if remote:
        os.environ[VARIABLE] = remote
    return RunMeans("spark" if runner == "auto" and os.environ.get(VARIABLE) else runner)


def facts(ran: Ran) -> dict[str, Any]:
    """A run as JSON."""
    outcome = "step" if ran.step else "nothing new"
    return {
        "outcome": outcome,
        "pipeline": ran.pipeline,
        "started": instant(ran.started),
        "seconds": round(ran.seconds, 3),
        "step": ran.step.number if ran.step else None,
        "resumed": ran.resumed.number if ran.resumed else None,
        "snapshot": ran.step.snapshot if ran.step else None,
        "sources": {name: found.to_json() for name, found in ran.found.items()},
        "stages": dict(ran.stages),
        "replicas": dict(ran.last.replicas) if ran.last else {},
        "dumps": dict(ran.last.dumps) if ran.last else {},
        "behind": ran.behind,
        "report": ran.report,
    }


def tell(ran: Ran) -> None:
    """A run in words."""
    if ran.resumed:
        say(f"Finished step {ran.resumed.number}, which an earlier run had left.")
    for name, found in ran.found.items():
        counts = found.counts
        words = f"{counts.inserted:,} inserted, {counts.updated:,} updated, {counts.deleted:,} deleted"
        say(f"{name}: {words} ({found.how}: {found.why}).")
    if ran.step:
        say(f"Step {ran.step.number}, snapshot {ran.step.snapshot}.")
    else:
        say("Nothing new: no step was taken.")
    for name, result in (ran.last.replicas if ran.last else {}).items():
        if not result.get("error") and result.get("at", 0) >= ran.started:
            sent = f"{result['messages']:,} messages, {size(result['bytes'])}"
            say(f"{name}: {result['method']}, {sent}; a full refresh: about {size(result['full_bytes'])}.")
    for name, result in (ran.last.dumps if ran.last else {}).items():
        if not result.get("error") and result.get("at", 0) >= ran.started:
            say(f"{name}: level {result['level']}, {size(result['bytes'])}, {result['id']}.")
    for name, why in ran.behind.items():
        say(f"Behind: {name}. {why} The next run tries again.")
    if ran.report:
        say(f"Report: {ran.report}")


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


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many runs to show.")
@json_option
def status(file: str, last: int, as_json: bool) -> int:
    """The last runs of the pipeline in FILE, failures included; ages of extracts, lags of copies, sizes of tables.

    \b
    Example:
      strandline status shop.toml
    """
    from strandline.pipeline import Pipeline, read_settings

    pipeline = Pipeline(read_settings(file))
    found, notes = pipeline.status(last), pipeline.notes(last)
    if as_json:
        emit_json({**asdict(found), "runs": [{**note, "started": instant(note["started"])} for note in notes]})
        return 0
    show_rows(
        ("run", "seconds", "outcome"),
        [(when(note["started"]), note["seconds"], _outcome(note)) for note in notes],
        "Runs",
    )
    names = ("source", "extract", "detected", "step", "age")
    rows: list[Any] = [(s["name"], s["extract"], s["how"], s["step"], _span(s["age"])) for s in found.sources]
    show_rows(names, rows, "Sources")
    show_rows(("table", "rows", "bytes"), [(t["name"], t["rows"], size(t["bytes"])) for t in found.tables], "Tables")
    if found.replicas:
        rows = [
            (r["name"], r["of"], r["to"], r["position"], r["lag"], r["error"] or r["method"]) for r in found.replicas
        ]
        show_rows(("copy", "of", "to", "step", "steps behind", "last"), rows, "Copies")
    if found.dumps:
        rows = [(d["name"], d["last"], d["level"], _span(d["age"]), d["error"]) for d in found.dumps]
        show_rows(("dumps", "last", "level", "age", "trouble"), rows, "Dumps")
    if not notes:
        say("It has not run yet.")
    return 0


def _outcome(note: dict[str, Any]) -> str:
    if note.get("error"):
        return str(note["error"])
    behind = f"; behind: {', '.join(note['behind'])}" if note.get("behind") else ""
    return (f"step {note['step']}" if note.get("step") else "nothing new") + behind


def _span(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"
