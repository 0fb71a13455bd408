"""A step up to its commit: extract, detect, guard, commit. Nothing durable happens before the commit. A guard stops the
step where an extract looks wrong, and says what was seen.

What a run that was stopped earlier leaves: positions that annotated bases offered and no run took (the next run asks
from the old one), and folders of signatures that no journal row names (the next run removes them).
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from strandline.errors import Conflict, GuardTripped, InputError, SchemaError
from strandline.pipeline import annotated_source
from strandline.pipeline.detection import RunOptions, SourceChanges, TableState, detect_changes, read_table_state
from strandline.pipeline.extracts import Extract, address_of, check_unchanged, open_extracts
from strandline.pipeline.journal import Journal, Step, message_of
from strandline.pipeline.places import Secrets
from strandline.pipeline.settings import Guards, PipelineSettings, SourceSettings
from strandline.relations import is_database_url, read_relation
from strandline.replication import BASE_DIALECTS, BaseCopyRecord
from strandline.storage import files_below, remove_folder
from strandline.store import Store
from strandline.tables import TableTransaction

logger = logging.getLogger(__name__)

Watch = Callable[[str], None]

STAGES = ("extract", "detect", "guard", "apply", "notice", "views", "replicas", "dumps")
"""The stages as a run passes them."""
_REPEATED_SHOWN = 5
"""How many values that stand twice are told of."""


class Stages:
    """Times by stage, in the order in which they were entered.

    `watch` is called with the name of every point that a run passes; tests stop a run at each of them in turn.
    """

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
        logger.info("%s", point)
        self._watch(point)


@dataclass(frozen=True)
class PipelineContext:
    """What a run works with: settings, the open store, secrets, and where work runs."""

    settings: PipelineSettings
    store: Store
    secrets: Secrets
    options: RunOptions

    @property
    def states(self) -> str:
        """The folder for signatures."""
        return os.path.join(self.settings.work, "signatures")

    def copy_name(self, source: SourceSettings) -> str:
        """The name at an annotated base of the table that it feeds."""
        return f"{self.settings.name}.{source.table}"

    def table_sizes(self, at: str | None = None) -> dict[str, dict[str, int]]:
        """Rows, bytes and pages of the tables that sources fill, by name; read from the page tables of a state."""
        wanted = {source.table for source in self.settings.sources}
        with self.store.state(at) as view:
            sums = {entry.name: entry.sums for entry in view.domains() if entry.name in wanted}
        return {name: {"rows": one.rows, "bytes": one.bytes, "pages": one.pages} for name, one in sums.items()}


@dataclass(frozen=True)
class StepChanges:
    """What a step would commit: the changes of each source, and the state that its table had, by source name."""

    by_source: Mapping[str, SourceChanges]
    tables: Mapping[str, TableState]

    @property
    def new(self) -> bool:
        return any(changes.new for changes in self.by_source.values())


def collect_changes(context: PipelineContext, last: Step | None, stages: Stages, now: float) -> StepChanges:
    """Extracts every source, detects what changed, and checks the guards. Commits nothing."""
    sources, store = context.settings.sources, context.store
    tables = {source.name: read_table_state(store, source, last, context.states) for source in sources}
    bases = [source for source in sources if is_annotated(context, source)]
    plain = [source for source in sources if source not in bases]
    by_source: dict[str, SourceChanges] = {}
    with stages.stage("extract"):
        extracted = open_extracts(plain, context.secrets, context.options.session)
        for extract in extracted.values():
            guard_extract(extract, now, accepted=extract.source.name in context.options.accept)
    with stages.stage("detect"):
        for source in sources:
            if source in bases:
                by_source[source.name] = _detect_at_base(context, source, tables[source.name], now)
            else:
                by_source[source.name] = _detect_in_extract(context, extracted[source.name], tables[source.name])
            stages.at(f"detected {source.name}")
    with stages.stage("guard"):
        for extract in extracted.values():
            check_unchanged(extract)
        for name, changes in by_source.items():
            if name not in context.options.accept:
                guard_changes(changes)
    return StepChanges(by_source, tables)


def commit_step(context: PipelineContext, changes: StepChanges, last: Step | None, stages: Stages, now: float) -> Step:
    """The commit: every table's changes, the journal's row and the snapshot, in one transaction.

    The changes lead to the extracts from the states that were compared, so the tables must be in these at the commit.
    """
    step = _accepted(_new_step(context.settings, changes, last, now), context.options.accept)
    step = replace(step, stages=dict(stages.seconds))
    journal = Journal(context.store, context.settings.name)
    with stages.stage("apply"), context.store.transaction(message_of(step)) as transaction:
        for source in context.settings.sources:
            _check_unmoved(transaction, source, changes.tables[source.name], step)
        for source_changes in changes.by_source.values():
            _write_changes(source_changes, transaction)
        journal.write(transaction, step)
        stages.at("commit")
        commit = transaction.commit(snapshot=step.snapshot)
    return replace(step, commit=int(commit))


def _check_unmoved(transaction: TableTransaction, source: SourceSettings, compared: TableState, step: Step) -> None:
    """Refuses to go on if a table is not in the state that was compared; from here on it stays in that."""
    if transaction.last_change(source.table) != compared.moved:
        raise Conflict(
            f"the table {source.table!r} was changed while the source was compared",
            doing=f"applying step {step.number}",
            hint="Nothing was applied; run again",
        )


def _write_changes(changes: SourceChanges, transaction: TableTransaction) -> None:
    """Adds a source's changes to the transaction. Values that the table's types can't hold are drift as well."""
    try:
        changes.put(transaction)
    except SchemaError as error:
        if changes.rows is not None:
            raise
        raise GuardTripped(
            error.why,
            doing=f"writing the source {changes.source.name!r} into the table {changes.source.table!r}",
            hint="Nothing was applied. Mend the extract; or drop the table, and it is loaded anew with the new type",
        ) from None


