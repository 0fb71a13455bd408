"""`strandline status`: how a pipeline stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from strandline.cli.output import emit_json, say
from strandline.cli.stores import instant, json_option, show_rows, size, when


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
