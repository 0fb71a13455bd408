"""A view of a store, as users hold it. It only delegates."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes import Changes, difference
from strandline.errors import InputError, StrandlineError, is_broken
from strandline.pages import ReadView, TemporaryVersion
from strandline.relations import Address, parse_address, same_place
from strandline.replication import (
    Copy,
    Refresh,
    StoredView,
    Verification,
    ViewSender,
    copy_definition,
    drop_rows,
    dropped_on_error,
    lag_of_rows,
    open_target,
    released_on_error,
    source_of,
    store_rows,
)
from strandline.store.dependents import Dropped, drop_view, views_above
from strandline.tables import COPIES, VIEWS, TableTransaction
from strandline.values import ArrowRows
from strandline.views import (
    AUTO,
    EAGER,
    KEEP,
    MAINTAIN,
    POLICIES,
    JoinRunner,
    KnownViews,
    Lag,
    StoreState,
    TwoStates,
    ViewCopyRecord,
    ViewDefinition,
    ViewHost,
    ViewRecord,
    Why,
    changes_of_view,
    check_eager,
    check_policy,
    check_steady,
    computed_whole,
    duration,
    end,
    has,
    in_spark_sql,
    is_kept_at_commits,
    keep,
    on_spark,
    outline,
    put,
    read_views,
    regenerate,
    relations_named,
    rows_of_view,
    state_now,
    subscribe,
    why,
    work_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ViewListing:
    """One line of the list of views. `trouble` says why a view can't be read now."""

    name: str
    sql: str
    form: str
    key: tuple[str, ...]
    maintain: str
    copies: int
    regenerated: str = ""
    trouble: str = ""
    refresh_policy: str = AUTO
    comment: str = ""
    stored: bool = False
    target_lag: float | None = None
    behind: float | None = 0.0


