"""How a pipeline stands: its last runs, how old its extracts are, how far behind its copies, how large its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.step import Bench


@dataclass(frozen=True)
class PipelineStatus:
    """What `strandline status` tells. Times are seconds since 1970; ages and lags are seconds before `now`."""

    pipeline: str
    now: float
    steps: tuple[Step, ...]
    sources: tuple[Mapping[str, Any], ...]
    replicas: tuple[Mapping[str, Any], ...]
    dumps: tuple[Mapping[str, Any], ...]
    tables: tuple[Mapping[str, Any], ...]


def pipeline_status(bench: Bench, now: float, count: int = 10) -> PipelineStatus:
    """How the pipeline stands; reads the journal and the page tables, no row."""
    steps = tuple(Journal(bench.store, bench.settings.name).steps(count))
    last = steps[-1] if steps else None
    return PipelineStatus(
        pipeline=bench.settings.name,
        now=now,
        steps=steps,
        sources=tuple(_source(one.name, last, now) for one in bench.settings.sources),
        replicas=tuple(_replica(one.name, one.of, one.to, last, steps) for one in bench.settings.replicas),
        dumps=tuple(_dump(one.name, one.to, last, now) for one in bench.settings.dumps),
        tables=tuple(_tables(bench)),
    )


def _source(name: str, last: Step | None, now: float) -> dict[str, Any]:
    said = {} if last is None else last.sources.get(name, {})
    taken = said.get("taken")
    return {
        "name": name,
        "extract": said.get("extract"),
        "how": said.get("how"),
        "step": said.get("step"),
        "age": None if taken is None else now - taken,
    }


def _replica(name: str, of: str, to: str, last: Step | None, steps: tuple[Step, ...]) -> dict[str, Any]:
    said = {} if last is None else last.replicas.get(name, {})
    at = said.get("step")
    newer = [step for step in steps if at is not None and step.number > at]
    return {
        "name": name,
        "of": of,
        "to": to,
        "position": at,
        "lag": None if at is None or last is None else last.number - at,
        "lag_seconds": None if not newer or last is None else last.started - newer[0].started,
        "method": said.get("method"),
        "error": said.get("error"),
    }


def _dump(name: str, to: str, last: Step | None, now: float) -> dict[str, Any]:
    said = {} if last is None else last.dumps.get(name, {})
    at = said.get("at")
    return {
        "name": name,
        "to": to,
        "last": said.get("id"),
        "level": said.get("level"),
        "age": None if at is None else now - at,
        "error": said.get("error"),
    }


def _tables(bench: Bench) -> list[dict[str, Any]]:
    wanted = {source.table for source in bench.settings.sources}
    with bench.store.state() as view:
        found = []
        for entry in view.domains():
            if entry.name in wanted:
                sums = entry.root.sums if entry.root is not None else None
                rows, size, pages = (sums.rows, sums.bytes, sums.pages) if sums is not None else (0, 0, 0)
                found.append({"name": entry.name, "rows": rows, "bytes": size, "pages": pages})
        return found
