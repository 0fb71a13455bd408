"""The rows of a stored view: a copy that stands in the store itself, so that a refresh is one commit.

Rows and the record that says of which state they are are written together. A deferred view keeps that state readable
(a pin, as other copies have it), and a refresh applies the net difference since; where that is not known (in a branch,
in a restored store, after a redefinition) the rows are compared with those of the query. Rows that every commit keeps
need a refresh only where they could not be kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from strandline.changes import difference
from strandline.errors import Conflict, InputError, NotFound, StateError, StrandlineError
from strandline.pages import PageSnapshot, TemporaryVersion
from strandline.replication.senders import AUTO, DIFFERENCE, FIRST, FULL, NO_START, NOTHING, REPAIR, Refresh, ViewSender
from strandline.replication.verification import Verification
from strandline.tables import STORED, TableReader, TableTransaction, keyed_changes
from strandline.values import cast_rows
from strandline.views import (
    DEFERRED,
    STRICT,
    KnownViews,
    Lag,
    RefreshContext,
    ViewHost,
    ViewPosition,
    ViewRecord,
    difference_to,
    drop_pins,
    expire,
    has,
    id_of_rows,
    is_kept_at_commits,
    layout_of,
    pinned,
    pins_of,
    position_at,
    put,
    read_views,
    record_rows,
    regenerate,
    stored_context,
    why_not_eager,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Plan:
    """What a refresh does: a delta for the table that is there, or a content for a new one."""

    method: str
    why: str
    position: int
    delta: pa.Table | None = None
    content: pa.Table | None = None

    @property
    def rows(self) -> int:
        return len(self.content if self.content is not None else self.delta or ())


class StoredView:
    """The rows of one stored view, refreshed, compared and described as a copy is."""

    def __init__(self, host: ViewHost, name: str, at: PageSnapshot | None = None) -> None:
        self._host = host
        self._at = at
        self.name = name

    def refresh(self, method: str | None = None, *, runner: str = "auto") -> Refresh:
        """Bring the rows to the present state of the view, in one commit.

        `auto` applies the net difference since their state or, where that is not known, what they and the query differ
        in; `difference` means the first or an error; `repair` and `full` the second.
        """
        started = time.perf_counter()
        if method is not None and method not in ViewSender.methods:
            hint = f"Use {', '.join(ViewSender.methods)}"
            raise InputError(f"{method!r} is no method", doing="refreshing", hint=hint)

        def work(transaction: TableTransaction) -> _Plan:
            # What commits keep has to be of the state at which the transaction begins.
            with self._host.pages.snapshot() as now:
                with read_views(self._host, now) as known:
                    view, eager = _record(known, self.name), is_kept_at_commits(known, self.name)
                with stored_context(self._host, view, runner, now if eager else self._at) as context:
                    plan = _plan(context, method or view.policy, current=eager)
                    _write(transaction, context, plan, eager=eager)
                    return plan

        plan = self._host.autocommit(work)
        with read_views(self._host) as known:
            expire(self._host, known, but=self.name)
        logger.info("%s: %s, %d rows; %s", self.name, plan.method, plan.rows, plan.why)
        size = 0 if plan.content is None and plan.delta is None else _bytes(plan)
        return Refresh(plan.method, plan.rows, size, time.perf_counter() - started, plan.position, plan.why)

    def repair(self, *, runner: str = "auto") -> Refresh:
        """Make the rows those of the query, whatever they are."""
        return self.refresh(REPAIR, runner=runner)

    def verify(self, *, repair: bool = False, runner: str = "auto") -> Verification:
        """Compare the rows with the query at the state that they are of; with `repair`, mend what differs."""
        doing = f"verifying {self.name!r}"
        with read_views(self._host) as known:
            view, eager = _record(known, self.name), is_kept_at_commits(known, self.name)
        with stored_context(self._host, view, runner) as context:
            if not context.known.has_rows(self.name):
                raise StateError("its rows are not stored now", doing=doing, hint="Refresh it")
            wanted = _content_then(context, eager=eager)
            if wanted is None:
                why = "the state that they are of is not kept any more, or the view was defined anew"
                raise StateError(why, doing=doing, hint="Refresh it")
            rows = cast_rows(context.state.rows(self.name, wanted.column_names), wanted.schema)
            counts = difference(rows, wanted, list(context.wanted.whole.key) or None).header.counts
        verification = Verification(len(wanted), counts.inserted, counts.deleted, counts.updated, read=len(rows))
        if repair and not verification.equal:
            self.repair(runner=runner)
            return replace(verification, repaired=True)
        return verification

    def explain(self) -> str:
        """What a refresh would do, and why."""
        with read_views(self._host) as known:
            view, eager = _record(known, self.name), is_kept_at_commits(known, self.name)
        with stored_context(self._host, view, "auto", self._at) as context:
            plan = _plan(context, view.policy, current=eager)
        return f"{plan.method}, {plan.rows} rows; {plan.why}"

    def status(self) -> dict[str, Any]:
        """Of which commit the rows are, how far they are behind, and what the last refresh did."""
        with read_views(self._host, self._at) as known:
            view, record = _record(known, self.name), known.stored.get(self.name)
            behind = lag_of_rows(known, self._host, self.name)
            eager = is_kept_at_commits(known, self.name)
            taken = None if record is None or eager or not known.has_rows(self.name) else record.taken
            seen = 0.0 if record is None else record.seen
            return {
                "name": self.name,
                "view": self.name,
                "target": "",
                "maintain": "eager" if eager else "deferred",
                "stored": known.has_rows(self.name),
                "position": known.state.commit if taken is None else taken.commit,
                "lag": behind.commits,
                "behind": behind.seconds,
                "target_lag": view.target_lag,
                "rows": known.state.count(self.name) if known.has_rows(self.name) else None,
                "refreshed": datetime.fromtimestamp(seen, UTC).isoformat(timespec="seconds") if seen else None,
                **({} if record is None else record.last),
            }


def lag_of_rows(known: KnownViews, host: ViewHost, name: str) -> Lag:
    """How far what a view shows is behind its query: only stored rows that no commit keeps can be."""
    record = known.stored.get(name)
    if record is None or not known.has_rows(name) or is_kept_at_commits(known, name):
        return Lag(0, 0.0)
    return known.lag(record, host.pages.log(), host.pages.now())


def store_rows(
    transaction: TableTransaction, host: ViewHost, view: ViewRecord, before: ViewRecord | None, now: PageSnapshot
) -> None:
    """In the transaction that defines a stored view: make its rows those of its query, by what differs.

    Rows that every commit keeps follow the new text in this one, if their table can hold them.
    """
    with stored_context(host, view, at=now) as context:
        known, source, taken = context.known, context.wanted.whole, context.record.taken
        eager = view.maintain != DEFERRED and not why_not_eager(source)
        stays = before is not None and known.has_rows(view.name) and is_kept_at_commits(known, view.name) == eager
        if stays and eager and layout_of(source).is_of(TableReader(now.view, view.name, host.cache)):
            return
        if stays and taken is not None and taken.view == source.fingerprint:
            return
        plan = _plan(context, AUTO, current=False)
        if plan.method == NOTHING:  # other commits may come in between
            plan = replace(plan, method=DIFFERENCE, position=context.state.commit)
        _write(transaction, context, plan, eager=eager)


@contextmanager
def released_on_error(host: ViewHost, name: str) -> Iterator[None]:
    """A definition of stored rows that is given up inside keeps no state readable."""
    try:
        yield
    except BaseException:
        with suppress(StrandlineError), read_views(host) as known:
            record = known.stored.get(name)
            taken = None if record is None else record.taken
            drop_pins(host, id_of_rows(name) if record is None else record.id, taken)
        raise


def drop_rows(transaction: TableTransaction, host: ViewHost, known: KnownViews, name: str) -> None:
    """Forget the rows of a view, and what was kept for them."""
    record = known.stored.get(name)
    if record is None:
        return
    transaction.delete(STORED, where="name = :name", params={"name": name})
    if known.has_rows(name):
        transaction.drop_table(name)
    transaction.dropped_snapshots += pins_of(host, record.id)


def _plan(context: RefreshContext, method: str, *, current: bool) -> _Plan:
    """`current` says that every commit keeps the rows, as far as they are there and mean what the view means."""
    name, source, at = context.record.name, context.wanted.whole, context.state.commit
    if not context.state.is_table(name):
        return _Plan(FIRST, "its rows were not stored", at, content=context.rows())
    taken = context.record.taken
    position = at if current or taken is None else taken.commit
    if not layout_of(source).is_of(TableReader(context.now.view, name, context.host.cache)):
        if method == STRICT:
            raise _refused(name, "the view's columns or its key have changed")
        return _Plan(FULL, "the view's columns or its key have changed", at, content=context.rows())
    if method in (FULL, REPAIR):
        return _by_content(context, method, "asked for")
    if current and taken is not None and taken.view == source.fingerprint:
        return _Plan(NOTHING, "its rows are kept at every commit", at)
    if source.regenerated:
        if method == STRICT:
            raise _refused(name, f"computed anew: {source.regenerated}")
        return _by_content(context, DIFFERENCE, f"computed anew: {source.regenerated}")
    if taken is not None and not current and _misses_nothing(context, taken):
        return _Plan(NOTHING, "nothing changed", position)
    net = NO_START if taken is None else context.difference(taken)
    if isinstance(net, str):
        if method in (STRICT, DIFFERENCE):
            raise _refused(name, f"no difference is known: {net}")
        return _by_content(context, REPAIR, net)
    return _Plan(DIFFERENCE, "net since its position", at, delta=net.rows)


def _misses_nothing(context: RefreshContext, taken: ViewPosition) -> bool:
    if context.is_behind(taken):
        return True
    source = context.wanted.whole
    same = taken.view == source.fingerprint and not source.reads_clock
    behind = context.known.lag(context.record, (), 0.0) if context.record.name in context.known.records else None
    return same and behind is not None and behind.commits == 0


def _by_content(context: RefreshContext, method: str, why: str) -> _Plan:
    delta = difference_to(context.state, context.record.name, context.rows())
    return _Plan(method, why, context.state.commit, delta=delta)


def _write(transaction: TableTransaction, context: RefreshContext, plan: _Plan, *, eager: bool) -> None:
    if plan.method == NOTHING:
        return
    host, record, source = context.host, context.record, context.wanted.whole
    _refuse_if_changed(transaction, context, eager=eager)
    layout = layout_of(source)
    if plan.content is not None:
        if transaction.has_table(record.name):
            transaction.drop_table(record.name)
        transaction.create_own_table(record.name, layout.whole(plan.content), key=layout.table_key)
    elif plan.delta is not None and len(plan.delta):
        reader = TableReader(context.now.view, record.name, host.cache)
        rows, gone = layout.changed(reader, plan.delta, f"refreshing {record.name!r}")
        changes = keyed_changes(layout.schema, layout.table_key, gone, rows)
        transaction.apply(record.name, changes, lenient=True)
    pinless = eager or isinstance(host.pages, TemporaryVersion)
    taken = position_at(host, source, context.state) if pinless else context.checkpoint()
    last = {"method": plan.method, "messages": plan.rows, "why": plan.why}
    written = replace(record, taken=taken, seen=host.pages.now(), version=host.name, last=last)
    put(transaction, written, exists=has(context.now.view, STORED))
    transaction.dropped_snapshots += pins_of(host, record.id, but=None if pinless else taken)


def _refuse_if_changed(transaction: TableTransaction, context: RefreshContext, *, eager: bool) -> None:
    """What was found holds as long as the record is the same; what commits keep must be of the transaction's state."""
    known = context.known.stored.get(context.record.name)
    expected = [] if known is None else record_rows(known).to_pylist()
    there = []
    if transaction.has_table(STORED):
        there = transaction.to_arrow(STORED, where="name = :name", params={"name": context.record.name}).to_pylist()
    if there != expected or (eager and transaction.base.commit != context.now.commit):
        raise Conflict("the view was refreshed meanwhile", doing=f"refreshing {context.record.name!r}")


def _content_then(context: RefreshContext, *, eager: bool) -> pa.Table | None:
    """The rows of the query at the state that the stored ones are of; None if it is not known any more."""
    record, source = context.record, context.wanted.whole
    if record.taken is None or record.taken.view != source.fingerprint:
        return None
    if eager or context.known.lag(record, (), 0.0).commits == 0:
        return context.rows(record.taken.instant)
    with pinned(context.host, record.id, record.taken) as standing:
        return None if standing is None else regenerate(source, standing, context.running)


def _record(known: KnownViews, name: str) -> ViewRecord:
    record = known.records.get(name)
    if record is None or not record.stored:
        stored = ", ".join(one.name for one in known.records.values() if one.stored) or "none"
        raise NotFound(f"there is no stored view {name!r}", doing="opening a view", hint=f"The stored views: {stored}")
    return record


def _refused(name: str, why: str) -> StateError:
    hint = "Refresh it once by the method repair, or give the view another refresh policy"
    return StateError(why, doing=f"refreshing {name!r}", hint=hint)


def _bytes(plan: _Plan) -> int:
    rows = plan.content if plan.content is not None else plan.delta
    return 0 if rows is None else int(rows.nbytes)
