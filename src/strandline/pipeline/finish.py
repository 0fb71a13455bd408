"""Finishing a step that has been committed: notices to bases, views, copies and dumps that are due, and dropping old
snapshots.

Everything here may be repeated: what is done already is found done. A copy or a dump that fails is recorded, the others
go on, and the next run tries it again. The store keeps each copy's position (see `replication`); the journal records
what a refresh sent, beside what sending everything would take.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from strandline.dumps import PERIODS, Dumps, kept_by, parse_rule
from strandline.errors import Cancelled, InUse, StrandlineError
from strandline.pipeline import annotated_source
from strandline.pipeline.extracts import address_of
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.settings import DumpSettings, ReplicaSettings, ViewSettings
from strandline.pipeline.step import PipelineContext, Stages, sweep_signatures
from strandline.relations import Address
from strandline.replication import Copy, Position
from strandline.store import Store, ViewListing, order_of_views


def is_due(replica: ReplicaSettings, last: Mapping[str, Any] | None, now: float) -> bool:
    """Whether to refresh a copy: at every run, once in each period of the calendar, or so long after the last refresh.

    `last` is what the journal records of its last good refresh.

    One whose last attempt failed is always due.
    """
    if last is None or last.get("error") or replica.every is None or last.get("at") is None:
        return True
    at = float(last.get("checked") or last["at"])
    if isinstance(replica.every, str):
        begin = PERIODS[replica.every](dt.datetime.fromtimestamp(now).astimezone())
        return at < begin.timestamp()
    return now - at >= replica.every


@dataclass(frozen=True)
class StepSnapshot:
    """A snapshot of a step, as `kept_by` takes it."""

    id: str
    taken: float


def drop_old_snapshots(store: Store, names: Iterable[str], rule: str) -> None:
    """Drops the snapshots among `names`, the pipeline's own, that a rule such as `7 daily, 4 weekly` does not keep.

    One that a branch stands on stays.
    """
    ours = set(names)
    snapshots = [StepSnapshot(record.name, record.taken) for record in store.snapshots() if record.name in ours]
    kept = kept_by(snapshots, parse_rule(rule))
    for snapshot in snapshots:
        if snapshot.id not in kept:
            with suppress(InUse):
                store.drop_snapshot(snapshot.id)


AUTO, FIRST, FULL = "auto", "first", "full"


def in_order(views: Sequence[ViewSettings]) -> list[ViewSettings]:
    """The views, each after those of them that it stands on."""
    by_name = {view.name: view for view in views}
    return [by_name[name] for name in order_of_views({view.name: view.sql for view in views})]


def define_view(store: Store, view: ViewSettings) -> None:
    """Defines a view, or gives it a new text, unless it is there as it is declared; refreshes its rows, if stored."""
    if not any(is_as_declared(view, one) for one in store.views()):
        store.view(view.name, view.sql, **view.options)
    if view.stored:
        store.view(view.name).refresh()


def is_as_declared(view: ViewSettings, known: ViewListing) -> bool:
    """Whether a view of the store is what the file says."""
    present = (known.name, known.sql, known.maintain, known.refresh_policy, known.comment)
    declared = (view.name, view.sql, view.maintain, view.refresh_policy, view.comment)
    return present == declared and (known.stored, known.target_lag) == (view.stored, view.target_lag)


def copy_of(store: Store, replica: ReplicaSettings, name: str, address: Address, runner: str) -> tuple[Copy, bool]:
    """The copy, called `name` in the store, as the settings want it; and whether it is new."""
    before = {copy.name: copy.record for copy in store.copies()}.get(name)
    there = None if before is None else (before.view, before.target, before.target_lag)
    if there == (replica.of, address.shown, replica.target_lag):
        return store.copy(name, address), False
    lag = "none" if replica.target_lag is None else replica.target_lag
    return store.view(replica.of).replicate(address, name=name, target_lag=lag, runner=runner), before is None


def _refreshed(copy: Copy, method: str, runner: str) -> dict[str, Any]:
    """What the journal records of a refresh, by what changed since the copy's own position."""
    # `auto` is what the view's own policy says.
    sent = copy.refresh(None if method == AUTO else method, runner=runner)
    result = {"method": sent.method, "messages": sent.messages, "bytes": sent.bytes, "why": sent.why}
    return {**result, "seconds": round(sent.seconds, 3), "position": sent.position}


def _first_content(copy: Copy) -> dict[str, Any]:
    """What the journal records of a copy that was made just now."""
    taken = copy.record.taken
    return {**copy.record.last, "why": "the copy is new", "position": None if taken is None else taken.commit}


def _against_everything(result: Mapping[str, Any], rows: int, last: Mapping[str, Any]) -> dict[str, Any]:
    """How many messages and about how many bytes sending all rows takes: by the line through the smallest and the
    largest refresh so far, as a message has bytes of its own beside those of its rows.
    """
    sizes = [tuple(size) for size in last.get("sizes", ())]
    sizes += [(int(result["messages"]), int(result["bytes"]))] if result["messages"] else []
    least, most = (min(sizes), max(sizes)) if sizes else ((0, 0), (0, 0))
    if result["method"] in (FIRST, FULL):
        full = result["bytes"]
    elif most[0] > least[0] and most[1] > least[1]:
        full = round(most[1] + (rows - most[0]) * (most[1] - least[1]) / (most[0] - least[0]))
    else:
        full = round(most[1] * rows / most[0]) if most[0] else 0
    return {"sizes": [list(size) for size in sorted({least, most})], "full_messages": rows, "full_bytes": max(full, 0)}


