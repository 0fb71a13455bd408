"""The folder of reports as a whole: an index of runs with links, what each table's step changed, and the page of a run
that was stopped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from strandline._version import __version__
from strandline.pipeline.detection import SourceChanges
from strandline.pipeline.journal import Step
from strandline.pipeline.page import PAGE_STYLE, page_path, when
from strandline.pipeline.pictures import safe
from strandline.report import MARK, STYLE, html_report, positions_by_key, sample_changes
from strandline.storage import files_below, write_file

_STOPPED = {"GuardTripped": "stopped by a guard", "Killed": "killed", "Running": "under way"}
SAMPLED = 100_000
"""Change rows of a table from which its page is drawn."""


def outcome(run: Mapping[str, Any]) -> tuple[str, str]:
    """How a run of the history went, in words, and why; of one that went well and was told as it should be no why."""
    untold = f"Not told: {run['untold']}." if run.get("untold") else ""
    if run.get("error") or run.get("kind") == "Running":
        return _STOPPED.get(run.get("kind", ""), "failed"), " ".join(filter(None, [run.get("error"), untold]))
    behind = f"; behind: {', '.join(run['behind'])}" if run.get("behind") else ""
    return (f"step {run['step']}" if run.get("step") else "nothing new") + behind, untold


def write_table_pages(step: Step, sources: Mapping[str, SourceChanges], folder: str) -> None:
    """A page of what the step changed in each table, where changes were found (a new table has none)."""
    for name, source in sources.items():
        if source.changes is None or not source.counts.rows:
            continue
        sample = sample_changes(source.changes, SAMPLED)
        where = positions_by_key(sample) if len(sample.rows) < SAMPLED else None
        _write(table_page_path(step.number, name, folder), html_report(sample.header, sample.rows, where=where))


def table_page_path(step: int, source: str, folder: str) -> str:
    """Where the page of what a step changed in a source's table is."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in source)
    return os.path.join(folder, f"step-{step:04}-{plain}.html")


def write_stopped_page(pipeline: str, error: str, started: float, last: Step | None, folder: str) -> str:
    """The page of a run that took no step because something stopped it: as `latest.html`, and under its own time."""
    before = "There was no step yet."
    applied = "" if "Nothing was applied." in error else "Nothing was applied. "
    if last is not None:
        link = os.path.basename(page_path(last, folder))
        before = f'The last step is <a href="{safe(link)}">step {last.number}</a>; the tables are as it left them.'
    body = (
        f'<p class="mark">{MARK} a run of a pipeline</p><h1>{safe(pipeline)}: stopped</h1>'
        f'<p class="warning">{safe(error[:1].upper() + error[1:])}</p><p>{applied}{before}</p>'
        '<p><a href="index.html">All runs</a></p>'
    )
    page = _page(f"{pipeline}, stopped", body, started)
    path = os.path.join(folder, f"stopped-{int(started)}.html")
    for each in (path, os.path.join(folder, "latest.html")):
        _write(each, page)
    return path


def write_index(pipeline: str, runs: Sequence[Mapping[str, Any]], started: float, folder: str) -> None:
    """The runs, the newest first, each with its page and those of its tables."""
    pages = set(files_below(folder))
    rows = "".join(_run(run, pages) for run in reversed(runs))
    head = "<tr><th>run</th><th>outcome</th><th>tables</th></tr>"
    body = (
        f'<p class="mark">{MARK} the runs of a pipeline</p><h1>{safe(pipeline)}</h1>'
        f"<div class='card scroll'><table class='plain'>{head}{rows}</table></div>"
    )
    _write(os.path.join(folder, "index.html"), _page(f"{pipeline}, runs", body, started))


def _run(run: Mapping[str, Any], pages: set[str]) -> str:
    step = run.get("step")
    name = f"step-{step:04}.html" if step else f"stopped-{int(run['started'])}.html"
    words, why = outcome(run)
    told = f'<a href="{name}">{safe(words)}</a>' if name in pages else safe(words)
    told += f'<div class="why">{safe(why)}</div>' if why else ""
    begin = f"step-{step:04}-" if step else " "
    tables = sorted(page for page in pages if page.startswith(begin))
    links = " ".join(f'<a href="{safe(page)}">{safe(page[len(begin) : -5])}</a>' for page in tables)
    return f"<tr><td>{when(run['started'])}</td><td>{told}</td><td class='names'>{links}</td></tr>"


def _page(title: str, body: str, started: float) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)} · Strandline</title><style>{STYLE}{PAGE_STYLE}</style></head><body><main>{body}"
        f"<footer>Strandline {__version__} · {when(started)}</footer></main></body></html>\n"
    )


def _write(path: str, page: str) -> None:
    write_file(path, page.encode("utf-8", "backslashreplace"))
