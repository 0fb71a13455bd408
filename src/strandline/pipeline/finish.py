"""When a copy is due: at every run, once in each period of the calendar, or so long after the last refresh.

Old snapshots of a pipeline: which a rule such as `7 daily, 4 weekly` keeps, and dropping the others.

Copies of tables and views: each is brought to the store's present state by what changed since its own position.

The store keeps each copy's position and difference (see `views`); here the pipeline's names and addresses are put to
them, and what went over is set against what sending everything would take.

Finishing a step that has happened: notices to bases, the snapshot, views, copies and dumps that are due.

Everything here may be done again: what is done already is found done. A copy or a dump that fails is noted, the others
go on, and the next run tries it again.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from strandline.dumps import PERIODS, Dumps, kept_by, parse_rule
from strandline.errors import InUse, StrandlineError
from strandline.pipeline import annotated_source
from strandline.pipeline.extracts import address_of
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.settings import DumpTo, ReplicaOf, ViewOf
from strandline.pipeline.step import Bench, Stages, sweep_signatures
from strandline.relations import parse_address
from strandline.replication import Position
from strandline.store import Store


def is_due(replica: ReplicaOf, last: Mapping[str, Any] | None, now: float) -> bool:
    """Whether a copy shall be refreshed; `last` is what the journal says of its last good refresh, if anything.

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
class Taken:
    """A snapshot of a step, as the calendar sees it."""

    id: str
    taken: float


def retire(store: Store, names: Iterable[str], rule: str) -> list[str]:
    """Drops the snapshots among `names` that the rule does not keep; which they were.

    One that a branch stands on stays. Snapshots that are not the pipeline's own are never touched.
    """
    ours = set(names)
    found = [Taken(record.name, record.taken) for record in store.snapshots() if record.name in ours]
    kept = kept_by(found, parse_rule(rule))
    dropped = []
    for one in found:
        if one.id in kept:
            continue
        try:
            store.drop_snapshot(one.id)
            dropped.append(one.id)
        except InUse:
            continue
    return dropped


FIRST, FULL = "first", "full"


def keep_view(store: Store, view: ViewOf) -> None:
    """Defines a view, or gives it a new text; does nothing if it is there with this one."""
    known = {one.name: one.sql for one in store.views()}
    if known.get(view.name) != view.sql:
        store.view(view.name, view.sql, strict=view.strict)


def ship(
    store: Store, replica: ReplicaOf, name: str, url: str, last: Mapping[str, Any] | None, runner: str
) -> dict[str, Any]:
    """Brings a copy, called `name` in the store, up to date; what that took.

    `last` is what the last refresh took: the size of a row is known from the first one.
    """
    known = {copy.name: copy for copy in store.copies()}
    shown = parse_address(url).shown
    there = known.get(name)
    if there is not None and (there.record.view, there.record.target) == (replica.of, shown):
        copy = store.copy(name, url)
        done = copy.refresh(replica.method, runner=runner)
        result = {"method": done.method, "messages": done.messages, "bytes": done.bytes, "why": done.why}
        result |= {"seconds": round(done.seconds, 3), "position": done.position}
    else:
        copy = store.view(replica.of).replicate(url, name=name, runner=runner)
        taken = copy.record.taken
        result = {**copy.record.last, "why": "the copy is new", "position": None if taken is None else taken.commit}
    return {**result, **_against_everything(result, copy.record.held, last or {})}


def _against_everything(result: Mapping[str, Any], rows: int, last: Mapping[str, Any]) -> dict[str, Any]:
    """How many messages and about how many bytes sending all rows takes, by the size of a row when all were sent."""
    size = last.get("row_bytes")
    if result["method"] in (FIRST, FULL) and result["messages"]:
        size = result["bytes"] / result["messages"]
    full = result["bytes"] if size is None else round(size * rows)
    return {"row_bytes": size, "full_messages": rows, "full_bytes": full}


ALL_STEPS = 1_000_000
Doing = Callable[[], dict[str, Any]]


def finish(bench: Bench, step: Step, stages: Stages, now: float) -> Step:
    """The rest of a step, once it has happened, whoever began it."""
    journal = Journal(bench.store, bench.settings.name)
    step = replace(step, commit=journal.commit_of(step))
    with stages.stage("notice"):
        _tell_bases(bench, step)
    with stages.stage("snapshot"):
        take_snapshot(bench, step)
    step = refresh_and_dump(bench, step, stages, now)
    step = replace(step, tables=_sizes(bench), finished=True, stages={**step.stages, **stages.seconds})
    stages.at("finish")
    journal.update(step)
    if bench.settings.keep is not None:
        retire(bench.store, [one.snapshot for one in journal.steps(ALL_STEPS)], bench.settings.keep)
    sweep_signatures(bench, step)
    return step


