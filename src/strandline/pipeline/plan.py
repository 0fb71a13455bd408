"""The plan: what a run would do and what it would cost, without doing it.

Extracts are opened and their schemas read; rows of a database's table are counted, not read. Nothing is applied,
locked or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.engine import runs_on_spark
from strandline.errors import Cancelled, StrandlineError
from strandline.pipeline import annotated_source
from strandline.pipeline.detection import TableState, plan_detection, read_table_state
from strandline.pipeline.extracts import Extract, address_of, describe_extract, typed_as_the_table
from strandline.pipeline.finish import dump_places, is_due
from strandline.pipeline.guards import guard_extract
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.settings import DumpSettings, ReplicaSettings, SourceSettings
from strandline.pipeline.step import PipelineContext, is_annotated, snapshot_name


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


def plan_run(context: PipelineContext, now: float) -> RunPlan:
    """What a run would do now."""
    last = Journal(context.store, context.settings.name).last()
    number = 1 if last is None else last.number + 1
    return RunPlan(
        pipeline=context.settings.name,
        step=number,
        snapshot=snapshot_name(context.settings, number, now),
        resumes=last.number if last is not None and not last.finished else None,
        sources=tuple(_source(context, source, last, now) for source in context.settings.sources),
        replicas={replica.name: _replica(replica, last, now) for replica in context.settings.replicas},
        dumps={dump.name: _dump(context, dump) for dump in context.settings.dumps},
    )


def _source(context: PipelineContext, source: SourceSettings, last: Step | None, now: float) -> SourcePlan:
    table = read_table_state(context.store, source, last, context.states)
    try:
        return _plan_source(context, source, table, now)
    except Cancelled:
        raise
    except (StrandlineError, OSError) as error:
        return SourcePlan(source.name, source.table, source.location, trouble=context.secrets.scrub(str(error)))


def _plan_source(context: PipelineContext, source: SourceSettings, table: TableState, now: float) -> SourcePlan:
    extract = describe_extract(source, context.secrets, context.options.session)
    guard_extract(extract, now, rows_too=False)
    base = SourcePlan(source.name, source.table, extract.shown, extract.relation.rows, extract.relation.bytes)
    if is_annotated(context, source):
        return _base_plan(context, source, table, base)
    extract = typed_as_the_table(extract, table.record)
    detection = plan_detection(source, table, extract)
    reads = {"load": extract.relation.bytes, "nothing": 0, "signatures": extract.relation.bytes}
    size = reads.get(detection.how, extract.relation.bytes + table.bytes)
    planned = replace(base, how=detection.how, why=detection.why, reads=size, drift=detection.drift.to_json())
    return replace(planned, runner=_runner(context, extract, table))


def _base_plan(context: PipelineContext, source: SourceSettings, table: TableState, base: SourcePlan) -> SourcePlan:
    address = address_of(source, context.secrets)
    trouble = annotated_source.obstacle_to_annotating(source, address)
    first = (table.last or {}).get("position") is None
    why = "the base is read whole: it was not before" if first else "the base says what changed"
    return replace(base, how="annotated", why=why, trouble=trouble)


def _runner(context: PipelineContext, extract: Extract, table: TableState) -> str:
    return "spark" if runs_on_spark(context.options.runner, extract.relation.bytes + table.bytes) else "inline"


def _replica(replica: ReplicaSettings, last: Step | None, now: float) -> str:
    recorded = None if last is None else last.replicas.get(replica.name)
    if recorded is None:
        return "due: it is new"
    if recorded.get("error"):
        return "due: the last attempt failed"
    return "due" if is_due(replica, recorded, now) else f"not due: every {replica.every}"


def _dump(context: PipelineContext, dump: DumpSettings) -> str:
    try:
        target, key_file = dump_places(context, dump)
        level = context.store.dump_due(target, schedule=dump.schedule, key_file=key_file)
    except (StrandlineError, OSError) as error:
        return f"trouble: {context.secrets.scrub(str(error))}"
    return "none due" if level is None else f"level {level} is due"