ALL_STEPS = 1_000_000
Finishing = Callable[[], dict[str, Any]]


def finish_step(context: PipelineContext, step: Step, stages: Stages, now: float) -> Step:
    """The rest of a step once it is committed, by whichever run."""
    journal = Journal(context.store, context.settings.name)
    step = replace(step, commit=journal.commit_of(step))
    with stages.stage("notice"):
        _acknowledge_bases(context, step)
    step = refresh_and_dump(context, step, stages, now)
    step = replace(
        step,
        tables=context.table_sizes(_state_of(context, step)),
        finished=True,
        stages={**step.stages, **stages.seconds},
    )
    stages.at("finish")
    journal.update(step)
    if context.settings.keep is not None:
        names = [earlier.snapshot for earlier in journal.steps(ALL_STEPS)]
        drop_old_snapshots(context.store, names, context.settings.keep)
    sweep_signatures(context, step)
    return step


def refresh_and_dump(context: PipelineContext, step: Step, stages: Stages, now: float) -> Step:
    """Views, copies and dumps, as far as they are due."""
    views, replicas, dumps = {}, dict(step.replicas), dict(step.dumps)
    with stages.stage("views"):
        for view in in_order(context.settings.views):
            views[view.name] = _attempt(context, now, None, partial(_define, context, view))
    with stages.stage("replicas"):
        for replica in context.settings.replicas:
            if is_due(replica, replicas.get(replica.name), now):
                last = replicas.get(replica.name)
                result = _attempt(context, now, last, partial(_refresh, context, step, replica, last))
                replicas[replica.name] = {**result, "of": replica.of, "to": replica.to}
                stages.at(f"refreshed {replica.name}")
    with stages.stage("dumps"):
        for dump in context.settings.dumps:
            made = _attempt(context, now, dumps.get(dump.name), partial(_dump, context, dump))
            if made.get("level") is not None or made.get("error"):
                dumps[dump.name] = made
                stages.at(f"dumped {dump.name}")
    known = {replica.name for replica in context.settings.replicas}, {dump.name for dump in context.settings.dumps}
    return replace(
        step,
        views=views,
        replicas={name: result for name, result in replicas.items() if name in known[0]},
        dumps={name: result for name, result in dumps.items() if name in known[1]},
    )


def _state_of(context: PipelineContext, step: Step) -> str | None:
    """The step's own state: its snapshot, which its commit has named. Now, if that was dropped."""
    return step.snapshot if step.snapshot in [record.name for record in context.store.snapshots()] else None


def _acknowledge_bases(context: PipelineContext, step: Step) -> None:
    sizes = context.table_sizes(_state_of(context, step))
    for source in context.settings.sources:
        recorded = step.sources.get(source.name, {}).get("position")
        if recorded is not None:
            position = Position.from_json(recorded)
            rows = sizes[source.table]["rows"] if source.table in sizes else 0
            annotated_source.acknowledge(address_of(source, context.secrets), context.copy_name(source), position, rows)


def _define(context: PipelineContext, view: ViewSettings) -> dict[str, Any]:
    define_view(context.store, view)
    return {"sql": view.sql}


def _refresh(
    context: PipelineContext, step: Step, replica: ReplicaSettings, last: Mapping[str, Any] | None
) -> dict[str, Any]:
    address = context.secrets.address(replica.to, f"opening the copy {replica.name!r}")
    name, runner = f"{context.settings.name}.{replica.name}", context.options.runner
    copy, is_new = copy_of(context.store, replica, name, address, runner)
    result = _first_content(copy) if is_new else _refreshed(copy, replica.method, runner)
    return {**result, **_against_everything(result, copy.record.held, last or {}), "step": step.number}


def dump_places(context: PipelineContext, dump: DumpSettings) -> tuple[str, str | None]:
    """Where a dump goes, and the file with its key."""
    doing = f"dumping to {dump.name!r}"
    key_file = None if dump.key_file is None else context.secrets.fill(dump.key_file, doing)
    return context.secrets.fill(dump.to, doing), key_file


def _dump(context: PipelineContext, dump: DumpSettings) -> dict[str, Any]:
    target, key_file = dump_places(context, dump)
    level = context.store.dump_due(target, schedule=dump.schedule, key_file=key_file)
    if level is None:
        return {"level": None, "to": dump.to}
    made = context.store.dump(target, level=level, key_file=key_file, runner=context.options.runner)
    if dump.keep is not None:
        Dumps(target, key_file=key_file).prune(dump.keep, confirm=True)
    return {
        "level": made.level,
        "to": dump.to,
        "id": made.id,
        "pages": made.pages,
        "bytes": made.bytes,
        "seconds": round(made.seconds, 3),
    }


def _attempt(context: PipelineContext, now: float, last: Mapping[str, Any] | None, do: Finishing) -> dict[str, Any]:
    """The result for the journal, or the error; then the last good refresh stays on record beside it."""
    started = time.perf_counter()
    try:
        result = do()
        if result.get("method") == "nothing" and last is not None and not last.get("error"):
            return {**last, "checked": now, "step": result["step"]}
        return {**result, "at": now, "error": None}
    except Cancelled:
        raise
    except (StrandlineError, OSError) as error:
        text = str(error) if isinstance(error, StrandlineError) else f"the machine refused: {error}"
        seconds = round(time.perf_counter() - started, 3)
        return {**(last or {}), "error": context.secrets.scrub(text), "failed_at": now, "failed_seconds": seconds}
