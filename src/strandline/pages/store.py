"""An open store: its versions, and this process's place among others."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType

from strandline.errors import AlreadyExists, Fenced, NotFound, StorageError, StrandlineError, SwapLost
from strandline.pages.burial import bury
from strandline.pages.commit import Committer
from strandline.pages.context import Context, Installer, Validator
from strandline.pages.forks import clear_dropped, drop_version, fork, rename_version
from strandline.pages.freeing import DeathWatch
from strandline.pages.ids import CommitNumber, DomainId, PhysicalPage, ProcessId, VersionObject
from strandline.pages.master import Master, encode_master, read_master, version_row
from strandline.pages.membership import Membership
from strandline.pages.objects import Objects, version_name
from strandline.pages.pointer import LogEntry, Pointer, SnapshotRecord, decode_pointer, encode_pointer
from strandline.pages.roll import PROCESSES, Commits, Roll, encode_roll
from strandline.pages.roster import Roster
from strandline.pages.snapshots import Snapshot, demote, drop_snapshot, find_state, name_snapshot, take
from strandline.pages.surroundings import Surroundings
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version
from strandline.pages.view import View
from strandline.pages.walk import Visits
from strandline.storage import Storage

MAIN = "main"
BEATS = 6
"""How often a process beats while others are patient with it."""


class PageVersion:
    """One version of the store, as the tables hold it. Safe for many threads."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._committer = Committer(version)

    @property
    def name(self) -> str:
        return self._version.name

    @property
    def object(self) -> VersionObject:
        """The storage name of its pointer."""
        return self._version.object

    def view(self) -> View:
        """The newest state that this process knows, not protected: for reads that may be repeated."""
        return self._version.current.view

    def refresh(self) -> View:
        """The newest state that there is: takes in commits of other processes."""
        return self._version.refresh()

    def look(self) -> View:
        """The newest state, other processes' commits included, without waiting for a commit of this process that is
        under way: that one takes them in.
        """
        return self._version.look()

    def begin(self, message: str = "") -> Transaction:
        """A transaction on this version."""
        return self._committer.begin(message)

    def snapshot(self) -> Snapshot:
        """A temporary snapshot of the current state; microseconds, at any size."""
        return take(self._version)

    def name_snapshot(
        self, name: str, *, of: Snapshot | None = None, domains: Collection[DomainId] | None = None
    ) -> SnapshotRecord:
        """A permanent snapshot of the current state, or of a temporary one; of all domains, or of some."""
        return name_snapshot(self._version, name, of=of, domains=domains)

    def demote(self, name: str) -> Snapshot:
        """Make a permanent snapshot temporary."""
        return demote(self._version, name)

    def drop_snapshot(self, name: str, visits: Visits | None = None) -> int:
        """Drop a permanent snapshot; how many objects that freed."""
        return drop_snapshot(self._version, name, visits)

    def snapshots(self) -> list[SnapshotRecord]:
        """The permanent snapshots, oldest first."""
        return self._version.refresh_pointer().all_snapshots(self._version.context.objects.chunk)

    def at(self, at: str | int | float) -> Snapshot:
        """The state of a snapshot's name, a commit number (int), or a time (float, seconds since 1970)."""
        return find_state(self._version, at)

    def log(self) -> list[LogEntry]:
        """The swaps of this version's pointer that are remembered, oldest first; `kind` tells commits
        apart.
        """
        return self._version.refresh_pointer().all_log(self._version.context.objects.chunk)

    def pointer(self) -> Pointer:
        """The pointer as this process knows it."""
        return self._version.current.pointer

    @property
    def inner(self) -> Version:
        """For the other files of this package."""
        return self._version


