"""Dumping a store while writers work on it: hold it still, plan, write (Ylönen et al., section 4.2)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from strandline.dumps.catalog import BEGUN, Catalog, DumpEntry, Owner, read_catalog
from strandline.dumps.chain import Chain, open_chain
from strandline.dumps.copying import Means, fill_packs
from strandline.dumps.facts import Scope, TableFacts
from strandline.dumps.pace import beside_writers, commits_arrive
from strandline.dumps.plan import holds, plan
from strandline.dumps.source import Frozen, check_scope
from strandline.dumps.sweep import finish_dropping
from strandline.dumps.target import Target
from strandline.dumps.writing import Order, Subject, write_dump
from strandline.errors import Conflict, Damaged, InputError, SnapshotExpired
from strandline.pages import CATALOG, PageStore
from strandline.pages.ids import NEVER
from strandline.pages.roll import read_roll
from strandline.storage import LocalStorage

HIGHEST_LEVEL = 9
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was made. `bytes` counts pages as stored, `freed` pages that were deleted since the parent.

    `notice` says what was done otherwise than asked, `resumed` how many pages an interrupted dump had copied already.
    """

    id: str
    level: int
    parent: str | None
    taken: float
    pages: int
    bytes: int
    freed: int
    seconds: float
    notice: str = ""
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    level: int = 0
    scope: Scope = field(default_factory=Scope)
    means: Means = field(default_factory=Means)


def make_dump(store: PageStore, target: Target, request: Request) -> Dump:
    """A dump of a store. Nothing is locked; snapshots dropped and dumps pruned meanwhile make it look again."""
    check_scope(request.scope)
    if isinstance(request.level, bool) or not 0 <= request.level <= HIGHEST_LEVEL:
        raise InputError(f"there is no level {request.level}", doing="Dumping", hint=f"Levels: 0 to {HIGHEST_LEVEL}")
    _refuse_inside(store, target)
    for attempt in range(ATTEMPTS):
        try:
            return _try_dump(store, target, request)
        except (SnapshotExpired, Conflict):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _try_dump(store: PageStore, target: Target, request: Request) -> Dump:
    started = time.monotonic()
    catalog = read_catalog(target.storage)
    if catalog is not None:
        target.check_key(catalog)
        finish_dropping(target, catalog)
    with Frozen(store, request.scope) as frozen:
        if not request.means.hurry:
            swaps = [swap[2] for version in frozen.versions for swap in version.log]
            frozen.pace = beside_writers(frozen.storage, frozen.pointers(), busy=commits_arrive(swaps, frozen.taken))
        with frozen.pace.turn(since=started):
            parent, notice = _find_parent(target, catalog, frozen, request)
            frozen.open_states(lambda key, held: parent is not None and parent.knows(key, held))
        planned = plan(frozen, frozen.versions, frozen.states, parent)
        subject = Subject(
            frozen.store, frozen.taken, request.scope, frozen.next_block, frozen.versions, frozen.states,
            tuple(_tables(frozen, parent)),
        )  # fmt: skip
        order = Order(
            subject, planned, request.level if parent is not None else 0, parent,
            _interrupted(catalog, frozen, store), Owner.here(store.process), frozen.pace,
        )  # fmt: skip
        written = write_dump(
            target,
            order,
            lambda folder, packs: fill_packs(frozen.storage, folder, packs, request.means, frozen.pace),
        )
    entry = written.entry
    return Dump(
        entry.id, entry.level, entry.parent, entry.taken, entry.pages, entry.bytes, planned.freed,
        time.monotonic() - started, notice, written.resumed,
    )  # fmt: skip


def _find_parent(target: Target, catalog: Catalog | None, frozen: Frozen, request: Request) -> tuple[Chain | None, str]:
    """The last whole dump of a lower level, of this store, this scope and this past; and what there is to say."""
    level, notices = request.level, []
    if level == 0:
        return None, ""
    for entry in reversed(catalog.complete() if catalog is not None else []):
        assert catalog is not None
        if entry.store != frozen.store or entry.scope != request.scope or entry.level >= level:
            continue
        try:
            chain = open_chain(target, catalog, entry)
        except Damaged as error:
            notices.append(f"Dump {entry.id} is damaged and was not built upon: {error.why}.")
            continue
        if all(frozen.remembers(version) for version in chain.last.versions):
            if entry.level < level - 1:
                notices.append(f"There is no dump of level {level - 1}: this one stands on level {entry.level}.")
            return chain, " ".join(notices)
        notices.append(f"Dump {entry.id} is of another past of this store and was not built upon.")
    notices.append(f"There is no dump of a lower level to build upon: this is level 0 instead of {level}.")
    return None, " ".join(notices)


def _interrupted(catalog: Catalog | None, frozen: Frozen, store: PageStore) -> DumpEntry | None:
    """An attempt at a dump of this store whose maker is dead."""
    for entry in catalog.dumps if catalog is not None else ():
        if entry.state == BEGUN and not entry.synthetic and entry.store == frozen.store and is_dead(entry.owner, store):
            return entry
    return None


def is_dead(owner: Owner | None, store: PageStore) -> bool:
    """Whether a dump's maker is gone: off the store's roll, or no process of this machine any more."""
    if owner is None or owner.process not in read_roll(store.context.storage).roll.processes:
        return True
    here = Owner.here(owner.process)
    return owner.host == here.host and owner.pid != here.pid and not process_runs(owner.pid)


def process_runs(pid: int) -> bool:
    """Whether this machine has such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _tables(frozen: Frozen, parent: Chain | None) -> Iterator[TableFacts]:
    """The tables of each version's present state. A record that is as old as the parent's is the parent's."""
    older = parent.last if parent is not None else None
    known = {(one.version, one.name): one.record for one in (older.tables if older is not None else ())}
    for version in frozen.versions:
        before = older.version(version.name) if older is not None else None
        since = before.commit if before is not None and before.object == version.object else NEVER
        held = frozen.states[version.current]
        for header in frozen.headers_since(version.current, NEVER).values():
            if header.record is not None and header.domain != CATALOG and holds(held, header.domain):
                rows = header.root.sums.rows if header.root is not None else 0
                pages = header.root.sums.pages if header.root is not None else 0
                size = header.root.sums.bytes if header.root is not None else 0
                old = known.get((version.name, header.name)) if header.record.born <= since else None
                record = frozen.record(header) if old is None else old
                yield TableFacts(version.name, header.name, rows, pages, size, record)


def _refuse_inside(store: PageStore, target: Target) -> None:
    source = store.context.storage
    if isinstance(source, LocalStorage) and isinstance(target.storage, LocalStorage):
        inside = Path(target.storage.url).resolve().is_relative_to(Path(source.url).resolve())
        if inside:
            raise InputError(
                "the dumps would stand inside the store",
                doing=f"Dumping to {target.storage.url}",
                hint="Choose another folder, on another disk if there is one",
            )
