"""`strandline run`, `plan` and `status`: a declared pipeline run once or on a schedule, what a run would do, and its
last runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.output import complain, console, emit_json, running, say, span, telling
from strandline.cli.store_access import count_of, iso_time, local_time, show_rows
from strandline.engine import MASTER_VARIABLE, byte_count

if TYPE_CHECKING:
    from strandline.pipeline import Pipeline, RunOptions, RunResult


FAILED = 1


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--wait", is_flag=True, help="If another run is under way, wait for its end instead of refusing.")
@click.option("--watch", "watching", is_flag=True, help="Run again and again on a schedule, until stopped.")
@click.option("--every", default="1h", show_default=True, metavar="TIME", help="How often with --watch: 30m, 1h, 1d.")
@click.option("--accept", multiple=True, metavar="SOURCE", help="Overrule the guards of this source, this once.")
@click.option("--remote", metavar="URL", help="A Spark Connect server: sc://host:port.")
@running
def run(file: str, watching: bool, every: str, runner: str, as_json: bool, **given: Any) -> int:
    """Takes one step of the pipeline in FILE. A step is: extract, detect, apply, snapshot, refresh, dump, report.

    All tables change in one transaction or none does. Killed at any point and started again, it finishes the same step
    and doubles nothing. Exits with 0 if all is well, 1 if a guard stopped the step or a copy or dump is behind, 2 on
    trouble.

    \b
    Examples:
      strandline run shop.toml
      strandline run shop.toml --master spark://host:7077
      strandline run shop.toml --watch --every 30m
      strandline run shop.toml --accept orders
    """
    from strandline.pipeline import Pipeline, duration, read_settings

    if given["accept"] and watching:
        raise click.UsageError("--accept is for one run: leave --watch out")
    options = replace(run_options(runner, given["remote"]), accept=frozenset(given["accept"]))
    pipeline = Pipeline(read_settings(file), options=options)
    if not watching:
        return run_once(pipeline, wait=given["wait"], as_json=as_json)
    return _watch(pipeline, duration(every), wait=given["wait"], as_json=as_json)


def _watch(pipeline: Pipeline, period: float, *, wait: bool, as_json: bool) -> int:
    from strandline.errors import StrandlineError
    from strandline.pipeline import stop_on_signals, watch

    def once() -> None:
        try:
            run_once(pipeline, wait=wait, as_json=as_json)
        except StrandlineError as error:
            if as_json:
                emit_json({"outcome": "failed", **error.to_json()})
            complain(f"strandline: {error}")

    with stop_on_signals() as stop:
        watch(once, period, stop, time.time)
    say("Stopped watching.")
    return 0


def run_once(pipeline: Pipeline, *, wait: bool, as_json: bool) -> int:
    """One run, printed; the exit code."""
    from strandline.errors import GuardTripped

    try:
        result = pipeline.run(wait=wait)
    except GuardTripped as error:
        if as_json:
            emit_json({"outcome": "stopped", **error.to_json()})
        say(f"Stopped: {error}")
        return FAILED
    if as_json:
        emit_json(run_json(result))
    else:
        print_run(result)
    return FAILED if result.behind or result.untold else 0


def run_options(runner: str, remote: str | None) -> RunOptions:
    """Where the work runs: on Spark as soon as a master or server is named."""
    from strandline.pipeline import RunOptions

    if remote:
        os.environ[MASTER_VARIABLE] = remote
    return RunOptions("spark" if runner == "auto" and os.environ.get(MASTER_VARIABLE) else runner)


def run_json(result: RunResult) -> dict[str, Any]:
    """A run as JSON."""
    return {**result.to_json(), "untold": result.untold or None}


def print_run(result: RunResult) -> None:
    """A run in words."""
    if result.resumed:
        say(f"Finished step {result.resumed.number}, which an earlier run had left:")
        for name, source in result.resumed.sources.items():
            say(f"{name}: {_counts(source)}.")
    for name, changes in result.sources.items():
        say(f"{name}: {_counts(changes.to_json())}.")
    if result.step:
        say(f"Step {result.step.number}, snapshot {result.step.snapshot}.")
    else:
        say("Nothing new: no step was taken.")
    for name, copy in (result.last.replicas if result.last else {}).items():
        if not copy.get("error") and copy.get("at", 0) >= result.started:
            sent = f"{count_of(copy['messages'], 'message')}, {byte_count(copy['bytes'])}"
            say(f"{name}: {copy['method']}, {sent}; a full refresh: about {byte_count(copy['full_bytes'])}.")
    for name, dump in (result.last.dumps if result.last else {}).items():
        if not dump.get("error") and dump.get("at", 0) >= result.started:
            say(f"{name}: level {dump['level']}, {byte_count(dump['bytes'])}, {dump['id']}.")
    for name, why in result.behind.items():
        say(f"Behind: {name}. {why} The next run tries again.")
    if result.untold:
        say(f"Not told: {result.untold}.")
    if result.report:
        say(f"Report: {result.report}")


def _counts(source: Mapping[str, Any]) -> str:
    """What a source brought, by what the journal keeps of it."""
    words = ", ".join(f"{source[kind] or 0:,} {kind}" for kind in ("inserted", "updated", "deleted"))
    return f"{words} ({source['how']}: {source['why']})"


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--remote", metavar="URL", help="A Spark Connect server: sc://host:port.")
@running
def plan(file: str, remote: str | None, runner: str, as_json: bool) -> int:
    """What `strandline run FILE` would do and cost. Nothing is applied, locked or written.

    Exits with 1 if something would stop the run, or fail in it. Guards that need the rows (changed, deleted, unique)
    are looked at by the run alone.

    \b
    Example:
      strandline plan shop.toml
    """
    from strandline.pipeline import Pipeline, read_settings

    planned = Pipeline(read_settings(file), options=run_options(runner, remote)).plan()
    if as_json:
        emit_json({**asdict(planned), "new": planned.new, "trouble": planned.trouble})
        return 1 if planned.trouble else 0
    out = console()
    if planned.resumes is not None:
        out.print(f"First finishes step {planned.resumes}, which an earlier run left.", markup=False)
    heading = f"Step {planned.step}, snapshot {planned.snapshot}:" if planned.new else "Nothing new, no step:"
    out.print(heading, markup=False)
    for source in planned.sources:
        if source.trouble:
            out.print(f"  {source.name}: would stop the step. {source.trouble}", markup=False)
            continue
        rows = "" if source.rows is None else f"{count_of(source.rows, 'row')}, "
        out.print(f"  {source.name}: {source.extract} ({rows}{byte_count(source.bytes)})", markup=False)
        reads = f"; reads about {byte_count(source.reads)} ({source.runner})" if source.reads else ""
        out.print(f"    {source.how}: {source.why}{reads}", markup=False)
        for kind in ("added", "widened", "kept"):
            if source.drift.get(kind):
                out.print(f"    columns {kind}: {', '.join(source.drift[kind])}", markup=False)
    for kind, words_of in (("view ", planned.views), ("", planned.replicas), ("", planned.dumps)):
        for name, words in words_of.items():
            out.print(f"  {kind}{name}: {words}", markup=False)
    say("Nothing was done.")
    return 1 if planned.trouble else 0


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many runs to show.")
@click.option("--prometheus", is_flag=True, help="Print gauges in Prometheus's text format.")
@telling
def status(file: str, last: int, prometheus: bool, as_json: bool) -> int:
    """How the pipeline in FILE stands. Told are its last runs, failures included, ages of extracts, lags of copies and
    sizes of tables.

    \b
    Examples:
      strandline status shop.toml
      strandline status shop.toml --prometheus > /var/lib/node_exporter/shop.prom
    """
    from strandline.pipeline import Pipeline, outcome, prometheus_text, read_settings

    if prometheus and as_json:
        raise click.UsageError("say --prometheus or --json, not both")
    pipeline = Pipeline(read_settings(file))
    state, runs = pipeline.status(last), pipeline.history(last)
    if prometheus:
        sys.stdout.write(prometheus_text(state, runs))
        return 0
    if as_json:
        emit_json({**asdict(state), "runs": [{**run_, "started": iso_time(run_["started"])} for run_ in runs]})
        return 0
    show_rows(
        ("run", "seconds", "outcome"),
        [(local_time(run_["started"]), run_["seconds"], ": ".join(filter(None, outcome(run_)))) for run_ in runs],
        "Runs",
    )
    names = ("source", "extract", "detected", "step", "age")
    rows: list[Any] = [(s["name"], s["extract"], s["how"], s["step"], span(s["age"])) for s in state.sources]
    show_rows(names, rows, "Sources")
    show_rows(
        ("table", "rows", "bytes"), [(t["name"], t["rows"], byte_count(t["bytes"])) for t in state.tables], "Tables"
    )
    if state.replicas:
        rows = [
            (r["name"], r["of"], r["to"], r["position"], r["lag"], r["error"] or r["method"]) for r in state.replicas
        ]
        show_rows(("copy", "of", "to", "step", "steps behind", "last"), rows, "Copies")
    if state.dumps:
        rows = [(d["name"], d["last"], d["level"], span(d["age"]), d["error"]) for d in state.dumps]
        show_rows(("dumps", "last", "level", "age", "trouble"), rows, "Dumps")
    if not runs:
        say("It has not run yet.")
    return 0
