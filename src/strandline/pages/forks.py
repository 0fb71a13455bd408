"""Versions: modifiable snapshots, and the tree that they form (sections 3.4 and 3.5).

A version stands on a fork, an implicit snapshot in its parent's pointer; its commit numbers continue from
there. MASTER is swapped last when a version is made: until then the fork names its maker, and
fencing the maker undoes it. Dropping is one swap, too, of the version's own pointer; everything after that
only clears away, and any process can do it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from strandline.errors import AlreadyExists, InputError, InUse, NotFound, SnapshotExpired, StorageError
from strandline.pages.context import Context
from strandline.pages.format import (
    ChunkedList,
    Fork,
    ForkBase,
    LogEntry,
    Master,
    ObjectWriter,
    Pointer,
    SnapshotRecord,
    chunk_names,
    encode_pointer,
    implicit,
    replace_master,
    version_name,
    with_version,
    without_version,
)
from strandline.pages.ids import CommitNumber, PhysicalPage, ProcessId, VersionObject, is_own_name
from strandline.pages.process_registry import read_registry
from strandline.pages.reclamation import Neighbours, freed_for_good
from strandline.pages.snapshots import PageSnapshot, freed_without, unfreed
from strandline.pages.swap import SwapAttempt, SwapPlan, change_pointer
from strandline.storage import Token

if TYPE_CHECKING:
    from strandline.pages.store import PageStore
    from strandline.pages.version import Version


class MasterAttempt:
    """One attempt to replace MASTER. A context manager: unless the new master may stand, the extension pages that were
    written for it are deleted at the end.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._may_stand = False

    def __enter__(self) -> MasterAttempt:
        self._stored = self._context.read_master()
        self.base = self._stored.master
        self.output = self._context.output()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._may_stand:
            self._context.abandon(self.output)

    def swap(self, edited: Master) -> bool:
        """Replace MASTER; true also when nothing was edited, false when another process was first."""
        if edited is self.base:
            return True
        for name in self.output.names - chunk_names(edited):
            self.output.discard(name)
        self.output.flush()
        self._may_stand = True
        edited = replace(edited, swap=self._context.environment.new_id())
        self._may_stand = replace_master(self._context.objects, self._stored, edited)
        if self._may_stand:
            self._context.membership.settled(self.output.taken)
        return self._may_stand


def change_master(context: Context, edit: Callable[[Master, ObjectWriter], Master]) -> None:
    """Replace MASTER by what `edit` makes of it, again when another process was first. What it gives back as it was
    is not replaced.
    """
    while True:
        with MasterAttempt(context) as attempt:
            if attempt.swap(edit(attempt.base, attempt.output)):
                return


def fork(parent: Version, name: str, of: PageSnapshot | None = None) -> VersionObject:
    """A new version on the current state, or on a snapshot. The pointer's storage name."""
    context = parent.context
    refuse_no_name(name, "creating a version")
    if of is not None:
        refuse_forking_point(parent, of, f"creating version {name}")
    child = version_name(context.membership.stem())
    try:
        made = hold_fork(parent, child, name, of)
        pointer = child_pointer(context, parent.current.pointer, made)
        enter_version(parent, made, pointer, context.storage.compare_and_swap(child, None, encode_pointer(pointer)))
    except BaseException as error:
        parent.store.unsettled_forks[child] = parent
        there = parent.store.settle_forks([child])
        if not there or not isinstance(error, StorageError):
            raise
    return child


def settle_fork(parent: Version, child: VersionObject) -> bool:
    """Whether a version is there although making it failed. If it is not it never will be, and its fork is undone."""
    context = parent.context
    while True:
        with MasterAttempt(context) as attempt:
            there = child in attempt.base.all_versions(context.objects.chunk).values()
            # A swap of ours that is still on its way loses to this one.
            if there or attempt.swap(replace(attempt.base)):
                break
    if there:
        _adopt_fork(parent, child)
    else:
        release_fork(parent, child)
        context.storage.delete(child)
    context.membership.settled([PhysicalPage(child)])
    return there


