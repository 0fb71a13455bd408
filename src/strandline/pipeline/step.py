"""The stages of a run: how long each took, and who is told when one begins.

`watch` is called with the name of every point that a run passes; tests stop a run at each of them in turn.

Taking a step up to its commit: extract, detect, guard, apply. Nothing that lasts happens before the commit.

What is left by a run that was stopped earlier: positions that annotated bases offered and nobody took (the next run
asks from the old one), folders of signatures that no journal row names (the next run sweeps them).
"""

from __future__ import annotations

import datetime as dt
import os
import secrets as chance
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from strandline.errors import Conflict, GuardTripped, SchemaError
from strandline.pipeline import annotated_source
from strandline.pipeline.detection import KnownState, RunMeans, SourceChanges, detect, known_of
from strandline.pipeline.extracts import Extract, address_of, check_still, extracts
from strandline.pipeline.guards import guard_changes, guard_extract
from strandline.pipeline.journal import Journal, Step, message_of
from strandline.pipeline.places import Secrets, is_database
from strandline.pipeline.settings import Settings, SourceSettings
from strandline.store import Store
from strandline.tables import TableTransaction

Watch = Callable[[str], None]

ORDER = ("extract", "detect", "guard", "apply", "notice", "snapshot", "views", "replicas", "dumps")
"""The stages as a run passes them."""


class Stages:
    """Times by stage, in the order in which they were entered."""

    def __init__(self, watch: Watch) -> None:
        self.seconds: dict[str, float] = {}
        self._watch = watch

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.at(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - started, 4)
        self.at(f"after {name}")

    def at(self, point: str) -> None:
        """Passes a point."""
        self._watch(point)


@dataclass(frozen=True)
class Bench:
    """What a step is taken with."""

    settings: Settings
    store: Store
    secrets: Secrets
    means: RunMeans

    @property
    def states(self) -> str:
        """The folder for signatures."""
        return os.path.join(self.settings.work, "signatures")

    def copy_name(self, source: SourceSettings) -> str:
        """How an annotated base calls the table that it feeds."""
        return f"{self.settings.name}.{source.table}"


@dataclass(frozen=True)
class Gathered:
    """All that a step would apply."""

    found: Mapping[str, SourceChanges]
    known: Mapping[str, KnownState]

    @property
    def new(self) -> bool:
        return any(one.new for one in self.found.values())


def gather(bench: Bench, last: Step | None, stages: Stages, now: float) -> Gathered:
    """Extracts every source, finds what changed, and lets the guards look. Applies nothing."""
    known = {source.name: known_of(bench.store, source, last, bench.states) for source in bench.settings.sources}
    bases = [source for source in bench.settings.sources if is_annotated(bench, source)]
    plain = [source for source in bench.settings.sources if source not in bases]
    found: dict[str, SourceChanges] = {}
    with stages.stage("extract"):
        extracted = extracts(plain, bench.secrets)
        for extract in extracted.values():
            guard_extract(extract, now)
    with stages.stage("detect"):
        for source in bench.settings.sources:
            if source in bases:
                found[source.name] = _from_base(bench, source, known[source.name], now)
            else:
                found[source.name] = _detected(bench, extracted[source.name], known[source.name])
            stages.at(f"detected {source.name}")
    with stages.stage("guard"):
        for extract in extracted.values():
            check_still(extract)
        for one in found.values():
            guard_changes(one)
    return Gathered(found, known)


def apply(bench: Bench, gathered: Gathered, last: Step | None, stages: Stages, now: float) -> Step:
    """The commit: every table's changes, and the journal's row, in one transaction."""
    step = _step(bench.settings, gathered, last, now)
    journal = Journal(bench.store, bench.settings.name)
    for source in bench.settings.sources:
        if known_of(bench.store, source, last, bench.states).moved != gathered.known[source.name].moved:
            raise Conflict(
                f"the table {source.table!r} was changed while the source was compared",
                doing=f"applying step {step.number}",
                hint="Nothing was applied; run again",
            )
    with stages.stage("apply"), bench.store.transaction(message_of(step)) as transaction:
        for one in gathered.found.values():
            _put(one, transaction)
        journal.write(transaction, step)
        stages.at("commit")
        commit = transaction.commit()
    return replace(step, commit=int(commit))


def _put(found: SourceChanges, transaction: TableTransaction) -> None:
    """Values that the table's types can't hold are drift, too; only writing them tells."""
    try:
        found.put(transaction)
    except SchemaError as error:
        if found.rows is not None:
            raise
        raise GuardTripped(
            error.why,
            doing=f"writing the source {found.source.name!r} into the table {found.source.table!r}",
            hint="Nothing was applied. Mend the extract; or drop the table, and it is loaded anew with the new type",
        ) from None


def named(settings: Settings, number: int, now: float) -> str:
    """What the snapshot of a step is called."""
    day = dt.datetime.fromtimestamp(now).strftime("%Y-%m-%d")
    return settings.snapshot.format(name=settings.name, step=number, date=day)


def _step(settings: Settings, gathered: Gathered, last: Step | None, now: float) -> Step:
    number = last.number + 1 if last is not None else 1
    before = last.sources if last is not None else {}
    sources = {}
    for name, found in gathered.found.items():
        kept = {**before.get(name, {}), **found.to_json()} if not found.new else found.to_json()
        if found.position is None and not found.new:
            kept["position"] = before.get(name, {}).get("position")
        sources[name] = {**kept, "step": number if found.new else before.get(name, {}).get("step", number)}
    step = Step(settings.name, number, now, named(settings, number, now), sources=sources)
    return step if last is None else replace(step, replicas=last.replicas, dumps=last.dumps)


def is_annotated(bench: Bench, source: SourceSettings) -> bool:
    """Whether the source's base says itself what changed."""
    place = bench.secrets.fill(source.location, f"opening the source {source.name!r}")
    if source.detect not in ("auto", "annotated") or not is_database(place):
        return False
    if source.detect == "annotated":
        return True
    address = address_of(source, bench.secrets)
    return annotated_source.is_base(address) and not annotated_source.obstacle_to_annotating(source, address)


def _from_base(bench: Bench, source: SourceSettings, known: KnownState, now: float) -> SourceChanges:
    address = address_of(source, bench.secrets)
    taken = annotated_source.take(bench.store, source, address, known, bench.copy_name(source))
    if isinstance(taken, SourceChanges):
        return taken
    guard_extract(taken.extract, now)
    found = _detected(bench, taken.extract, known)
    return replace(
        found, why=f"{taken.why}, so it was read whole; {found.why}", position=taken.position.to_json(), new=True
    )


def _detected(bench: Bench, extract: Extract, known: KnownState) -> SourceChanges:
    next_state = os.path.join(bench.states, f"{extract.source.name}-{chance.token_hex(6)}")
    return detect(bench.store, extract, known, next_state, bench.means)


def sweep_signatures(bench: Bench, step: Step) -> None:
    """Removes folders of signatures that the last step does not name."""
    named_ones = {source.get("state") for source in step.sources.values()}
    if not os.path.isdir(bench.states):
        return
    for name in os.listdir(bench.states):
        if name not in named_ones:
            shutil.rmtree(os.path.join(bench.states, name), ignore_errors=True)
