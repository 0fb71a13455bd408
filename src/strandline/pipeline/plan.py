"""The plan: what a run would do and what it would cost, without doing it.

Extracts are opened and their schemas read; rows of a database's table are counted, not read. Nothing is applied,
locked or written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from strandline.engine import runs_on_spark
from strandline.errors import Cancelled, StrandlineError
from strandline.pipeline import annotated_source
from strandline.pipeline.detection import NO_DRIFT, ExtractDrift, TableState, plan_detection, read_table_state
from strandline.pipeline.extracts import Extract, address_of, describe_extract, typed_as_the_table
from strandline.pipeline.finish import dump_places, in_order, is_as_declared, is_due
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.settings import DumpSettings, ReplicaSettings, SourceSettings, ViewSettings
from strandline.pipeline.step import PipelineContext, guard_extract, is_annotated, snapshot_name
from strandline.storage import MemoryStorage
from strandline.store import Store, ViewListing, create_on
from strandline.values import no_rows

TROUBLE = "trouble"
"""How the words for a view, copy or dump begin that would fail."""


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
    views: Mapping[str, str]
    replicas: Mapping[str, str]
    dumps: Mapping[str, str]

    @property
    def trouble(self) -> bool:
        """Whether something would stop the run, or fail in it."""
        words = [*self.views.values(), *self.replicas.values(), *self.dumps.values()]
        return any(source.trouble for source in self.sources) or any(each.startswith(TROUBLE) for each in words)

    @property
    def new(self) -> bool:
        """Whether there may be a step: some extract is not that of the last one."""
        return any(source.how != "nothing" for source in self.sources)


def plan_run(context: PipelineContext, now: float) -> RunPlan:
    """What a run would do now."""
    last = Journal(context.store, context.settings.name).last()
    number = 1 if last is None else last.number + 1
    planned = [_source(context, source, last, now) for source in context.settings.sources]
    return RunPlan(
        pipeline=context.settings.name,
        step=number,
        snapshot=snapshot_name(context.settings, number, now),
        resumes=last.number if last is not None and not last.finished else None,
        sources=tuple(source for source, _ in planned),
        views=_views(context, [columns for _, columns in planned]),
        replicas={replica.name: _replica(context, replica, last, now) for replica in context.settings.replicas},
        dumps={dump.name: _dump(context, dump) for dump in context.settings.dumps},
    )


def _source(
    context: PipelineContext, source: SourceSettings, last: Step | None, now: float
) -> tuple[SourcePlan, pa.Schema | None]:
    """The plan for a source, and the columns that its table has then; None if something would stop the step."""
    table = read_table_state(context.store, source, last, context.states)
    try:
        return _plan_source(context, source, table, now)
    except Cancelled:
        raise
    except (StrandlineError, OSError) as error:
        trouble = context.secrets.scrub(str(error))
        return SourcePlan(source.name, source.table, source.location, trouble=trouble), None


def _plan_source(
    context: PipelineContext, source: SourceSettings, table: TableState, now: float
) -> tuple[SourcePlan, pa.Schema | None]:
    extract = describe_extract(source, context.secrets, context.options.session)
    guard_extract(extract, now, rows_too=False)
    base = SourcePlan(source.name, source.table, extract.shown, extract.relation.rows, extract.relation.bytes)
    if is_annotated(context, source):
        planned = _base_plan(context, source, table, base)
        return planned, None if planned.trouble else _columns(extract, table)
    extract = typed_as_the_table(extract, table.record)
    detection = plan_detection(source, table, extract)
    reads = {"load": extract.relation.bytes, "nothing": 0, "signatures": extract.relation.bytes}
    size = reads.get(detection.how, extract.relation.bytes + table.bytes)
    planned = replace(base, how=detection.how, why=detection.why, reads=size, drift=detection.drift.to_json())
    return replace(planned, runner=_runner(context, extract, table)), _columns(extract, table, detection.drift)


def _columns(extract: Extract, table: TableState, drift: ExtractDrift = NO_DRIFT) -> pa.Schema:
    """The columns of a source's table once the step has happened."""
    if table.record is None:
        return extract.schema
    now = {field.name: field for field in table.record.arrow_schema if field.name in table.record.shown}
    return pa.schema([*(now | {field.name: field for field in (*drift.widened, *drift.added)}).values()])


def _views(context: PipelineContext, columns: Sequence[pa.Schema | None]) -> dict[str, str]:
    """What becomes of each view, in the order in which they are defined; tried on a store of empty tables."""
    views = in_order(context.settings.views)
    made = {
        source.table: (schema, source.key)
        for source, schema in zip(context.settings.sources, columns, strict=True)
        if schema is not None
    }
    if not views or len(made) < len(columns):
        return {view.name: "not looked at: a source would stop the step" for view in views}
    known = {view.name: view for view in context.store.views()}
    with create_on(MemoryStorage()) as trial:
        _make_relations(trial, context.store, made)
        for name, view in known.items():
            with suppress(StrandlineError):
                trial.view(name, view.sql, strict=False)
        return {declared.name: _view(trial, declared, known.get(declared.name)) for declared in views}


def _make_relations(trial: Store, store: Store, tables: Mapping[str, tuple[pa.Schema, Sequence[str]]]) -> None:
    """Empty tables for those that sources fill, and for what else views may read."""
    views = {one.name for one in store.views()}  # those that are stored are tables, too
    others = {*store.tables(), *(one.name for one in store.what_ifs())} - set(tables) - views
    shapes = {name: (store.view(name).schema, store.view(name).key) for name in others}
    with trial.transaction() as transaction:
        for name, (schema, key) in {**shapes, **tables}.items():
            transaction.create_table(name, no_rows(schema), key=list(key) or None)


def _view(trial: Store, view: ViewSettings, known: ViewListing | None) -> str:
    try:
        trial.view(view.name, view.sql, **view.options)
    except StrandlineError as error:
        return f"{TROUBLE}: {error}"
    if known is None:
        return "new"
    return "as it is" if is_as_declared(view, known) else "defined anew"


def _base_plan(context: PipelineContext, source: SourceSettings, table: TableState, base: SourcePlan) -> SourcePlan:
    address = address_of(source, context.secrets)
    trouble = annotated_source.obstacle_to_annotating(source, address)
    first = (table.last or {}).get("position") is None
    why = "the base is read whole: it was not before" if first else "the base says what changed"
    return replace(base, how="annotated", why=why, trouble=trouble)


def _runner(context: PipelineContext, extract: Extract, table: TableState) -> str:
    return "spark" if runs_on_spark(context.options.runner, extract.relation.bytes + table.bytes) else "inline"


def _replica(context: PipelineContext, replica: ReplicaSettings, last: Step | None, now: float) -> str:
    try:
        context.secrets.address(replica.to, f"opening the copy {replica.name!r}")
    except StrandlineError as error:
        return f"{TROUBLE}: {context.secrets.scrub(str(error))}"
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
        return f"{TROUBLE}: {context.secrets.scrub(str(error))}"
    return "none due" if level is None else f"level {level} is due"