class View(ArrowRows):
    """A view by name. A table, or a what-if, is the trivial view of itself."""

    def __init__(self, host: ViewHost, name: str) -> None:
        self._host = host
        self.name = name

    @property
    def definition(self) -> ViewDefinition:
        """What its text means now."""
        with read_views(self._host) as known:
            return known.source(self.name)

    @property
    def computed_whole(self) -> list[str]:
        """The operators that each change computes again over all rows, such as a window without PARTITION BY."""
        return computed_whole(self.definition)

    @property
    def sql(self) -> str:
        """Its text."""
        with read_views(self._host) as known:
            record = known.records.get(self.name)
            return f'SELECT * FROM "{self.name}"' if record is None else record.sql

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self._shown.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the result; empty in a counted view."""
        return self._shown.key

    @property
    def _shown(self) -> ViewDefinition:
        """What is read under its name."""
        with read_views(self._host) as known:
            return known.definition(self.name)

    def to_arrow(self, *, at: Any = None, runner: str = "auto") -> pa.Table:
        """Its rows, now or at a state: computed, or as they are stored there.

        Of stored rows the schema's metadata say of which commit they are (`strandline.commit`), and when they were
        computed (`strandline.time`).
        """
        with read_views(self._host, at) as known:
            rows = rows_of_view(known, self.name, self._host.running(runner))
            return rows.replace_schema_metadata(_as_of(known, self.name)) if known.has_rows(self.name) else rows

    @property
    def lag(self) -> Lag:
        """How far what it shows is behind its query, in commits and in seconds: not at all unless deferred rows are
        stored.
        """
        with read_views(self._host) as known:
            return lag_of_rows(known, self._host, self.name)

    def status(self) -> dict[str, Any]:
        """Of a stored view: of which commit its rows are, how far behind they are, and what the last refresh did."""
        return StoredView(self._host, self.name).status()

    def refresh(self, method: str | None = None, *, runner: str = "auto") -> Refresh:
        """Of a stored view: bring its rows to the present state, in one commit.

        Rows that every commit keeps need it only where they could not be kept.
        """
        return StoredView(self._host, self.name).refresh(method, runner=runner)

    def verify(self, *, repair: bool = False, runner: str = "auto") -> Verification:
        """Of a stored view: compare its rows with its query, computed at the state that they are of."""
        return StoredView(self._host, self.name).verify(repair=repair, runner=runner)

    def __repr__(self) -> str:
        try:
            made, sql = self._shown, self.sql
        except StrandlineError as error:
            return f"<View {self.name}: {error.why}>"
        keyed = f" by {', '.join(made.key)}" if made.key else ""
        return f"<View {self.name}{keyed}: {', '.join(made.schema.names)}; {' '.join(sql.split())}>"

    def _rows_schema(self) -> pa.Schema:
        return pa.schema([pa.field(field.name, field.type) for field in self.schema])

    def _repr_html_(self) -> str:
        """Its columns: rows would have to be computed."""
        from strandline.report import schema_html

        try:
            return schema_html(repr(self).strip("<>"), self.schema)
        except StrandlineError:
            return schema_html(repr(self).strip("<>"), pa.schema([]))

    def to_spark(self, *, at: Any = None, by: str = "kernels", session: SparkSession | None = None) -> DataFrame:
        """Its rows as a Spark DataFrame, in Spark's types.

        `kernels` compute them as everywhere else, in Spark tasks; `sql` hands the query to Spark SQL, lazily, to which
        some words mean other things than to DuckDB.
        """
        if by not in ("kernels", "sql"):
            raise InputError(f"{by!r} computes nothing", doing=f"reading {self.name!r}", hint="Say kernels or sql")
        with self._host.hold(at) as snapshot, read_views(self._host, snapshot) as known:
            definition = known.definition(self.name)
            if known.has_rows(self.name):
                return self._host.frame(self.name, snapshot)
            if by == "sql":
                frames = {relation: self._host.frame(relation, snapshot) for relation in definition.relations}
                return in_spark_sql(definition, frames, known.state.instant)
            return on_spark(definition, known.state, self._host.running(), session)

    def changes(self, *, since: Any, until: Any = None, runner: str = "auto") -> Changes:
        """What changed in it from one state to another, or to now, by delta queries.

        Both states are read with the clock of now, where the view can follow it; refused for a view that is computed
        anew and calls the clock or chance.
        """
        with self._host.state(since) as older, self._host.state(until) as newer:
            return view_changes(self._host, self.name, older, newer, runner)

    def explain(self, *, since: Any = None) -> str:
        """How it is kept by differences: its operators, and how a change goes through each, the result first.

        Of a view that is kept at commits it also says for what these read whole tables. With a state in `since`, the
        change from there to now is computed, and each operator and table says what that took.
        """
        with read_views(self._host) as known:
            definition, record = known.source(self.name), known.records.get(self.name)
            kept = record is not None and (record.maintain == EAGER or is_kept_at_commits(known, self.name))
            keys = {one: known.state.shape(one).key for one in definition.relations} if kept else None
            if since is None or definition.regenerated:
                return "\n".join(outline(definition, keys))
            with self._host.state(since) as older:
                states = _since(known.state, older, renamed=True)
                return "\n".join(outline(definition, keys, work_of(definition, states, self._host.running())))

    def why(self, change: Any, relation: str | None = None) -> list[Why]:
        """For each row of a change whether it can matter here, and if not, why not, without any join.

        `change` is a row or several, or a change set; `relation` says what it changes, where the view reads several.
        """
        with read_views(self._host) as known:
            return why(known.source(self.name), known.state, change, relation)

    def replicate(
        self,
        target: str | Address,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        name: str | None = None,
        keep: float | str = KEEP,
        target_lag: float | str | None = None,
        runner: str = "auto",
    ) -> Copy:
        """Make a copy at `target` and fill it, or, if that fails, leave nothing of it; if it was stopped, the same call
        goes on.

        What the copy needs for a difference is kept for so long after its last refresh (`keep`: seconds, or a text such
        as `12h` or `30d`); one that was away longer is compared with the view when it comes back. `target_lag` is for
        how long it may be behind: `store.refresh(due=True)` refreshes it then. The same call with another time changes
        it, `"none"` ends it; without one it stays as it is.
        """
        if isinstance(self._host.pages, TemporaryVersion):
            raise InputError(
                "a temporary branch can't have copies: nothing is left of it when it is closed",
                doing=f"replicating {self.name!r}",
                hint="Make it permanent first, with keep(name)",
            )
        address = parse_address(target) if isinstance(target, str) else target
        chosen = None if columns is None else tuple(columns)
        wanted = ViewCopyRecord(name or address.table, self.name, address.shown, secrets.token_hex(8), where, chosen)
        doing = f"replicating {self.name!r}"
        wanted = replace(wanted, keep=duration(keep, doing), version=self._host.name)
        with read_views(self._host) as known:
            subscription = subscribe(known.definition(self.name), where, columns)
            before = known.copies.get(wanted.name)
            _check_free(known, wanted.name, doing)
            taken = {one.id for one in known.all_copies.values()}
        _check_same(before, wanted, address)
        wanted = replace(wanted, target_lag=_target_lag(target_lag, before, doing))
        record = before or wanted
        with open_target(address) as replica:
            there = replica.state()
            left = source_of(there, self._host.identity) if before is None else None
            if left is not None and left not in taken:
                record = replace(record, id=left)  # forgotten, and still there: it goes on as the copy that it was
            if there is None or there.definition.source != record.id:
                # Refuses a target that holds something else, or can't hold a column, before the store knows of it.
                replica.create(copy_definition(subscription, record.id))
        entered = replace(record, keep=wanted.keep, target=wanted.target, target_lag=wanted.target_lag)
        if entered != before:
            self._host.autocommit(lambda transaction: _add_copy(transaction, self._host, entered))
        copy = Copy(ViewSender(self._host), record.name, address)
        if copy.record.taken is None:
            with dropped_on_error(copy, fresh=before is None and record == wanted):
                copy.refresh(runner=runner)
        return copy

    def copies(self) -> list[Copy]:
        """Its copies."""
        with read_views(self._host) as known:
            names = [one.name for one in known.copies.values() if one.view == self.name]
        return [Copy(ViewSender(self._host), name) for name in names]

    def drop(self, *, cascade: bool = False) -> Dropped:
        """Drop the view. Views that stand on it, and copies, must be dropped before, or go with it (`cascade`): the
        views are dropped, the copies forgotten, and their targets keep the rows that they have. Says which.
        """
        return drop_view(self._host, self.name, cascade=cascade)


def create_view(host: ViewHost, wanted: ViewRecord) -> View:
    """A view of that text; an existing one of the same name gets it, and its copies the difference."""
    name, maintain = wanted.name, wanted.maintain
    doing = f"defining view {name!r}"
    if maintain not in MAINTAIN:
        raise InputError(f"{maintain!r} is no way to maintain", doing=doing, hint=f"Use {', '.join(MAINTAIN)}")
    if wanted.policy not in POLICIES:
        raise InputError(f"{wanted.policy!r} is no refresh policy", doing=doing, hint=f"Use {', '.join(POLICIES)}")
    if not name or name != name.strip() or name.startswith("_"):
        raise InputError(f"{name!r} is no name for a view", doing=doing)
    for text, what in ((name, "the name"), (wanted.comment, "the comment")):
        if is_broken(text):
            raise InputError(f"{what} {text!r} holds half of a character", doing=doing)
    if wanted.target_lag is not None and not wanted.stored:
        raise InputError(
            "a target lag is that of stored rows, or of a copy", doing=doing, hint="Say stored=True (--stored)"
        )

    again: list[str] = []

    def work(transaction: TableTransaction) -> None:
        with host.pages.snapshot() as now, read_views(host, now) as known:
            before = known.records.get(name)
            if before is None and name in known.state.names():
                raise InputError(
                    f"there is a table or what-if {name!r} already", doing=doing, hint="Choose another name"
                )
            record, *above = _numbered(known, wanted)
            definition = known.meaning(record)
            check_eager(definition, maintain)
            if record.stored and name in known.copies:
                hint = "Give the copy another name: drop it, and replicate with name=… (--name)"
                raise InputError(f"there is a copy {name!r}, and both are refreshed by name", doing=doing, hint=hint)
            check_policy(definition, record.policy)
            if record != before:
                put(transaction, record, exists=has(known.state.view, VIEWS))
                again[:] = computed_whole(definition)
            for one in above:
                put(transaction, one, exists=True)
            if record.stored:
                store_rows(transaction, host, record, before, now)
                if name in known.segments and (before is None or not before.stored):
                    end(transaction, known.state.view, name)
            else:
                drop_rows(transaction, host, known, name)
                keep(transaction, known, definition, maintain)

    with released_on_error(host, name) if wanted.stored else nullcontext():
        host.autocommit(work)
    for operator in again:
        logger.warning("view %s: each change computes this again over all rows: %s", name, operator)
    return View(host, name)


def _numbered(known: KnownViews, wanted: ViewRecord) -> list[ViewRecord]:
    """The view with its number and, where its new text names younger views, those that stand on it, all made younger
    than these.
    """
    before, last = known.records.get(wanted.name), max((one.number for one in known.records.values()), default=0)
    if before is None:
        return [replace(wanted, number=last + 1)]
    named = {one.lower() for one in relations_named(wanted.sql)} - {wanted.name.lower()}
    if all(one.name.lower() not in named for one in known.records.values() if one.number > before.number):
        return [replace(wanted, number=before.number)]
    above = views_above(known, [wanted.name])
    if any(name.lower() in named for name in above):
        above_it = ", ".join(name for name in above if name.lower() in named)
        raise InputError(f"it would stand on {above_it}, which stands on it", doing=f"defining view {wanted.name!r}")
    younger = [wanted, *(known.records[name] for name in above)]
    return [replace(one, number=last + 1 + place) for place, one in enumerate(younger)]


def open_view(host: ViewHost, name: str) -> View:
    """An existing view; a table or what-if as the view that it is."""
    with read_views(host) as known:
        if name not in known.records:
            known.definition(name)
    return View(host, name)


@dataclass(frozen=True)
class ViewReader:
    """A view at one state, as a query reads it."""

    definition: ViewDefinition
    state: StoreState
    running: JoinRunner

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(self.definition.schema.names)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.definition.schema

    @property
    def bytes(self) -> int:
        """The size of what it is computed from."""
        return sum(self.state.bytes(relation) for relation in self.definition.relations)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        rows = regenerate(self.definition, self.state, self.running)
        return rows if columns is None else rows.select(list(columns))


def view_readers(host: ViewHost, state: ReadView, runner: str) -> dict[str, Callable[[], ViewReader]]:
    """The views of a state by name, to be read as that state has them; not those whose rows are a table of it."""
    known = KnownViews(state_now(host, state), host)

    def reader(name: str) -> ViewReader:
        return ViewReader(known.definition(name), known.state, host.running(runner))

    return {name: partial(reader, name) for name in known.records if not known.has_rows(name)}


def view_changes(host: ViewHost, name: str, older: ReadView, newer: ReadView, runner: str = "auto") -> Changes:
    """What changed in a view from one state to another.

    Where it had another text then, because columns were renamed or it was defined anew, or where its rows were stored
    in one of the states alone, both states are computed, each as it is read `at` that state.
    """
    known = KnownViews(state_now(host, newer), host)
    running = host.running(runner)
    then = KnownViews(replace(known.state, view=older))
    if known.has_rows(name) == then.has_rows(name) and _is_the_same(name, then, known):
        states = _since(known.state, older, renamed=name not in then.records)
        return Changes.of(changes_of_view(known.definition(name), states, running))
    for side in (one for one in (then, known) if name in one.records and not one.has_rows(name)):
        check_steady(side.source(name), f"comparing two states of {name!r}")
    source = known.source(name)
    if name not in then.records:
        older_state = _since(known.state, older, renamed=True).older
        old, key = regenerate(source, older_state, running), source.key
    else:
        old, key = rows_of_view(then, name, running), then.source(name).key
    by = list(source.key) if source.key and key == source.key else None
    return Changes.of(difference(old, rows_of_view(known, name, running), by))


def _is_the_same(name: str, then: KnownViews, now: KnownViews) -> bool:
    """Whether a view that both states have is computed by one definition; one that came later has no other."""
    if name not in then.records or name not in now.records or now.has_rows(name):
        return True
    return then.source(name).fingerprint == now.source(name).fingerprint


def _since(now: StoreState, older: ReadView, *, renamed: bool) -> TwoStates:
    """An older state beside the present one, read by its own names, or by those that its columns have now."""
    return TwoStates(replace(now, view=older, named_by=now.view if renamed else None), now)


def list_views(host: ViewHost) -> list[ViewListing]:
    """The views, the oldest first."""
    with read_views(host) as known:
        counts = [one.view for one in known.copies.values()]
        listings = []
        for record in known.records.values():
            listing = ViewListing(record.name, record.sql, "", (), record.maintain, counts.count(record.name))
            listing = replace(listing, refresh_policy=record.policy, comment=record.comment, stored=record.stored)
            listing = replace(listing, target_lag=record.target_lag)
            try:
                made = known.source(record.name)
                listing = replace(listing, behind=lag_of_rows(known, host, record.name).seconds)
                listings.append(replace(listing, form=made.form, key=made.key, regenerated=made.regenerated))
            except StrandlineError as error:
                listings.append(replace(listing, trouble=error.why))
        return listings


def copies(host: ViewHost) -> list[Copy]:
    """All copies of views and tables, by name."""
    with read_views(host) as known:
        return [Copy(ViewSender(host), name) for name in known.copies]


def open_copy(host: ViewHost, name: str, target: str | Address | None) -> Copy:
    """A copy by name; `target` is needed where its address has a password that the environment does not give."""
    sender = ViewSender(host)
    sender.record(name)
    return Copy(sender, name, parse_address(target) if isinstance(target, str) else target)


def _add_copy(transaction: TableTransaction, host: ViewHost, record: ViewCopyRecord) -> None:
    with read_views(host) as known:
        put(transaction, record, exists=has(known.state.view, COPIES))


def _as_of(known: KnownViews, name: str) -> dict[str, str]:
    """Of which commit the stored rows of a view are, and when they were computed."""
    record = known.stored.get(name)
    if record is None or record.taken is None or is_kept_at_commits(known, name):
        return {"strandline.commit": str(known.state.commit)}
    time = datetime.fromtimestamp(record.seen, UTC).isoformat(timespec="seconds")
    return {"strandline.commit": str(record.taken.commit), "strandline.time": time}


def _check_free(known: KnownViews, name: str, doing: str) -> None:
    view = known.records.get(name)
    if view is not None and view.stored:
        hint = "Give the copy a name of its own: name=… (--name)"
        raise InputError(f"{name!r} is a stored view, and both are refreshed by name", doing=doing, hint=hint)


def _target_lag(given: float | str | None, known: ViewCopyRecord | None, doing: str) -> float | None:
    if given is None:
        return None if known is None else known.target_lag
    return None if given == "none" else duration(given, doing)


def _check_same(known: ViewCopyRecord | None, wanted: ViewCopyRecord, address: Address) -> None:
    if known is None:
        return
    described = [(one.view, one.where, one.columns) for one in (known, wanted)]
    if described[0] != described[1] or not same_place(known.target, address):
        raise InputError(
            f"there is a copy {known.name!r} already, of {known.view} at {known.target}",
            doing="replicating",
            hint="Give this one a name of its own, or drop that one",
        )
