"""Snapshots of one version: temporary, permanent, partial (sections 3, 3.3 and 3.5).

It says in one place what `at=` may mean: now, a snapshot's name, a commit number, a time; or a text that says one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.errors import InputError, InUse, NotFound, SnapshotExpired
from strandline.pages.format import ChunkedList, Freed, ObjectWriter, Pointer, SnapshotRecord, Visits, snapshot_to_json
from strandline.pages.ids import CommitNumber, TableId, is_own_name
from strandline.pages.process_registry import ProcessRegistry, read_registry, seen_by
from strandline.pages.read_view import ReadView, State
from strandline.pages.reclamation import freed_by_drop
from strandline.pages.swap import SwapAttempt, SwapPlan, change_pointer
from strandline.storage import Closeable, unix_time

if TYPE_CHECKING:
    from strandline.pages.version import Version


_ELSEWHERE = "Give a state of this store; sl.diff compares tables of two stores"


class PageSnapshot(Closeable):
    """A state that stays readable until closed. A context manager."""

    __slots__ = ("_closed", "_held", "_version", "name", "view")

    def __init__(self, version: Version, view: ReadView, name: str | None = None, *, held: bool = False) -> None:
        self._version = version
        self._closed = False
        self._held = held
        self.view = view
        self.name = name
        if name is not None:
            version.pins.count_name(name, 1)

    @property
    def commit(self) -> CommitNumber:
        """The last commit that the snapshot includes."""
        return self.view.state.commit

    @property
    def closed(self) -> bool:
        """Whether its pages may be gone."""
        return self._closed

    def belongs_to(self, version: Version) -> bool:
        """Whether this is open, and a state of that version."""
        return not self._closed and self._version is version

    def again_in(self, version: Version) -> PageSnapshot:
        """The same for a version of this store, through this handle of it or another; of another store it is refused:
        two stores may use one name for two pages, and one number for two commits.
        """
        doing = "reading a state"
        if self._closed or self._version.context.closed:
            raise InputError("the snapshot, or its store, is closed", doing=doing, hint="Take another, or name one")
        if not version.store.is_same(self._version.store):
            raise InputError(
                f"the snapshot is of another store, {self._version.context.storage.url}", doing=doing, hint=_ELSEWHERE
            )
        return self.again()

    def again(self) -> PageSnapshot:
        """Another hold of the same state, closed by itself."""
        self._version.pins.pin(self.commit)
        if self._held:
            self._version.hold(self.commit, 1)
        return PageSnapshot(self._version, self.view, self.name, held=self._held)

    def close(self) -> None:
        """Release the state. Closing twice is no error."""
        if self._closed:
            return
        self._closed = True
        self.forget_name()
        self._version.pins.unpin(self.commit)
        if self._held:
            self._version.hold(self.commit, -1)

    def forget_name(self) -> None:
        """From now on this is a reader of the state, and no longer of the snapshot's name."""
        if self.name is not None:
            self._version.pins.count_name(self.name, -1)
            self.name = None


def take(version: Version) -> PageSnapshot:
    """A temporary snapshot of the current state: in memory, above this process's published floor."""
    return PageSnapshot(version, version.pin_current())


def open_named(version: Version, name: str) -> PageSnapshot:
    """Read a permanent snapshot."""
    return open_record(version, _record(version, version.refresh_pointer(), name))


def open_record(version: Version, record: SnapshotRecord) -> PageSnapshot:
    """Pin a permanent state. It is held in PROCESSES when the published floor does not cover it."""
    version.pins.pin(record.commit)
    held = not version.context.membership.covers(version.object, record.commit)
    state = State(version.object, record.commit, record.root, record.domains, record.commit_id)
    snapshot = PageSnapshot(version, ReadView(state, version.context.objects), record.name or None, held=held)
    try:
        if held:
            version.hold(record.commit, 1)
        # Hold first, then look again (invariant 7): it may have been dropped in between.
        if record not in version.refresh_pointer().chain(version.context.objects.chunk):
            raise SnapshotExpired(f"the state of commit {record.commit} was dropped just now", doing="opening it")
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def _open_same(version: Version, record: SnapshotRecord) -> PageSnapshot:
    """Read a permanent snapshot by a record: its root carries the checksums of all that the state holds."""
    present = _record(version, version.refresh_pointer(), record.name)
    if present != record:
        raise InputError(
            f"the snapshot {record.name} is another one here than the one given",
            doing="reading a state",
            hint=f"That is of another store or branch, or was dropped since. {_ELSEWHERE}",
        )
    return open_record(version, present)