def enter_version(parent: Version, made: Fork, new: Pointer, token: Token) -> None:
    """Let MASTER name a version that stands on a fork, its pointer being in place: only then is it there."""
    context, child, name = parent.context, made.child, made.name
    try:
        while True:
            with MasterAttempt(context) as attempt:
                versions = attempt.base.all_versions(context.objects.chunk)
                if versions.get(name) == child:
                    break
                if name in versions:
                    raise InputError(f"there is a version {name} already", doing=f"creating version {name}")
                if not attempt.base.fenced <= new.fenced:
                    # A process was fenced after we copied the parent's list: it must be fenced here as well.
                    new = replace(new, fenced=new.fenced | attempt.base.fenced)
                    token = context.storage.compare_and_swap(child, token, encode_pointer(new))
                if attempt.swap(with_version(attempt.base, name, child, attempt.output)):
                    break
    except InputError:
        release_fork(parent, child)
        context.storage.delete(child)
        context.membership.settled([PhysicalPage(child)])
        raise
    with suppress(StorageError):  # the version is there all the same; fencing this process finishes it
        _adopt_fork(parent, child)
    context.membership.settled([PhysicalPage(child)])


def hold_fork(parent: Version, child: VersionObject, name: str, of: PageSnapshot | None) -> Fork:
    """The parent holds the state that a child is going to stand on."""
    parent.refresh()

    def hold(attempt: SwapAttempt) -> Fork:
        pointer = attempt.base.pointer
        state = of.view.state if of is not None else attempt.base.view.state
        made = Fork(state.commit, child, name, state.root, parent.context.membership.number, state.commit_id)
        freed = unfreed(pointer, implicit(made, name), attempt.output)
        attempt.write(SwapPlan(replace(pointer, forks=(*pointer.forks, made), freed=freed), "fork", name))
        return made

    return change_pointer(parent, hold)


def refuse_forking_point(parent: Version, of: PageSnapshot, doing: str) -> None:
    """Refuse a state that a version's chain can't hold for a child: commit numbers of another one prove nothing."""
    if of.view.state.domains is not None:
        raise InputError("a partial snapshot can't be a forking point", doing=doing)
    if not of.belongs_to(parent):
        hint = "Branch from the version, and by the handle, that the snapshot is of"
        raise InputError("the snapshot is closed or of another version", doing=doing, hint=hint)


def refuse_no_name(name: str, doing: str) -> None:
    """Refuse what is no name for a version; temporary ones alone have none."""
    if not name:
        raise InputError("a version needs a name", doing=doing)


def child_pointer(context: Context, parent: Pointer, made: Fork) -> Pointer:
    """The first pointer of a version that stands on a fork."""
    swap = context.environment.new_id()
    entry = LogEntry(made.commit, swap, context.environment.now(), "fork", f"from {parent.name}")
    return Pointer(
        object=made.child,
        name=made.name,
        commit=made.commit,
        swap=swap,
        root=made.root,
        commit_id=made.commit_id,
        base=ForkBase(parent.object, made.commit, made.root, made.commit_id),
        fenced=parent.fenced,
        log=ChunkedList((entry.to_json(),)),
        store=context.store,
    )


def _adopt_fork(parent: Version, child: VersionObject) -> None:
    """The child is in MASTER: the fork is no longer its maker's affair."""

    def adopt(attempt: SwapAttempt) -> None:
        pointer = attempt.base.pointer
        forks = tuple(replace(one, maker=None) if one.child == child else one for one in pointer.forks)
        if forks != pointer.forks:
            attempt.write(SwapPlan(replace(pointer, forks=forks), "forked"))

    change_pointer(parent, adopt)


def release_fork(parent: Version, child: VersionObject) -> None:
    """Drop the implicit snapshot that a child stood on; no error when it is gone already."""
    parent.refresh()  # another process may have made the child, after this one last read the parent's pointer

    def release(attempt: SwapAttempt) -> None:
        pointer = attempt.base.pointer
        gone = next((one for one in pointer.forks if one.child == child), None)
        if gone is not None:
            shorter = replace(pointer, forks=tuple(one for one in pointer.forks if one.child != child))
            freed = freed_without(shorter, implicit(gone, gone.name), attempt.output)
            attempt.write(SwapPlan(shorter, "unfork", gone.name, freed=freed))

    change_pointer(parent, release)


def tidy_forks(parent: Version, versions: set[VersionObject], maker: ProcessId) -> None:
    """Finish or undo the forks of a maker that is dead."""
    for one in parent.current.pointer.forks:
        if one.maker == maker:
            if one.child in versions:
                _adopt_fork(parent, one.child)
            else:
                release_fork(parent, one.child)
                parent.context.storage.delete(one.child)


def rename_version(version: Version, name: str) -> None:
    """Give a version another name: the swap of MASTER does it, the names inside the pointers are for people."""
    doing = f"renaming version {version.name}"
    refuse_no_name(name, doing)
    version.refresh()
    base = version.current.pointer.base
    if base is None:
        raise InputError("it is the version that everything stems from", doing=doing)
    _rename_pointer(version, name)
    _rename_fork(version.store.open(base.parent), version.object, name)

    def rename(master: Master, output: ObjectWriter) -> Master:
        versions = master.all_versions(output.load_chunk)
        if versions.get(name) == version.object:
            return master
        if name in versions:
            raise AlreadyExists(f"there is a version {name} already", doing=doing)
        return with_version(without_version(master, version.object, output), name, version.object, output)

    change_master(version.context, rename)


