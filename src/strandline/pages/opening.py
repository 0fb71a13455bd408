"""Creating a store, and opening one."""

from __future__ import annotations

from strandline.errors import AlreadyExists, NotFound, SwapLost
from strandline.pages.context import Context, Installer, Validator
from strandline.pages.freeing import DeathWatch
from strandline.pages.ids import CommitNumber, PhysicalPage
from strandline.pages.master import MASTER, Master, encode_master, read_master, version_row
from strandline.pages.membership import Membership
from strandline.pages.objects import Objects, version_name
from strandline.pages.pointer import LogEntry, Pointer, encode_pointer
from strandline.pages.roll import PROCESSES, Roll, encode_roll
from strandline.pages.roster import Roster
from strandline.pages.store import MAIN, PageStore
from strandline.pages.surroundings import Surroundings
from strandline.storage import Storage


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
    pointer = Pointer(main, MAIN, CommitNumber(0), swap, None, swap, log=Roster((entry.to_json(),)))
    storage.put_if_absent(main, encode_pointer(pointer))
    master = Master(swap, surroundings.new_id(), Roster((version_row(MAIN, main),)))
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
        storage.get(MASTER)
    except NotFound:
        return
    raise _exists(storage)


def _exists(storage: Storage) -> AlreadyExists:
    return AlreadyExists(f"there is a store at {storage.url} already", doing="Creating a store", hint="Open it")