def name_snapshot(
    version: Version, name: str, *, of: PageSnapshot | None = None, domains: Collection[TableId] | None = None
) -> SnapshotRecord:
    """Make a state permanent by giving it a name: the current one, or a temporary snapshot (section 3.5)."""
    if of is not None and not of.belongs_to(version):
        raise InputError("a snapshot needs an open state of its version", doing=f"naming the snapshot {name!r}")
    version.refresh()

    def name_state(attempt: SwapAttempt) -> SnapshotRecord:
        pointer, output = attempt.base.pointer, attempt.output
        check_new_name(pointer, name, output)
        state = of.view.state if of is not None else attempt.base.view.state
        chosen = state.domains if domains is None else frozenset(domains)
        _refuse_foreign_domains(state, chosen)
        made = SnapshotRecord(state.commit, name, state.root, version.now(), chosen, state.commit_id)
        snapshots = pointer.snapshots.extended([snapshot_to_json(made)], output.chunk)
        freed = unfreed(pointer, made, output)
        attempt.write(SwapPlan(replace(pointer, snapshots=snapshots, freed=freed), "snapshot", name))
        return made

    return change_pointer(version, name_state)


def check_new_name(pointer: Pointer, name: str, output: ObjectWriter) -> None:
    """Refuse what is no name for a new snapshot."""
    doing, hint = f"naming the snapshot {name!r}", "Drop it, or choose another name"
    if not name:
        raise InputError("a snapshot needs a name", doing=doing)
    if any(one.name == name for one in pointer.all_snapshots(output.load_chunk)):
        raise InputError(f"there is a snapshot {name} already", doing=doing, hint=hint)


def drop_snapshot(version: Version, name: str, visits: Visits | None = None) -> int:
    """Drop a permanent snapshot; how many objects that freed."""
    registry = version.store.living()
    version.refresh()

    def drop(attempt: SwapAttempt) -> int:
        record = _droppable(version, registry, attempt.base.pointer, name)
        pointer, freed = _without(attempt.base.pointer, record, attempt.output, visits)
        attempt.write(SwapPlan(pointer, "drop", name, freed=freed))
        return len(freed)

    return change_pointer(version, drop)


def without_snapshots(
    version: Version, pointer: Pointer, names: Collection[str], output: ObjectWriter
) -> tuple[Pointer, list[Freed]]:
    """A pointer without permanent snapshots, and what they held alone; one that is being read or is gone is left."""
    freed: list[Freed] = []
    if names:
        registry = read_registry(version.context.storage)
        for name in names:
            with suppress(InUse, NotFound):
                pointer, own = _without(pointer, _droppable(version, registry, pointer, name), output)
                freed += own
    return pointer, freed


def _droppable(version: Version, registry: ProcessRegistry, pointer: Pointer, name: str) -> SnapshotRecord:
    record = _record(version, pointer, name)
    _refuse_children(pointer, record)
    _refuse_readers(version, registry, record)
    return record


def _without(
    pointer: Pointer, record: SnapshotRecord, output: ObjectWriter, visits: Visits | None = None
) -> tuple[Pointer, list[Freed]]:
    """A pointer without a permanent snapshot, and what that held alone."""
    snapshots, _ = pointer.snapshots.without(lambda row: row[1] == record.name, output.load_chunk, output.chunk)
    pointer = replace(pointer, snapshots=snapshots)
    return pointer, freed_without(pointer, record, output, visits)


def demote(version: Version, name: str) -> PageSnapshot:
    """Make a permanent snapshot temporary again: it lives until closed (section 3.5)."""
    opened = open_named(version, name)
    opened.forget_name()
    try:
        drop_snapshot(version, name)
    except BaseException:
        opened.close()
        raise
    return opened


def freed_without(
    pointer: Pointer, dropped: SnapshotRecord, output: ObjectWriter, visits: Visits | None = None
) -> list[Freed]:
    """What a permanent state held alone, `pointer` being already without it."""
    load = output.load if visits is None else visits.counting(output.load)
    return freed_by_drop(load, dropped, pointer.chain(output.load_chunk), pointer.state)