def _rename_pointer(version: Version, name: str) -> None:
    def rename(attempt: SwapAttempt) -> None:
        attempt.write(SwapPlan(replace(attempt.base.pointer, name=name), "rename", name))

    change_pointer(version, rename)


def _rename_fork(parent: Version, child: VersionObject, name: str) -> None:
    def rename(attempt: SwapAttempt) -> None:
        pointer = attempt.base.pointer
        forks = tuple(replace(one, name=name) if one.child == child else one for one in pointer.forks)
        attempt.write(SwapPlan(replace(pointer, forks=forks), "rename", name))

    change_pointer(parent, rename)


def drop_version(version: Version) -> None:
    """Drop a version without children and without snapshots of its own, by one swap; clearing away comes after."""
    name = version.name
    doing = f"dropping version {name}"
    version.refresh()
    if version.readers():
        raise InUse("it is being read or written in this process", doing=doing, hint="Close its readers first")
    others = version.store.living().without(version.context.membership.number).processes.values()
    users = [str(record) for record in others if version.object in record.floors]
    if users:
        raise InUse(f"it is open in {', '.join(users)}", doing=doing, hint="Close the store there first")
    change_pointer(version, lambda attempt: attempt.write(_dropped(attempt.base.pointer, attempt.output, doing)))


def _dropped(pointer: Pointer, output: ObjectWriter, doing: str) -> SwapPlan:
    if pointer.base is None:
        raise InUse("it is the version that everything stems from", doing=doing)
    if pointer.forks:
        children = ", ".join(one.name for one in pointer.forks)
        raise InUse(f"the versions {children} stand on it", doing=doing, hint="Drop those first")
    snapshots = [one.name for one in pointer.all_snapshots(output.load_chunk)]
    if snapshots:
        seen = [one for one in snapshots if not is_own_name(one)] or snapshots
        raise InUse(f"it has the snapshots {', '.join(seen)}", doing=doing, hint="Drop those first")
    # The list of what belongs to this version alone becomes durable with the drop itself: deleting from
    # a list can be repeated after a crash at any place, walking a half-deleted tree could not.
    later = CommitNumber(pointer.commit + 1)
    record = SnapshotRecord(pointer.commit, pointer.name, pointer.root, 0.0)
    sides = Neighbours(pointer.base.commit, later, pointer.base.root)
    gone = replace(pointer, dropped=True, root=None, commit=later)
    return SwapPlan(gone, "drop version", pointer.name, freed=freed_for_good(output.load, record, sides))


def is_dropped(context: Context, name: VersionObject) -> bool:
    """Whether a version that was there has been dropped, as storage has it."""
    try:
        return context.objects.pointer(name).dropped
    except NotFound:
        return True


def clear_dropped(store: PageStore, name: VersionObject, dead: ProcessId | None = None) -> None:
    """Clear away a version whose pointer says that it was dropped. May be repeated, and done by any process.

    While a living process reads it, it only waits in MASTER's list.
    """
    context = store.context
    change_master(context, lambda master, output: _dropping(master, name, output))
    registry = read_registry(context.storage)
    if any(name in record.floors for number, record in registry.processes.items() if number != dead):
        return
    try:
        pointer = context.objects.pointer(name)
    except NotFound:
        pointer = None
    if pointer is not None and pointer.base is not None:
        with suppress(SnapshotExpired):  # an extension page is gone only after what it lists
            for freed in pointer.all_freed(context.objects.chunk):
                context.objects.delete(freed.name)
        release_fork(store.open(pointer.base.parent), name)
        # A swap of whatever object makes the deletes durable; only then the list of them may go.
        change_master(context, lambda master, _: replace(master))
        for chunk in pointer.chunks:
            context.objects.delete(chunk.name)
        context.storage.delete(name)
    change_master(context, lambda master, _: _cleared(master, name))


def _dropping(master: Master, name: VersionObject, output: ObjectWriter) -> Master:
    if name in master.dropping or name not in master.all_versions(output.load_chunk).values():
        return master
    shorter = without_version(master, name, output)
    return replace(shorter, dropping=(*master.dropping, name))


def _cleared(master: Master, name: VersionObject) -> Master:
    if name not in master.dropping:
        return master
    return replace(master, dropping=tuple(one for one in master.dropping if one != name))