def snapshot_name(settings: PipelineSettings, number: int, now: float) -> str:
    """The name of a step's snapshot."""
    day = dt.datetime.fromtimestamp(now).strftime("%Y-%m-%d")
    return settings.snapshot.format(name=settings.name, step=number, date=day)


def _new_step(settings: PipelineSettings, changes: StepChanges, last: Step | None, now: float) -> Step:
    number = last.number + 1 if last is not None else 1
    before = last.sources if last is not None else {}
    sources = {}
    for name, source in changes.by_source.items():
        earlier = before.get(name, {})
        record = source.to_json() if source.new else {**earlier, **source.to_json()}
        if source.position is None and not source.new:
            record["position"] = earlier.get("position")
        sources[name] = {**record, "step": number if source.new else earlier.get("step", number)}
    step = Step(settings.name, number, now, snapshot_name(settings, number, now), sources=sources)
    return step if last is None else replace(step, replicas=last.replicas, dumps=last.dumps)


def _accepted(step: Step, accept: frozenset[str]) -> Step:
    """The step, with a mark at the sources whose guards were overruled."""
    marked = {name: {**record, "accepted": name in accept} for name, record in step.sources.items()}
    return replace(step, sources=marked) if accept else step


def is_annotated(context: PipelineContext, source: SourceSettings) -> bool:
    """Whether the source's base says itself what changed."""
    place = context.secrets.fill(source.location, f"opening the source {source.name!r}")
    if source.detect not in ("auto", "annotated"):
        return False
    table = is_database_url(place) and not source.reading.options.query
    address = address_of(source, context.secrets) if table else None
    if address is None or address.kind not in BASE_DIALECTS:
        if source.detect == "annotated":
            raise InputError(
                f"only a table of PostgreSQL or SQLite can be annotated, not {source.location}",
                doing=f"detecting the changes of the source {source.name!r}",
                hint='Say detect = "store"',
            )
        return False
    if source.detect == "annotated":
        return True
    return annotated_source.is_base(address) and not annotated_source.obstacle_to_annotating(source, address)


def _detect_at_base(context: PipelineContext, source: SourceSettings, table: TableState, now: float) -> SourceChanges:
    address = address_of(source, context.secrets)
    at = f"strandline:///{context.secrets.written(context.settings.store)}#{source.table}"
    wanted = BaseCopyRecord(context.copy_name(source), address.name, 0, at, ())
    read = annotated_source.read_base_changes(context.store, source, address, table, wanted)
    if isinstance(read, SourceChanges):
        return read
    guard_extract(read.extract, now, accepted=source.name in context.options.accept)
    changes = _detect_in_extract(context, read.extract, table)
    why = f"{read.why}, so it was read whole; {changes.why}"
    return replace(changes, why=why, position=read.position.to_json(), new=True)


