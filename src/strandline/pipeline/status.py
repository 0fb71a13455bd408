"""How a pipeline stands: its last runs, how old its extracts are, how far behind its copies, how large its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.settings import DumpSettings, ReplicaSettings
from strandline.pipeline.step import PipelineContext


@dataclass(frozen=True)
class PipelineStatus:
    """What `strandline status` shows. Times are seconds since 1970; ages and lags are seconds before `now`."""

    pipeline: str
    now: float
    steps: tuple[Step, ...]
    sources: tuple[Mapping[str, Any], ...]
    replicas: tuple[Mapping[str, Any], ...]
    dumps: tuple[Mapping[str, Any], ...]
    tables: tuple[Mapping[str, Any], ...]


def pipeline_status(context: PipelineContext, now: float, count: int = 10) -> PipelineStatus:
    """How the pipeline stands; reads the journal and the page tables, no row."""
    steps = tuple(Journal(context.store, context.settings.name).steps(count))
    last = steps[-1] if steps else None
    return PipelineStatus(
        pipeline=context.settings.name,
        now=now,
        steps=steps,
        sources=tuple(_source(source.name, last, now) for source in context.settings.sources),
        replicas=tuple(_replica(replica, last, steps) for replica in context.settings.replicas),
        dumps=tuple(_dump(dump, last, now) for dump in context.settings.dumps),
        tables=tuple({"name": name, **sizes} for name, sizes in context.table_sizes().items()),
    )


def _source(name: str, last: Step | None, now: float) -> dict[str, Any]:
    recorded = {} if last is None else last.sources.get(name, {})
    taken = recorded.get("taken")
    return {
        "name": name,
        "extract": recorded.get("extract"),
        "how": recorded.get("how"),
        "step": recorded.get("step"),
        "age": None if taken is None else now - taken,
    }


def _replica(replica: ReplicaSettings, last: Step | None, steps: tuple[Step, ...]) -> dict[str, Any]:
    recorded = {} if last is None else last.replicas.get(replica.name, {})
    at = recorded.get("step")
    newer = [step for step in steps if step.number > (at or 0)]  # a copy that never arrived lacks all steps
    return {
        "name": replica.name,
        "of": replica.of,
        "to": replica.to,
        "position": at,
        "lag": None if last is None else last.number - (at or 0),
        "lag_seconds": None if not newer or last is None else last.started - newer[0].started,
        "method": recorded.get("method"),
        "error": recorded.get("error"),
    }


def _dump(dump: DumpSettings, last: Step | None, now: float) -> dict[str, Any]:
    recorded = {} if last is None else last.dumps.get(dump.name, {})
    at = recorded.get("at")
    return {
        "name": dump.name,
        "to": dump.to,
        "last": recorded.get("id"),
        "level": recorded.get("level"),
        "age": None if at is None else now - at,
        "error": recorded.get("error"),
    }