def refresh_and_dump(bench: Bench, step: Step, stages: Stages, now: float) -> Step:
    """Views, copies and dumps, as far as they are due."""
    views, replicas, dumps = {}, dict(step.replicas), dict(step.dumps)
    with stages.stage("views"):
        for view in bench.settings.views:
            views[view.name] = _attempt(bench, now, None, partial(_keep, bench, view))
    with stages.stage("replicas"):
        for replica in bench.settings.replicas:
            if is_due(replica, replicas.get(replica.name), now):
                last = replicas.get(replica.name)
                done = _attempt(bench, now, last, partial(_refresh, bench, step, replica, last))
                replicas[replica.name] = {**done, "of": replica.of, "to": replica.to}
                stages.at(f"refreshed {replica.name}")
    with stages.stage("dumps"):
        for dump in bench.settings.dumps:
            made = _attempt(bench, now, dumps.get(dump.name), partial(_dump, bench, dump))
            if made.get("level") is not None or made.get("error"):
                dumps[dump.name] = made
                stages.at(f"dumped {dump.name}")
    known = {replica.name for replica in bench.settings.replicas}, {dump.name for dump in bench.settings.dumps}
    return replace(
        step,
        views=views,
        replicas={name: result for name, result in replicas.items() if name in known[0]},
        dumps={name: result for name, result in dumps.items() if name in known[1]},
    )


def take_snapshot(bench: Bench, step: Step) -> None:
    """Names the step's state, unless that was done."""
    if step.snapshot not in [record.name for record in bench.store.snapshots()]:
        bench.store.snapshot(step.snapshot)


def _tell_bases(bench: Bench, step: Step) -> None:
    for source in bench.settings.sources:
        said = step.sources.get(source.name, {})
        position = Position.from_json(said.get("position"))
        if position is not None:
            rows = bench.store.table(source.table).count()
            annotated_source.note_taken(address_of(source, bench.secrets), bench.copy_name(source), position, rows)


def _keep(bench: Bench, view: ViewOf) -> dict[str, Any]:
    keep_view(bench.store, view)
    return {"sql": view.sql}


def _refresh(bench: Bench, step: Step, replica: ReplicaOf, last: Mapping[str, Any] | None) -> dict[str, Any]:
    url = bench.secrets.fill(replica.to, f"opening the copy {replica.name!r}")
    name = f"{bench.settings.name}.{replica.name}"
    return {**ship(bench.store, replica, name, url, last, bench.means.runner), "step": step.number}


def _dump(bench: Bench, dump: DumpTo) -> dict[str, Any]:
    target = bench.secrets.fill(dump.to, f"dumping to {dump.name!r}")
    level = bench.store.dump_due(target, schedule=dump.schedule, key_file=dump.key_file)
    if level is None:
        return {"level": None, "to": dump.to}
    means = bench.means
    made = bench.store.dump(target, level=level, key_file=dump.key_file, runner=means.runner)
    if dump.keep is not None:
        Dumps(target, key_file=dump.key_file).prune(dump.keep, confirm=True)
    return {
        "level": made.level,
        "to": dump.to,
        "id": made.id,
        "pages": made.pages,
        "bytes": made.bytes,
        "seconds": round(made.seconds, 3),
    }


def _attempt(bench: Bench, now: float, last: Mapping[str, Any] | None, do: Doing) -> dict[str, Any]:
    """What was done, or why it could not be; then the last good refresh stays on record beside the error."""
    started = time.perf_counter()
    try:
        done = do()
        if done.get("method") == "nothing" and last is not None and not last.get("error"):
            return {**last, "checked": now, "step": done["step"]}
        return {**done, "at": now, "error": None}
    except (StrandlineError, OSError) as error:
        told = str(error) if isinstance(error, StrandlineError) else f"the machine refused: {error}"
        kept = {} if last is None else {**last}
        seconds = round(time.perf_counter() - started, 3)
        return {**kept, "error": bench.secrets.scrub(told), "failed_at": now, "failed_seconds": seconds}


def _sizes(bench: Bench) -> dict[str, Any]:
    with bench.store.state() as view:
        wanted = {source.table for source in bench.settings.sources}
        return {
            entry.name: {"rows": entry.root.sums.rows, "bytes": entry.root.sums.bytes, "pages": entry.root.sums.pages}
            if entry.root is not None
            else {"rows": 0, "bytes": 0, "pages": 0}
            for entry in view.domains()
            if entry.name in wanted
        }