def _detect_in_extract(context: PipelineContext, extract: Extract, table: TableState) -> SourceChanges:
    next_state = os.path.join(context.states, f"{extract.source.name}-{secrets.token_hex(6)}")
    return detect_changes(context.store, extract, table, next_state, context.options)


def sweep_signatures(context: PipelineContext, step: Step | None) -> None:
    """Removes folders of signatures that the last step, if there is one, does not name."""
    used = set() if step is None else {source.get("state") for source in step.sources.values()}
    for name in {path.partition("/")[0] for path in files_below(context.states)} - used:
        remove_folder(os.path.join(context.states, name))


def guard_extract(extract: Extract, now: float, *, rows_too: bool = True, accepted: bool = False) -> None:
    """Checks before rows are compared: columns, freshness, number of rows; then, `rows_too`, what needs reading.

    Of an `accepted` extract only that it has the key: nothing could be done without.
    """
    source, guards = extract.source, Guards() if accepted else extract.source.guards
    needed = (*source.key, *guards.required, *(name for names in guards.unique for name in names))
    missing = [name for name in dict.fromkeys(needed) if name not in extract.schema.names]
    if missing:
        columns = ", ".join(extract.schema.names)
        place = f"the key of [sources.{source.name}]" if set(missing) & set(source.key) else ""
        raise _tripped(source, f"{extract.shown} lacks {', '.join(missing)}; its columns are {columns}", place)
    if guards.fresh is not None and extract.taken is not None and now - extract.taken > guards.fresh:
        age = now - extract.taken
        raise _tripped(source, f"{extract.shown} is {_span(age)} old, and {_span(guards.fresh)} are allowed")
    rows = extract.relation.rows
    if guards.rows is not None and rows is not None and rows < guards.rows:
        raise _tripped(source, f"{extract.shown} has {rows:,} rows, and at least {guards.rows:,} are expected")
    for names in guards.unique if rows_too else ():
        _check_unique(extract, names)


def guard_changes(changes: SourceChanges) -> None:
    """Checks once the changes are known: their size against the table as it was."""
    guards, counts, before = changes.source.guards, changes.counts, changes.before
    if not before:
        return
    for what, count, allowed in (
        ("changed", counts.rows, guards.changed),
        ("were deleted", counts.deleted, guards.deleted),
    ):
        if allowed is not None and count / before > allowed:
            seen = f"{counts.inserted:,} inserted, {counts.updated:,} updated, {counts.deleted:,} deleted"
            share = f"{count:,} of {before:,} rows {what} ({count / before:.1%}; allowed are {allowed:.1%})"
            raise _tripped(changes.source, f"{share}: {seen} by {changes.shown}")


def _check_unique(extract: Extract, names: Sequence[str]) -> None:
    rows = read_relation(extract.relation, list(names))
    groups = rows.group_by(list(names)).aggregate([([], "count_all")])
    repeated = groups.filter(pc.greater(groups.column("count_all"), 1))
    if len(repeated):
        shown = [tuple(row[name] for name in names) for row in repeated.slice(0, _REPEATED_SHOWN).to_pylist()]
        values = ", ".join(str(key[0] if len(key) == 1 else key) for key in shown)
        more = f" and {len(repeated) - _REPEATED_SHOWN:,} more" if len(repeated) > _REPEATED_SHOWN else ""
        raise _tripped(extract.source, f"({', '.join(names)}) is not unique in {extract.shown}: {values}{more}")


def _tripped(source: SourceSettings, why: str, place: str = "") -> GuardTripped:
    once = "" if place else f"accept it once (strandline run … --accept {source.name}) or "
    place = place or f"[sources.{source.name}.guards]"
    return GuardTripped(
        why,
        doing=f"guarding the source {source.name!r}",
        hint=f"Nothing was applied. Look at the extract; if it is right, {once}change {place}",
    )


def _span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
