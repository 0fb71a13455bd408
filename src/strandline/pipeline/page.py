"""The pages of runs. One of each: what came in, what changed, the tree of versions, what copies took, time, and the
last steps; or, of a run that was stopped, why. Beside them what each table's step changed, and an index of all.

Self-contained: the style of reports with some additions, no script, nothing loaded from anywhere. Every text passes
through `safe`. Paths and URLs are shown as the pipeline's file has them, so no secret is on the page.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline._version import __version__
from strandline.engine import byte_count
from strandline.pipeline.detection import SourceChanges
from strandline.pipeline.journal import Step
from strandline.pipeline.pictures import VersionLine, bars, safe, tree
from strandline.pipeline.step import STAGES
from strandline.report import MARK, STYLE, html_report, positions_by_key, sample_changes
from strandline.storage import files_below, write_file

PAGE_STYLE = """
.scroll { overflow-x: auto; }
.lead b { white-space: nowrap; }
.plain td.number, .plain th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.plain td.names { overflow-wrap: normal; }
.plain .why { color: var(--soft); font-size: .85rem; }
.plain td { vertical-align: top; }
.scroll .plain td:first-child, .scroll .plain th { white-space: nowrap; overflow-wrap: normal; }
.good { color: var(--insert); } .bad { color: var(--delete); }
.sum { display: flex; height: .55rem; width: 100%; min-width: 6rem; border-radius: .3rem; overflow: hidden; gap: 1px;
  background: color-mix(in srgb, var(--same) 30%, transparent); margin-top: .4rem; }
.sum i { background: var(--kind); min-width: 2px; }
.table-card { padding: .9rem 1rem; margin: .6rem 0; }
.table-card h3 { margin: 0 0 .1rem; font-size: .95rem; }
.table-card .bars { margin-top: .7rem; }
.picture { margin: 0; padding: .6rem; overflow-x: auto; }
.tree { display: block; max-width: none; }
.tree .lane { stroke: var(--soft); stroke-width: 2; } .tree .fork { stroke: var(--soft); stroke-width: 2; fill: none; }
.tree .snapshot { fill: var(--card); stroke: var(--insert); stroke-width: 2.5; }
.tree .snapshot.marked { fill: var(--insert); }
.tree .head { fill: var(--update); }
.tree text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft); }
.tree .lane-name { font-weight: 600; fill: var(--ink); }
.tree .snapshot-name.marked { fill: var(--ink); font-weight: 600; }
.versus {
  display: grid; grid-template-columns: 5.5rem 1fr 7rem; gap: .15rem .8rem; align-items: center; font-size: .85rem; }
.versus .track { height: .7rem; border-radius: .2rem; background: color-mix(in srgb, var(--same) 30%, transparent); }
.versus .track i { display: block; height: 100%; border-radius: .2rem; min-width: 2px; background: var(--same); }
.versus .track i.sent { background: var(--insert); }
.versus .count { text-align: right; font-variant-numeric: tabular-nums; }
.stages { display: flex; height: 1.1rem; border-radius: .3rem; overflow: hidden; gap: 2px; }
.stages i { min-width: 3px; background: var(--stage); }
.stage-0 { --stage: var(--insert); } .stage-1 { --stage: var(--update); } .stage-2 { --stage: var(--delete); }
.stage-3 { --stage: color-mix(in srgb, var(--insert) 55%, var(--ground)); }
.stage-4 { --stage: color-mix(in srgb, var(--update) 55%, var(--ground)); }
.stage-5 { --stage: color-mix(in srgb, var(--delete) 55%, var(--ground)); }
.stage-6 { --stage: var(--soft); } .stage-7 { --stage: var(--same); }
.stage-key {
  display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--soft); margin-top: .6rem; }
.stage-key span::before { content: ""; display: inline-block; width: .65rem; height: .65rem; border-radius: .15rem;
  background: var(--stage); margin-right: .4rem; }
