"""The plan: what a run would do and what it would cost, without doing it.

Extracts are opened and their schemas read; rows of a database's table are counted, not read. Nothing is applied,
locked or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.engine import INLINE_LIMIT
from strandline.errors import StrandlineError
from strandline.pipeline import annotated_source
from strandline.pipeline.detection import KnownState, choose_way, known_of
from strandline.pipeline.extracts import Extract, address_of, described, open_extract, typed_as_the_table
from strandline.pipeline.finish import is_due
from strandline.pipeline.guards import guard_extract
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.places import is_database
from strandline.pipeline.settings import SourceSettings
from strandline.pipeline.step import Bench, is_annotated, named


@dataclass(frozen=True)
class SourcePlan:
    """What a run would do with one source. `trouble` is what would stop it."""

    name: str
    table: str
    extract: str = ""
    rows: int | None = None
    bytes: int = 0
    how: str = ""
    why: str = ""
    reads: int = 0
    runner: str = "inline"
    drift: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""


@dataclass(frozen=True)
class RunPlan:
    """What a run would do."""

    pipeline: str
    step: int
    snapshot: str
    resumes: int | None
    sources: tuple[SourcePlan, ...]
    replicas: Mapping[str, str]
    dumps: Mapping[str, str]

    @property
    def trouble(self) -> bool:
        return any(source.trouble for source in self.sources)

    @property
    def new(self) -> bool:
        """Whether there may be a step: some extract is not that of the last one."""
        return any(source.how != "nothing" for source in self.sources)


def plan(bench: Bench, now: float) -> RunPlan:
    """What a run would do now."""
    last = Journal(bench.store, bench.settings.name).last()
    number = 1 if last is None else last.number + 1
    return RunPlan(
        pipeline=bench.settings.name,
        step=number,
        snapshot=named(bench.settings, number, now),
        resumes=last.number if last is not None and not last.finished else None,
        sources=tuple(_source(bench, source, last, now) for source in bench.settings.sources),
        replicas={one.name: _replica(one, last, now) for one in bench.settings.replicas},
        dumps={one.name: _dump(bench, one) for one in bench.settings.dumps},
    )


def _source(bench: Bench, source: SourceSettings, last: Step | None, now: float) -> SourcePlan:
    known = known_of(bench.store, source, last, bench.states)
    try:
        return _planned(bench, source, known, now)
    except (StrandlineError, OSError) as error:
        return SourcePlan(source.name, source.table, source.location, trouble=bench.secrets.scrub(str(error)))


def _planned(bench: Bench, source: SourceSettings, known: KnownState, now: float) -> SourcePlan:
    place = bench.secrets.fill(source.location, f"opening the source {source.name!r}")
    look = described if is_database(place) else open_extract
    extract = look(source, bench.secrets)
    guard_extract(extract, now, rows_too=False)
    base = SourcePlan(source.name, source.table, extract.shown, extract.relation.rows, extract.relation.bytes)
    if is_annotated(bench, source):
        return _base_plan(bench, source, known, base)
    extract = typed_as_the_table(extract, known.record)
    way = choose_way(source, known, extract)
    reads = {"load": extract.relation.bytes, "nothing": 0, "signatures": extract.relation.bytes}
    size = reads.get(way.how, extract.relation.bytes + known.bytes)
    planned = replace(base, how=way.how, why=way.why, reads=size, drift=way.drift.to_json())
    return replace(planned, runner=_runner(bench, extract, known))


def _base_plan(bench: Bench, source: SourceSettings, known: KnownState, base: SourcePlan) -> SourcePlan:
    address = address_of(source, bench.secrets)
    trouble = annotated_source.obstacle_to_annotating(source, address)
    first = (known.last or {}).get("position") is None
    why = "the base is read whole: it was not before" if first else "the base says what changed"
    return replace(base, how="annotated", why=why, trouble=trouble)


def _runner(bench: Bench, extract: Extract, known: KnownState) -> str:
    if bench.means.runner != "auto":
        return bench.means.runner
    return "spark" if extract.relation.bytes + known.bytes >= INLINE_LIMIT else "inline"


def _replica(replica: Any, last: Step | None, now: float) -> str:
    said = None if last is None else last.replicas.get(replica.name)
    if said is None:
        return "due: it is new"
    if said.get("error"):
        return "due: the last attempt failed"
    return "due" if is_due(replica, said, now) else f"not due: every {replica.every}"


def _dump(bench: Bench, dump: Any) -> str:
    try:
        target = bench.secrets.fill(dump.to, f"dumping to {dump.name!r}")
        level = bench.store.dump_due(target, schedule=dump.schedule, key_file=dump.key_file)
    except (StrandlineError, OSError) as error:
        return f"trouble: {bench.secrets.scrub(str(error))}"
    return "none due" if level is None else f"level {level} is due"
