"""Several copies refreshed together: which are due, in which order, and at which state.

All copies are brought to one state of the store, which is held meanwhile: readers of two copies see the same commit in
both. Only where a copy is a table of this very store, and views stand on that table, the copies of these follow, at the
state that it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from strandline.errors import Cancelled, StrandlineError
from strandline.pages import LogEntry
from strandline.relations import parse_address
from strandline.replication import Copy, Refresh, StoredView, ViewSender, lag_of_rows
from strandline.storage import open_storage
from strandline.views import (
    KnownViews,
    Lag,
    StoredRecord,
    StoreState,
    ViewCopyRecord,
    ViewHost,
    is_kept_at_commits,
    read_views,
)


def rounds_of_copies(host: ViewHost, names: Sequence[str]) -> list[list[str]]:
    """Copies by name (all of them without any), in rounds: each after those that fill a table it stands on."""
    with read_views(host) as known:
        everything = {**known.copies, **_stored(known)}
        records = {name: everything[name] if name in everything else known.copy(name) for name in names or everything}
        filled = _filled_tables(host, records)
        rounds: list[list[str]] = []
        left = dict(records)
        while left:
            waiting = {table for table, copy in filled.items() if copy in left}
            now = [name for name, one in left.items() if not waiting & _read(known, one)] or list(left)
            rounds.append(sorted(now, key=lambda name: (_age(known, records[name]), name)))
            left = {name: one for name, one in left.items() if name not in now}
        return rounds


def copies_together(host: ViewHost, names: Sequence[str] = ()) -> Iterator[Copy | StoredView]:
    """Copies and stored views by name, or all, one after the other; those of a round are refreshed, explained and
    verified at one state, which is held until the last of them is done.
    """
    for together in rounds_of_copies(host, names):
        host.pages.refresh_if_idle()
        with host.pages.snapshot() as now:
            sender = ViewSender(host, now)
            stored = _stored(KnownViews(StoreState(now.view, host.cache), host))
            yield from (StoredView(host, name, now) if name in stored else Copy(sender, name) for name in together)


def due_copies(host: ViewHost, ahead: float = 0.0) -> list[str]:
    """The copies that are behind by more than their target lag, or will be in so many seconds."""
    with read_views(host) as known:
        log, now = host.pages.log(), host.pages.now()
        late = [one for one in known.copies.values() if one.target_lag is not None]
        due = [one.name for one in late if _lag(known, one, log, now).exceeds(one.target_lag, ahead)]
        return due + [name for name in _stored(known) if _is_due(host, known, name, ahead)]


def refresh_copies(host: ViewHost, names: Sequence[str], method: str | None, runner: str) -> dict[str, Refresh]:
    """Refreshes copies together. One that fails keeps no other from it; the first error is raised at the end."""
    done: dict[str, Refresh] = {}
    failed: dict[str, StrandlineError] = {}
    for copy in copies_together(host, names):
        try:
            done[copy.name] = copy.refresh(method, runner=runner)
        except Cancelled:
            raise
        except StrandlineError as error:
            failed[copy.name] = error
    if failed:
        raise first_of(failed)
    return done


def first_of(failed: Mapping[str, StrandlineError]) -> StrandlineError:
    """The first error, which names the other copies that failed."""
    (name, error), *others = failed.items()
    rest = [f"{other} failed, too: {why.why}" for other, why in others]
    described = {**error.to_json(), "hint": ". ".join(filter(None, [error.hint, *rest]))}
    return StrandlineError.from_json({**described, "doing": error.doing or f"refreshing {name!r}"})


def _lag(known: KnownViews, record: ViewCopyRecord, log: Sequence[LogEntry], now: float) -> Lag:
    try:
        return known.lag(record, log, now)
    except StrandlineError:
        return Lag(None, None)  # its view can't be read: the refresh will say why


def _stored(known: KnownViews) -> dict[str, StoredRecord]:
    """The stored views, whether or not their rows are there now."""
    fresh = {name: StoredRecord(name, name, "", "") for name, one in known.records.items() if one.stored}
    return {name: known.stored.get(name, one) for name, one in fresh.items()}


def _is_due(host: ViewHost, known: KnownViews, name: str, ahead: float) -> bool:
    """Whether a stored view is behind its target, or is to be kept at every commit and has no rows."""
    try:
        missing = is_kept_at_commits(known, name) and not known.has_rows(name)
        return missing or lag_of_rows(known, host, name).exceeds(known.records[name].target_lag, ahead)
    except StrandlineError:
        return False


def _age(known: KnownViews, record: ViewCopyRecord) -> int:
    """Views stand on older ones; tables are the oldest."""
    view = known.records.get(record.view)
    return 0 if view is None else view.number


def _read(known: KnownViews, record: ViewCopyRecord) -> set[str]:
    with suppress(StrandlineError):
        return set(known.followed(record).relations)
    return set()


def _filled_tables(host: ViewHost, records: Mapping[str, ViewCopyRecord]) -> dict[str, str]:
    """The tables of this store that copies fill, with the copy's name."""
    tables = {}
    for name, record in records.items():
        if isinstance(record, StoredRecord):
            tables[name] = name
        if record.target.startswith("strandline:"):
            with suppress(StrandlineError):
                address = parse_address(record.target)
                if open_storage(address.location).url == host.pages.store.context.storage.url:
                    tables[address.table] = name
    return tables