def unfreed(pointer: Pointer, made: SnapshotRecord, output: ObjectWriter) -> ChunkedList:
    """The list of freed objects when a state of the past becomes permanent; `pointer` is still without it.

    What it names alone, of all permanent states, belongs to it now. Commit numbers can't tell: dropping a snapshot
    dates what it frees by the next permanent state, so an object may seem to have lasted until then that `made`, in
    between, does not name. Such a one was replaced by `made` at the latest.
    """
    if made.commit == pointer.commit:
        return pointer.freed
    between = [one for one in pointer.all_freed(output.load_chunk) if seen_by(one, [made])]
    if not between:
        return pointer.freed
    own = {one.name for one in freed_without(pointer, made, output)}
    shorter, _ = pointer.freed.without(lambda row: seen_by(Freed(*row), [made]), output.load_chunk, output.chunk)
    kept = [replace(one, replaced=made.commit).to_json() for one in between if one.name not in own]
    return shorter.extended(kept, output.chunk)


def find_state(version: Version, at: str | int | float) -> PageSnapshot:
    """The state of a snapshot's name, a commit number (int), or a time (float, seconds since 1970)."""
    if isinstance(at, str):
        return open_named(version, at)
    pointer = version.refresh_pointer()
    commit = at if isinstance(at, int) else _commit_at(version, pointer, at)
    current = take(version)
    if current.commit == commit:
        return current
    current.close()
    for record in pointer.chain(version.context.objects.chunk):
        if record.commit == commit and record.domains is None:
            return open_record(version, record)
    raise SnapshotExpired(
        f"no snapshot holds the state of commit {commit}",
        doing=f"looking for the state at {at}",
        hint="Only the current state and snapshots can be read; name a snapshot to keep a state",
    )


def _commit_at(version: Version, pointer: Pointer, when: float) -> int:
    entries = [one for one in pointer.all_log(version.context.objects.chunk) if one.when <= when]
    if not entries:
        raise NotFound("the log does not reach back so far", doing="looking for the state at a time")
    return entries[-1].commit


def _record(version: Version, pointer: Pointer, name: str) -> SnapshotRecord:
    records = pointer.all_snapshots(version.context.objects.chunk)
    for record in records:
        if record.name == name:
            return record
    raise NotFound(f"there is no snapshot {name}", doing=f"looking for the snapshot {name}", hint=_known(records))


def _known(records: Sequence[SnapshotRecord]) -> str:
    """Which snapshots there are, without the store's own."""
    names = [record.name for record in records if not is_own_name(record.name)]
    return f"The snapshots are {', '.join(names[-SHOWN:])}" if names else "There are no snapshots yet"


def _refuse_children(pointer: Pointer, record: SnapshotRecord) -> None:
    children = [fork.name for fork in pointer.forks if fork.commit == record.commit]
    if children:
        raise InUse(
            f"the snapshot {record.name} is a forking point of {', '.join(children)}",
            doing=f"dropping {record.name}",
            hint="Drop those versions first",
        )


def _refuse_readers(version: Version, registry: ProcessRegistry, record: SnapshotRecord) -> None:
    others = registry.without(version.context.membership.number).processes.values()
    readers = [str(other) for other in others if record.commit in other.holds.get(version.object, ())]
    if version.pins.name_count(record.name):
        readers.append("this process")
    if readers:
        raise InUse(
            f"the snapshot {record.name} is being read by {', '.join(readers)}",
            doing=f"dropping {record.name}",
            hint="Close it first",
        )


def _refuse_foreign_domains(state: State, chosen: frozenset[TableId] | None) -> None:
    if state.domains is not None and (chosen is None or not chosen <= state.domains):
        raise InputError("a snapshot of a partial snapshot can't hold more than that one")


SHOWN = 20


def state_at(version: Version, at: object) -> PageSnapshot:
    """The state that `at` means, held until closed: always one of this store. None is now; a text is a snapshot's name
    here; a datetime without a zone is local time.
    """
    if at is None:
        version.refresh_if_idle()
        return version.snapshot()
    if isinstance(at, PageSnapshot):
        return at.again_in(version)
    if isinstance(at, SnapshotRecord):
        return _open_same(version, at)
    if isinstance(at, dt.datetime):
        return version.at(unix_time(at))
    if isinstance(at, (str, int)) and not isinstance(at, bool):
        return version.at(at)
    raise InputError(
        f"{at!r} is no state", doing="reading a state", hint="Give a name, a snapshot, a commit number, a datetime"
    )


def parse_at(version: Version, text: str | None) -> str | int | dt.datetime | None:
    """What a text from a command line or an option means: a snapshot's name, else a commit number, else a time.

    Without a text: now.
    """
    if text is None:
        return None
    known = version.snapshots()
    if text in [record.name for record in known]:
        return text
    if text.isdecimal():
        return int(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise NotFound(
            f"there is no snapshot {text}",
            doing=f"looking for the state {text}",
            hint=f"{_known(known)}; a commit number or a time like 2030-01-31T12:00 will do too",
        ) from None
