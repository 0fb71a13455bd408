"""Taking a step up to its commit: extract, detect, guard, apply. Nothing that lasts happens before the commit.

What is left by a run that was stopped earlier: positions that annotated bases offered and nobody took (the next run
asks from the old one), folders of signatures that no journal row names (the next run sweeps them).
"""

from __future__ import annotations

import datetime as dt
import os
import secrets as chance
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

from strandline.errors import Conflict, GuardTripped, SchemaError
from strandline.pipeline import annotated
from strandline.pipeline.detecting import Known, Means, detect, known_of
from strandline.pipeline.extracts import Extract, address_of, check_still, extracts
from strandline.pipeline.found import Found
from strandline.pipeline.guards import guard_changes, guard_extract
from strandline.pipeline.journal import Journal, Step, message_of
from strandline.pipeline.secret import Secrets, is_database
from strandline.pipeline.settings import Settings, Source
from strandline.pipeline.stages import Stages
from strandline.store import Store
from strandline.tables import TableTransaction


@dataclass(frozen=True)
class Bench:
    """What a step is taken with."""

    settings: Settings
    store: Store
    secrets: Secrets
    means: Means

    @property
    def states(self) -> str:
        """The folder for signatures."""
        return os.path.join(self.settings.work, "signatures")

    def copy_name(self, source: Source) -> str:
        """How an annotated base calls the table that it feeds."""
        return f"{self.settings.name}.{source.table}"


@dataclass(frozen=True)
class Gathered:
    """All that a step would apply."""

    found: Mapping[str, Found]
    known: Mapping[str, Known]

    @property
    def new(self) -> bool:
        return any(one.new for one in self.found.values())


def gather(bench: Bench, last: Step | None, stages: Stages, now: float) -> Gathered:
    """Extracts every source, finds what changed, and lets the guards look. Applies nothing."""
    known = {source.name: known_of(bench.store, source, last, bench.states) for source in bench.settings.sources}
    bases = [source for source in bench.settings.sources if is_annotated(bench, source)]
    plain = [source for source in bench.settings.sources if source not in bases]
    found: dict[str, Found] = {}
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


def _put(found: Found, transaction: TableTransaction) -> None:
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


def is_annotated(bench: Bench, source: Source) -> bool:
    """Whether the source's base says itself what changed."""
    place = bench.secrets.fill(source.location, f"opening the source {source.name!r}")
    if source.detect not in ("auto", "annotated") or not is_database(place):
        return False
    if source.detect == "annotated":
        return True
    address = address_of(source, bench.secrets)
    return annotated.is_base(address) and not annotated.obstacle_to_annotating(source, address)


def _from_base(bench: Bench, source: Source, known: Known, now: float) -> Found:
    address = address_of(source, bench.secrets)
    taken = annotated.take(bench.store, source, address, known, bench.copy_name(source))
    if isinstance(taken, Found):
        return taken
    guard_extract(taken.extract, now)
    found = _detected(bench, taken.extract, known)
    return replace(
        found, why=f"{taken.why}, so it was read whole; {found.why}", position=taken.position.to_json(), new=True
    )


def _detected(bench: Bench, extract: Extract, known: Known) -> Found:
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