.trends { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .75rem; }
.trend-card { padding: .8rem 1rem; } .trend-card b { font-variant-numeric: tabular-nums; font-weight: 600; }
.trend-card span { color: var(--soft); font-size: .85rem; float: right; }
.trend { display: block; width: 100%; height: 64px; margin-top: .5rem; }
.trend .ground { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.trend .hover { fill: transparent; } .trend g:hover .hover { fill: var(--ink); opacity: .07; }
.trend .bar-rows { fill: var(--update); } .trend .bar-time { fill: var(--soft); }
.trend .bar-bytes { fill: var(--insert); } .trend .bar-store { fill: color-mix(in srgb, var(--soft) 70%, var(--card)); }
.trend rect[class^=bar]:not(.last) { opacity: .55; }
"""


KINDS = (("insert", "inserted", "+"), ("update", "updated", "~"), ("delete", "deleted", "−"))
STAGE_COLOURS = 8
SHOWN_SHARE = 0.004
"""A stage that took a smaller part of the time is not drawn."""
SAMPLED = 100_000
"""Change rows of a table from which its page is drawn."""
_STOPPED = {"GuardTripped": "stopped by a guard", "Killed": "killed", "Running": "under way"}


@dataclass(frozen=True)
class RunPage:
    """What a page shows: the step (the last one, when the run took none), those before it, and the versions."""

    step: Step
    history: Sequence[Step]
    lines: Sequence[VersionLine]
    started: float
    seconds: float
    new: bool
    stages: Mapping[str, float]


def write_page(page: RunPage, folder: str) -> str:
    """Puts the page into the folder of reports, and as `latest.html` beside it; gives its path."""
    text = _render(page)
    paths = [os.path.join(folder, "latest.html"), *([page_path(page.step, folder)] if page.new else [])]
    for path in paths:
        _write(path, text)
    return paths[-1]


def page_path(step: Step, folder: str) -> str:
    """Where the page of the run that took a step is."""
    return os.path.join(folder, f"step-{step.number:04}.html")


def _render(page: RunPage) -> str:
    """The whole page."""
    step = page.step
    title = f"{step.pipeline}, step {step.number}"
    parts = [
        _head(page, title),
        _tiles(step),
        _sources(step),
        _tables(step),
        _versions(page),
        _copies(step),
        _dumps(step),
        _stages(page),
        _trends(page.history),
    ]
    return _document(title, "".join(parts), f"{when(page.started)} · {page.seconds:.1f} s")


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
    page = _document(f"{pipeline}, stopped", body, when(started))
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
    _write(os.path.join(folder, "index.html"), _document(f"{pipeline}, runs", body, when(started)))


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


def _head(page: RunPage, title: str) -> str:
    step = page.step
    changed = sum(_changed(source) for source in _fresh(step))
    tables = sum(1 for source in _fresh(step) if _changed(source))
    words = (
        f"{changed:,} rows changed in {tables} of {len(step.sources)} tables, in one transaction."
        if page.new
        else "Nothing new came in: no step was taken. This is how the last one stands."
    )
    trouble = [
        f"{name}: {one['error']}"
        for name, one in [*step.views.items(), *step.replicas.items(), *step.dumps.items()]
        if one.get("error")
    ]
    warning = "".join(f'<p class="warning">Behind: {safe(each)} The next run tries again.</p>' for each in trouble)
    return (
        f'<p class="mark">{MARK} a run of a pipeline</p><h1>{safe(title)}</h1>'
        f'<p class="lead">{words} Snapshot <b>{safe(step.snapshot)}</b>, {when(step.started)}.</p>{warning}'
    )


def _tiles(step: Step) -> str:
    cards = []
    for kind, name, sign in KINDS:
        count = sum(int(source.get(name) or 0) for source in _fresh(step))
        zero = "" if count else " zero"
        cards.append(f'<div class="tile card {kind}{zero}"><b>{count:,}</b><span>{sign} {name}</span></div>')
    same = [source.get("unchanged") for source in step.sources.values()]
    total = sum(int(count or 0) for count in same)
    cards.append(f'<div class="tile card same"><b>{total:,}</b><span>= unchanged</span></div>')
    return f'<div class="tiles">{"".join(cards)}</div>'


def _sources(step: Step) -> str:
    rows = []
    for name, source in step.sources.items():
        taken = source.get("taken")
        age = "" if taken is None else f"<br><span class='why'>of {when(taken)}</span>"
        old = "" if source.get("step") == step.number else f" <span class='why'>(step {source.get('step')})</span>"
        drift = _drift(source)
        rows.append(
            f"<tr><td><b>{safe(name)}</b>{old}</td><td><code>{safe(_tail(source.get('extract', '')))}</code>{age}</td>"
            f"<td>{safe(source.get('how'))}<br><span class='why'>{safe(source.get('why'))}"
            f"{'; ' + safe(drift) if drift else ''}</span></td>"
            f"<td class='number'>{byte_count(int(source.get('bytes_read') or 0))}</td>"
            f"<td class='number'>{float(source.get('seconds') or 0):.2f} s</td></tr>"
        )
    head = _header("source", "extract", "detected", "read|", "time|")
    return f"<h2>What came in</h2><div class='card scroll'><table class='plain'>{head}{''.join(rows)}</table></div>"


def _tables(step: Step) -> str:
    cards = []
    for source in step.sources.values():
        if source.get("step") != step.number:
            continue
        counts = [(kind, int(source.get(name) or 0), name) for kind, name, _ in KINDS]
        words = ", ".join(f"{count:,} {name}" for _, count, name in counts if count) or "nothing changed"
        size = step.tables.get(source["table"], {})
        rows = f"{int(size.get('rows', 0)):,} rows, {byte_count(int(size.get('bytes', 0)))}" if size else ""
        shares = [*counts, ("same", int(source.get("unchanged") or 0), "")]
        strip = "".join(f'<i class="{kind}" style="flex: {count} 1 0"></i>' for kind, count, _ in shares if count)
        cards.append(
            f"<div class='card table-card'><h3>{safe(source['table'])}</h3>"
            f"<span class='note'>{words}; now {rows}</span><div class='sum'>{strip}</div>{_columns(source)}</div>"
        )
    return f"<h2>What changed</h2>{''.join(cards) or '<p class=note>No table changed.</p>'}"


def _columns(source: Mapping[str, Any]) -> str:
    counts = source.get("columns") or {}
    updated = int(source.get("updated") or 0)
    ranked = sorted(((name, count) for name, count in counts.items() if count), key=lambda one: -one[1])
    if updated and source.get("how") == "signatures":
        return "<p class='note'>Signatures tell which rows were updated, not which columns.</p>"
    if not ranked or not updated:
        return ""
    bars_ = "".join(
        f'<div class="bar"><span class="name">{safe(name)}</span><span class="track">'
        f'<i style="width:{100 * count / updated:.2f}%"></i></span><span class="count">{count:,}</span></div>'
        for name, count in ranked[:12]
    )
    return f'<div class="bars">{bars_}</div>'


def _versions(page: RunPage) -> str:
    versions = f"{len(page.lines)} {'version' if len(page.lines) == 1 else 'versions'}"
    count = sum(len(line.snapshots) for line in page.lines)
    note = f"{versions}, {count} snapshots; filled: this step's; the last dot of a line is its present state"
    picture = tree(page.lines, page.step.snapshot)
    return f"<h2>Versions and snapshots <small>{note}</small></h2><figure class='picture card'>{picture}</figure>"


def _copies(step: Step) -> str:
    if not step.replicas:
        return ""
    cards = "".join(_copy(name, copy, step) for name, copy in step.replicas.items())
    return f"<h2>Copies <small>what went over, against sending everything</small></h2>{cards}"


def _copy(name: str, copy: Mapping[str, Any], step: Step) -> str:
    behind = step.number - int(copy.get("step") or 0)
    state = f"<span class='bad'>{behind} steps behind</span>" if behind else "<span class='good'>up to date</span>"
    sent, full = int(copy.get("bytes") or 0), int(copy.get("full_bytes") or 0)
    messages, all_messages = int(copy.get("messages") or 0), int(copy.get("full_messages") or 0)
    words = f"{safe(copy.get('method'))}: {safe(copy.get('why'))}; {messages:,} messages against {all_messages:,}"
    if copy.get("at") and not _in_step(copy, step):
        # On record is the last refresh that sent something, and that was an earlier step's.
        sent, words = 0, f"nothing to send; the last that was sent, {when(copy['at'])}: {words}"
    most = max(sent, full)
    bars_ = f"{_versus('sent', sent, most, 'sent')}{_versus('a full copy', full, most, 'full')}"
    if copy.get("method") is None:
        words, bars_ = "never reached yet", ""
    return (
        f"<div class='card table-card'><h3>{safe(name)} <small class='note'>{safe(copy.get('of', ''))} → "
        f"{safe(copy.get('to', ''))} · {state}</small></h3><p class='note'>{words}</p>"
        f"<div class='versus'>{bars_}</div></div>"
    )


def _versus(name: str, size: int, most: int, kind: str) -> str:
    share = 100.0 * size / most if most else 0.0
    return (
        f"<span>{name}</span><span class='track'><i class='{kind}' style='width:{share:.2f}%'></i></span>"
        f"<span class='count'>{byte_count(size)}</span>"
    )


def _dumps(step: Step) -> str:
    if not step.dumps:
        return ""
    rows = [
        f"<tr><td>{safe(name)}</td><td>{safe(dump.get('to', ''))}</td><td><code>{safe(dump.get('id', ''))}</code></td>"
        f"<td class='number'>{safe(dump.get('level', ''))}</td>"
        f"<td class='number'>{byte_count(int(dump.get('bytes') or 0))}</td></tr>"
        for name, dump in step.dumps.items()
    ]
    head = _header("dumps", "to", "last", "level|", "size|")
    return f"<h2>Dumps</h2><div class='card scroll'><table class='plain'>{head}{''.join(rows)}</table></div>"


def _stages(page: RunPage) -> str:
    total = sum(page.stages.values()) or 1.0
    stages = [(name, page.stages[name]) for name in STAGES if page.stages.get(name, 0.0) >= SHOWN_SHARE * total]
    strip = "".join(
        f'<i class="stage-{place % STAGE_COLOURS}" style="flex: {seconds / total:.4f} 1 0" title="{safe(name)}"></i>'
        for place, (name, seconds) in enumerate(stages)
    )
    key = "".join(
        f'<span class="stage-{place % STAGE_COLOURS}">{safe(name)} {_span(seconds)}</span>'
        for place, (name, seconds) in enumerate(stages)
    )
    heading = f"<h2>Time <small>{total:.2f} s by stage</small></h2>"
    return f"{heading}<div class='stages'>{strip}</div><div class='stage-key'>{key}</div>"


def _trends(history: Sequence[Step]) -> str:
    labels = [f"step {step.number}" for step in history]
    charts: list[tuple[str, str, list[float], Any]] = [
        (
            "rows changed",
            "rows",
            [float(sum(_changed(s) for s in _fresh(step))) for step in history],
            lambda v: f"{v:,.0f}",
        ),
        ("seconds", "time", [sum(step.stages.values()) for step in history], lambda v: f"{v:.1f} s"),
        ("bytes to copies", "bytes", [float(_sent(step)) for step in history], byte_count),
        ("bytes of tables", "store", [float(_held(step)) for step in history], byte_count),
    ]
    cards = []
    for name, kind, values, formatted in charts:
        words = [f"{label}: {formatted(value)}" for label, value in zip(labels, values, strict=True)]
        now = formatted(values[-1]) if values else "–"
        cards.append(f"<div class='card trend-card'><b>{now}</b><span>{name}</span>{bars(values, words, kind)}</div>")
    note = f"{len(history)} of them, the newest on the right; heights grow with the square root"
    heading = f"<h2>The last steps <small>{note}</small></h2>"
    return f"{heading}<div class='trends'>{''.join(cards)}</div>"


def _header(*names: str) -> str:
    """The head of a table; a name that ends in a bar heads numbers."""
    cells = [f"<th class='number'>{name[:-1]}</th>" if name.endswith("|") else f"<th>{name}</th>" for name in names]
    return f"<tr>{''.join(cells)}</tr>"


def _fresh(step: Step) -> list[Mapping[str, Any]]:
    """The sources that the step itself brought."""
    return [source for source in step.sources.values() if source.get("step") == step.number]


def _changed(source: Mapping[str, Any]) -> int:
    return sum(int(source.get(name) or 0) for _, name, _ in KINDS)


def _sent(step: Step) -> int:
    return sum(int(copy.get("bytes") or 0) for copy in step.replicas.values() if _in_step(copy, step))


def _in_step(copy: Mapping[str, Any], step: Step) -> bool:
    """Whether the refresh on record is one for this step: a copy that had nothing to take keeps the one before."""
    return float(copy.get("at") or 0.0) >= step.started


def _held(step: Step) -> int:
    return sum(int(table.get("bytes", 0)) for table in step.tables.values())


def _drift(source: Mapping[str, Any]) -> str:
    kinds = source.get("drift") or {}
    return "; ".join(f"columns {kind}: {', '.join(names)}" for kind, names in kinds.items() if names)


def _tail(path: str) -> str:
    """The end of a long path: what tells extracts apart."""
    return path if len(path) <= 48 else "…" + path[-47:]


def when(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _document(title: str, body: str, foot: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)} · Strandline</title><style>{STYLE}{PAGE_STYLE}</style></head><body><main>{body}"
        f"<footer>Strandline {__version__} · {foot}</footer></main></body></html>\n"
    )


def _write(path: str, page: str) -> None:
    write_file(path, page.encode("utf-8", "backslashreplace"))