class PageStore:
    """See the module. A context manager; closing it takes this process off the roll."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._mutex = threading.RLock()
        self._versions: dict[VersionObject, PageVersion] = {}
        self._burying = threading.Lock()
        self._closed = threading.Event()
        self._heart: threading.Thread | None = None
        self._last_beat = context.surroundings.monotonic()
        context.membership.positions = self._positions

    @property
    def process(self) -> ProcessId:
        """This process's number."""
        return self.context.membership.number

    @property
    def identity(self) -> str:
        """The store's own id, chosen when it was created or restored."""
        return read_master(self.context.objects).master.store

    def versions(self) -> dict[str, VersionObject]:
        """The versions by name."""
        return read_master(self.context.objects).master.all_versions(self.context.objects.chunk)

    def version(self, name: str = MAIN) -> PageVersion:
        """Open a version."""
        found = self.versions().get(name)
        if found is None:
            raise NotFound(f"there is no version {name}", doing=f"Opening version {name}")
        return self._open(found)

    def fork(self, name: str, *, parent: str = MAIN, of: Snapshot | None = None) -> PageVersion:
        """A new version on the current state of another, or on a snapshot of it."""
        if name in self.versions():
            raise AlreadyExists(f"there is a version {name} already", doing=f"Creating version {name}")
        return self._open(fork(self.version(parent).inner, name, of))

    def rename_version(self, old: str, new: str) -> None:
        """Give a version another name; not the first one."""
        rename_version(self.version(old).inner, new, self._open_inner)

    def drop_version(self, name: str) -> None:
        """Drop a version that has no children and no snapshots."""
        version = self.version(name)
        try:
            drop_version(version.inner, self._open_inner)
        finally:
            if version.pointer().dropped:
                with self._mutex:
                    self._versions.pop(version.object, None)

    def beat(self) -> Roll:
        """Show that this process lives, publish how far its readers are, and bury the dead."""
        self._last_beat = self.context.surroundings.monotonic()
        self._follow()
        roll = self.context.membership.beat(self._floors)
        self.recover()
        self._bury_dead(roll)
        return roll

    def start_heart(self, every: float | None = None) -> None:
        """Beat from a thread of its own until closed. A process that may idle or only read needs it to live.

        Commits beat by themselves.
        """
        pause = self.context.surroundings.patience / BEATS if every is None else every

        def run() -> None:
            while not self._closed.wait(pause):
                try:
                    self.beat()
                except Fenced:
                    return  # whoever uses the store next is told
                except StorageError:
                    continue  # the next beat may come through

        self._heart = threading.Thread(target=run, name="strandline-heart", daemon=True)
        self._heart.start()

    def close(self) -> None:
        """Leave the store. Names whose fate is unknown keep this process on the roll, to be buried by
        others.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        if self._heart is not None:
            self._heart.join()
        self.context.closed = True
        if not self.context.membership.unsettled:
            self.context.membership.leave()

    def __enter__(self) -> PageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def recover(self) -> None:
        """Go on clearing away versions that were being dropped."""
        for name in read_master(self.context.objects).master.dropping:
            clear_dropped(self.context, name, self._open_inner)

    def _open(self, name: VersionObject) -> PageVersion:
        with self._mutex:
            if name not in self._versions:
                if decode_pointer(name, self.context.storage.get(name)).dropped:
                    clear_dropped(self.context, name, self._open_inner)
                    raise NotFound("the version was dropped", doing="Opening a version")
                version = Version(self.context, name)
                version.on_death(self._after_swap)
                self._versions[name] = PageVersion(version)
            return self._versions[name]

    def _open_inner(self, name: VersionObject) -> Version:
        return self._open(name).inner

    def _follow(self) -> None:
        """Take in what others committed, else an idle process would keep their old pages for ever."""
        with self._mutex:
            versions = list(self._versions.items())
        for name, version in versions:
            try:
                version.refresh()
            except NotFound:
                with self._mutex:
                    self._versions.pop(name, None)
                self.context.membership.forget(name)

    # These two are asked for inside the membership's mutex, so they must not take ours: opening a version
    # takes them in the other order. Copying a dictionary is one step.

    def _positions(self) -> Commits:
        return {name: one.pointer().commit for name, one in dict(self._versions).items()}

    def _floors(self) -> Commits:
        return {name: one.inner.floor() for name, one in dict(self._versions).items()}

    def _after_swap(self, roll: Roll) -> None:
        """Every swap is a sign of life, published now and then. The swap stands, so no error may pass from
        here:
        what could not be done is tried again after the next, and who is fenced is told then."""
        surroundings = self.context.surroundings
        with suppress(StrandlineError):
            if surroundings.monotonic() - self._last_beat > surroundings.patience / BEATS:
                self.beat()
            else:
                self._bury_dead(roll)

    def _bury_dead(self, roll: Roll) -> None:
        dead = self.context.watch.dead(roll, self.process, self.context.surroundings.monotonic())
        if dead and self._burying.acquire(blocking=False):
            try:
                for number in dead:
                    bury(self.context, number, self._open_inner)
            finally:
                self._burying.release()


def create_store(
    storage: Storage, installer: Installer, validator: Validator, surroundings: Surroundings | None = None
) -> PageStore:
    """A new, empty store with the version `main`. `AlreadyExists` when there is one."""
    surroundings = surroundings or Surroundings()
    try:
        # Of two creators one makes PROCESSES, both join, and one makes MASTER.
        storage.compare_and_swap(PROCESSES, None, encode_roll(Roll(surroundings.new_id())))
    except SwapLost:
        _refuse_store(storage)
    context = _context(storage, installer, validator, surroundings)
    main = version_name(context.membership.stem())
    swap = surroundings.new_id()
    entry = LogEntry(CommitNumber(0), swap, surroundings.now(), "create", "")
    pointer = Pointer(main, MAIN, CommitNumber(0), swap, None, log=Roster((entry.to_json(),)))
    storage.put_if_absent(main, encode_pointer(pointer))
    master = Master(swap, surroundings.new_id(), Roster((version_row(MAIN, main),)))
    try:
        storage.put_if_absent("MASTER", encode_master(master))
    except AlreadyExists:
        if read_master(context.objects).master.store != master.store:
            storage.delete(main)
            context.membership.settled([PhysicalPage(main)])
            context.membership.leave()
            raise _exists(storage) from None
    context.membership.settled([PhysicalPage(main)])
    return PageStore(context)


def open_store(
    storage: Storage, installer: Installer, validator: Validator, surroundings: Surroundings | None = None
) -> PageStore:
    """An existing store."""
    read_master(Objects(storage))
    store = PageStore(_context(storage, installer, validator, surroundings or Surroundings()))
    store.recover()
    return store


def _context(storage: Storage, installer: Installer, validator: Validator, surroundings: Surroundings) -> Context:
    return Context(
        storage=storage,
        objects=Objects(storage),
        membership=Membership(storage, surroundings),
        surroundings=surroundings,
        watch=DeathWatch(surroundings.patience),
        installer=installer,
        validator=validator,
    )


def _refuse_store(storage: Storage) -> None:
    try:
        storage.get("MASTER")
    except NotFound:
        return
    raise _exists(storage)


def _exists(storage: Storage) -> AlreadyExists:
    return AlreadyExists(f"there is a store at {storage.url} already", doing="Creating a store", hint="Open it")
