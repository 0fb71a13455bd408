"""An open store: its versions, and this process's place among others. How one is created, and how it is opened."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress

from strandline.errors import AlreadyExists, Fenced, LockTimeout, NotFound, StorageError, StrandlineError, SwapLost
from strandline.pages.context import Context, Deriver, Installer, Validator
from strandline.pages.fencing import fence_process
from strandline.pages.forks import clear_dropped, drop_version, fork, is_dropped, rename_version, settle_fork
from strandline.pages.format import (
    MASTER,
    RESTORING,
    ChunkedList,
    LogEntry,
    Master,
    Objects,
    Pointer,
    encode_master,
    encode_pointer,
    read_master,
    version_name,
    version_row,
)
from strandline.pages.ids import (
    OWN_PREFIX,
    CommitNumber,
    Environment,
    PhysicalPage,
    VersionObject,
    refuse_own_name,
)
from strandline.pages.liveness import DeathWatch
from strandline.pages.process_registry import (
    PROCESSES,
    Commits,
    Membership,
    ProcessRegistry,
    Reading,
    encode_registry,
    read_registry,
)
from strandline.pages.snapshots import PageSnapshot
from strandline.pages.temporary_version import TemporaryVersion
from strandline.pages.version import Version
from strandline.storage import Closeable, Mutex, Storage, Wakeup, is_stored, put_new

MAIN = "main"
BEATS = 6
"""How often a process beats while others are patient with it."""


class PageStore(Closeable):
    """A store in this process. A context manager; closing it takes this process off the registry."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.process = context.membership.number
        """This process's number."""
        self._mutex = Mutex("the list of open versions", context.environment.lock_limit)
        self._versions: dict[VersionObject, Version] = {}
        self._temporaries: list[TemporaryVersion] = []
        self._fencing = threading.Lock()
        self.unsettled_forks: dict[VersionObject, Version] = {}
        """Versions whose making failed half-way, with their parents: whether they are there is to be found out."""
        self._unsettled_drops: set[VersionObject] = set()
        """Versions whose drop failed half-way: what it left, if it stands, is to be cleared away."""
        self._closed = Wakeup()
        self._heart: threading.Thread | None = None
        self._last_beat = context.environment.monotonic()
        context.membership.positions = self._positions

    @property
    def identity(self) -> str:
        """The store's own id, chosen when it was created or restored."""
        return self.context.store

    def is_same(self, other: PageStore) -> bool:
        """Whether two handles are of one store. A copy of its folder has its id, but is elsewhere."""
        if self is other:
            return True
        places = [one.context.storage.url for one in (self, other)]
        return places[0] == places[1] and self.identity == other.identity

    def versions(self) -> dict[str, VersionObject]:
        """The versions by name."""
        self.settle_drops()
        return self.context.read_master().master.all_versions(self.context.objects.chunk)

    def version(self, name: str = MAIN) -> Version:
        """Open a version."""
        return self.open(self._named(name))

    def _named(self, name: str) -> VersionObject:
        pointer = self.versions().get(name)
        if pointer is None:
            raise NotFound(f"there is no version {name}", doing=f"opening version {name}")
        return pointer

    def fork(self, name: str, *, parent: str = MAIN, of: PageSnapshot | None = None) -> Version:
        """A new version on the current state of another, or on a snapshot of it."""
        refuse_own_name(name, f"creating version {name}")
        if name in self.versions():
            raise AlreadyExists(f"there is a version {name} already", doing=f"creating version {name}")
        return self.open(fork(self.version(parent), name, of))

    def restoring(self, name: str) -> Version:
        """The version that a restore fills before it gives it a name: the one that was begun, or a new one."""
        own = f"{OWN_PREFIX}restoring.{name}"
        begun = self.versions().get(own)
        return self.open(fork(self.version(), own) if begun is None else begun)

    def rename_version(self, version: Version, name: str) -> None:
        """Give a version another name; not the first one."""
        refuse_own_name(name, f"renaming version {version.name}")
        rename_version(version, name)

    def temporary(self, *, parent: str = MAIN, of: PageSnapshot | None = None) -> TemporaryVersion:
        """A version in memory on the current state of another, or on a snapshot of it: no transaction on it is
        flushed, and it is gone when closed.
        """
        version = self.version(parent)
        with nullcontext(of) if of is not None else version.snapshot() as state:
            made = TemporaryVersion(version, state)
        with self._mutex.held():
            self._temporaries = [*(one for one in self._temporaries if not one.closed), made]
        return made

    def drop_version(self, name: str) -> None:
        """Drop a version that has no children and no snapshots."""
        if self.finish_drop(name):
            return
        version = self.version(name)
        pointer = version.object
        try:
            drop_version(version)
            self._clear_away(pointer)
        except BaseException as error:
            self._unsettled_drops.add(pointer)
            gone = self.settle_drops([pointer])
            if not gone or not isinstance(error, StorageError):
                raise

    def finish_drop(self, name: str) -> bool:
        """Whether a version had been dropped, by whomever, and only had to be cleared away."""
        pointer = self._named(name)
        dropped = is_dropped(self.context, pointer)
        if dropped:
            self._clear_away(pointer)
        return dropped

    def settle_drops(self, pointers: Collection[VersionObject] | None = None) -> set[VersionObject]:
        """Finish the drops that were broken off, all or these: which of them stand, and are cleared away.

        What the storage refuses now is for the next call, or for another process.
        """
        cleared = set()
        for pointer in list(self._unsettled_drops if pointers is None else pointers):
            with suppress(StorageError):
                if is_dropped(self.context, pointer):
                    self._clear_away(pointer)
                    cleared.add(pointer)
                self._unsettled_drops.discard(pointer)
        return cleared

    def _clear_away(self, pointer: VersionObject) -> None:
        """Clear away a version that was dropped, and that nobody in this process reads any more."""
        with self._mutex.held():
            self._versions.pop(pointer, None)
        self.context.membership.forget(pointer)
        clear_dropped(self, pointer)

    def beat(self) -> ProcessRegistry:
        """Show that this process lives, publish how far its readers are, and fence the dead."""
        self._last_beat = self.context.environment.monotonic()
        self._follow()
        registry = self.context.membership.beat(self._reading)
        self.recover()
        self._fence_dead(registry)
        return registry

    def living(self) -> ProcessRegistry:
        """The processes at work on the store, once those that are known to be dead are fenced."""
        storage = self.context.storage
        self.context.read_master()
        self.settle_forks()
        self.settle_drops()
        self._fence_dead(read_registry(storage))
        return read_registry(storage)

    def start_heart(self, every: float | None = None) -> None:
        """Beat from a thread of its own until closed. A process that may idle or only read needs it to live.

        Commits beat by themselves.
        """
        pause = self.context.environment.patience / BEATS if every is None else every

        def run() -> None:
            while not self._closed.wait(pause):
                try:
                    self.beat()
                except Fenced:
                    return  # the next use of the store raises it
                except (StorageError, NotFound, LockTimeout):
                    continue  # the next beat may come through; of a store that is gone, its next user is told

        self._heart = threading.Thread(target=run, name="strandline-heart", daemon=True)
        self._heart.start()

    def close(self) -> None:
        """Leave the store. Names whose fate is unknown keep this process on the registry, to be fenced by
        others.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        if self.context.membership.is_inherited:
            self.context.closed = True
            return
        if self._heart is not None:
            self._heart.join(self.context.environment.lock_limit)
        with self._mutex.held():
            temporaries, self._temporaries = self._temporaries, []
        for temporary in temporaries:
            temporary.close()
        self.settle_forks()
        self.settle_drops()
        self.context.closed = True
        if not self.context.membership.unsettled:
            with suppress(NotFound):  # the store itself is gone
                self.context.membership.leave(self.context.watch)

    def take_over(self) -> None:
        """Fence dead processes on joining: many processes never commit, and would be blocked by them. What can't be
        done now (a disk is full) is for the next beat, or the next process.
        """
        with suppress(StorageError):
            self.recover()
            self._fence_dead(self.context.membership.joined)

    def settle_forks(self, children: Collection[VersionObject] | None = None) -> set[VersionObject]:
        """Undo the forks of versions whose making failed, all or these; which of them are there after all.

        What the storage refuses now is for the next beat, or for the process that fences this one.
        """
        there = set()
        for child, parent in list(self.unsettled_forks.items()):
            if children is None or child in children:
                with suppress(StorageError):
                    if settle_fork(parent, child):
                        there.add(child)
                    self.unsettled_forks.pop(child, None)
        return there

    def recover(self) -> None:
        """Go on clearing away versions that were being dropped, and those that could not be made."""
        self.settle_forks()
        self.settle_drops()
        for name in self.context.read_master().master.dropping:
            clear_dropped(self, name)

    def open(self, name: VersionObject) -> Version:
        """The version whose pointer has that storage name; the same handle each time."""
        with self._mutex.held():
            if name not in self._versions:
                if self.context.objects.pointer(name).dropped:
                    clear_dropped(self, name)
                    raise NotFound("the version was dropped", doing="opening a version")
                self._versions[name] = Version(self, self.context, name)
            return self._versions[name]

    def _follow(self) -> None:
        """Take in what others committed, else an idle process would keep their old pages without end. A commit of this
        process that is under way does so itself, and must not keep it from showing that it lives.
        """
        with self._mutex.held():
            versions = list(self._versions.items())
        for name, version in versions:
            try:
                version.refresh_if_idle()
            except NotFound:
                self.context.read_master()  # of a store that is elsewhere nothing is known to be dropped
                with self._mutex.held():
                    self._versions.pop(name, None)
                self.context.membership.forget(name)

    # These two are asked for inside the membership's mutex, so they must not take ours: opening a version
    # takes them in the other order. Copying a dictionary is one step.

    def _positions(self) -> Commits:
        return {name: one.pointer().commit for name, one in dict(self._versions).items()}

    def _reading(self) -> dict[VersionObject, Reading]:
        return {name: one.reading() for name, one in dict(self._versions).items()}

    def after_swap(self, registry: ProcessRegistry) -> None:
        """Every swap is a sign of life, published now and then, and an occasion to look for the dead.

        The swap stands, so no error may pass from here: what could not be done is tried again after the next, and a
        fenced process is told then.
        """
        environment = self.context.environment
        with suppress(StrandlineError):
            if environment.monotonic() - self._last_beat > environment.patience / BEATS:
                self.beat()
            else:
                self._fence_dead(registry)

    def _fence_dead(self, registry: ProcessRegistry) -> None:
        others = registry.without(self.process).processes
        dead = self.context.watch.dead(others, self.context.environment.monotonic())
        if dead and self._fencing.acquire(blocking=False):
            try:
                for number in dead:
                    fence_process(self, number)
            finally:
                self._fencing.release()


def create_store(
    storage: Storage,
    installer: Installer,
    validator: Validator,
    environment: Environment | None = None,
    derivers: Sequence[Deriver] = (),
) -> PageStore:
    """A new, empty store with the version `main`. `AlreadyExists` when there is one."""
    environment = environment or Environment()
    if is_stored(storage, RESTORING):
        raise AlreadyExists(
            f"a restore to {storage.url} was begun and is not finished",
            doing="creating a store",
            hint="Finish it by the same call, or create the store in another place",
        )
    try:
        # Of two creators one makes PROCESSES, both join, and one makes MASTER.
        storage.compare_and_swap(PROCESSES, None, encode_registry(ProcessRegistry(environment.new_id())))
    except SwapLost:
        if is_stored(storage, MASTER):
            raise _exists(storage) from None
    context = _context(storage, installer, validator, environment, derivers)
    main = version_name(context.membership.stem())
    context.store = swap = environment.new_id()
    entry = LogEntry(CommitNumber(0), swap, environment.now(), "create", "")
    pointer = Pointer(main, MAIN, CommitNumber(0), swap, None, swap, log=ChunkedList((entry.to_json(),)), store=swap)
    if put_new(storage, {main: encode_pointer(pointer)}):
        raise AlreadyExists(f"{main} exists already", doing="creating a store", hint="Choose an empty place")
    master = Master(swap, environment.new_id(), ChunkedList((version_row(MAIN, main),)))
    try:
        storage.put_if_absent(MASTER, encode_master(master))
    except AlreadyExists:
        if read_master(context.objects).master.store != master.store:
            storage.delete(main)
            context.membership.settled([PhysicalPage(main)])
            context.membership.leave()
            raise _exists(storage) from None
    context.membership.settled([PhysicalPage(main)])
    return PageStore(context)


def open_store(
    storage: Storage,
    installer: Installer,
    validator: Validator,
    environment: Environment | None = None,
    derivers: Sequence[Deriver] = (),
) -> PageStore:
    """An existing store."""
    identity = read_master(Objects(storage)).master.store
    store = PageStore(_context(storage, installer, validator, environment or Environment(), derivers, identity))
    store.take_over()
    return store


def _context(
    storage: Storage,
    installer: Installer,
    validator: Validator,
    environment: Environment,
    derivers: Sequence[Deriver],
    store: str = "",
) -> Context:
    return Context(
        storage=storage,
        store=store,
        objects=Objects(storage),
        membership=Membership(storage, environment),
        environment=environment,
        watch=DeathWatch(environment.patience, environment.identity),
        installer=installer,
        validator=validator,
        derivers=derivers,
    )


def _exists(storage: Storage) -> AlreadyExists:
    return AlreadyExists(f"there is a store at {storage.url} already", doing="creating a store", hint="Open it")
