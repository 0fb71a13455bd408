"""Temporary versions: writable, and gone when closed unless they are made permanent (sections 3.4 and 3.5).

No flushing is needed for a transaction on a temporary version: its pages, its nodes and its pointer stay in memory,
over the state of a permanent version that is pinned meanwhile. To make it permanent is to fork: the parent holds the
state that it stands on, its objects are forced to disk, then its pointer, and then MASTER names it, at once.

Its names are from this process's blocks and stay unsettled until it is permanent or closed: fencing this
process finds what had been written of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from strandline.errors import AlreadyExists, StorageError, StoreError, StrandlineError
from strandline.pages.forks import (
    child_pointer,
    enter_version,
    hold_fork,
    refuse_forking_point,
    refuse_no_name,
    settle_fork,
)
from strandline.pages.format import Fork, Objects, Pointer, encode_pointer, version_name
from strandline.pages.ids import CommitNumber, PhysicalPage, VersionObject, refuse_own_name
from strandline.pages.process_registry import Membership, NameBlock, ProcessRegistry
from strandline.pages.reclamation import sweep_block
from strandline.pages.snapshots import PageSnapshot
from strandline.pages.version import Version
from strandline.storage import Closeable, OverlayStorage, put_new


class TemporaryNames(Membership):
    """This process's membership as a temporary version sees it: nothing is published, no name is settled."""

    def __init__(self, inner: Membership) -> None:
        self._inner = inner
        self._used: set[PhysicalPage] = set()
        self.blocks: list[NameBlock] = []
        self.number = inner.number
        self.process = inner.process

    def stem(self) -> str:
        return self._inner.stem()

    def reserve(self, runs: int, run: int) -> NameBlock:
        return self._inner.reserve(runs, run)

    def settled(self, names: Iterable[PhysicalPage]) -> None:
        self._used.update(names)

    def withdraw(self, block: NameBlock) -> None:
        self._inner.withdraw(block)

    def close_block(self, block: NameBlock) -> None:
        self.blocks.append(block)

    def publish(self, version: VersionObject, floor: CommitNumber) -> None:
        """No other process knows the version."""

    def covers(self, version: VersionObject, commit: CommitNumber) -> bool:
        """Its states are deleted by this process alone, which knows its own readers."""
        return True

    def hold(self, version: VersionObject, held: Callable[[], Iterable[CommitNumber]]) -> None:
        """Nothing to publish."""

    def forget(self, version: VersionObject) -> None:
        """Nothing was published."""

    def settle(self) -> None:
        """The version is permanent, or gone."""
        self._inner.settled(self._used)
        for block in self.blocks:
            self._inner.close_block(block)


class TemporaryVersion(Closeable, Version):
    """A version in memory: `keep` makes it permanent, closing forgets it. A context manager."""

    def __init__(self, parent: Version, of: PageSnapshot) -> None:
        refuse_forking_point(parent, of, "creating a temporary version")
        self._parent = parent
        self._base = of.again()
        self._overlay = OverlayStorage(parent.context.storage)
        self._names = TemporaryNames(parent.context.membership)
        self._closed = False
        self._frozen: Pointer | None = None
        """What a `keep` was about to make permanent, until its end is known."""
        self._forced: set[str] = set()
        """The objects that it has stored for that, or was about to."""
        context, state = parent.context, of.view.state
        name = version_name(context.membership.stem())
        self._names.settled([PhysicalPage(name)])
        made = Fork(state.commit, name, "", state.root, context.membership.number, state.commit_id)
        pointer = child_pointer(context, parent.current.pointer, made)
        self._overlay.compare_and_swap(name, None, encode_pointer(pointer))
        overlaid = replace(context, storage=self._overlay, objects=Objects(self._overlay), membership=self._names)
        super().__init__(parent.store, overlaid, name)

    @property
    def closed(self) -> bool:
        """Whether it was kept or forgotten."""
        return self._closed

    def keep(self, name: str) -> Version:
        """Make it permanent under a name: from then on it is a version like any other. This handle is closed.

        Where that fails it stays as it is, and this may be tried again.
        """
        doing = f"keeping it as {name}"
        if self._closed:
            raise StoreError("the temporary version is closed", doing=doing)
        refuse_no_name(name, "keeping a temporary version")
        refuse_own_name(name, "keeping a temporary version")
        with self.exclusive.held():
            self.refuse(self.current.pointer)
            frozen = self.current.pointer
            if self._is_kept(frozen, doing):
                return self.store.open(self.object)
            self.context.closed = True
        try:
            self._force(frozen, name)
        finally:
            self.context.closed = self._closed
        return self.store.open(self.object)

    def _force(self, pointer: Pointer, name: str) -> None:
        """Hold the fork, make everything durable, enter MASTER: in that order."""
        parent, below = self._parent, self._overlay.below
        # Fencing looks for a process's names in the versions that it worked on: this one among them.
        parent.context.membership.publish(self.object, self._base.commit)
        objects = {one: data for one, data in self._overlay.memory.objects.items() if one != self.object}
        self._forced, self._frozen = set(objects), pointer
        try:
            made = hold_fork(parent, self.object, name, self._base)
            kept = replace(pointer, name=name, fenced=parent.current.pointer.fenced)
            if foreign := put_new(below, objects):
                self._forced -= set(foreign)
                raise AlreadyExists(f"{foreign[0]} exists already", doing=f"keeping the version as {name}")
            token = below.compare_and_swap(self.object, None, encode_pointer(kept))
            enter_version(parent, made, kept, token)
        except StrandlineError:
            if not self._settled():
                raise
        self._end()

    def _is_kept(self, pointer: Pointer, doing: str) -> bool:
        """Whether an earlier try that seemed to fail has kept this state after all."""
        frozen = self._frozen
        if not self._settled():
            return False
        if pointer is not frozen:
            why = "an earlier try has made a version after all, without what was changed here since"
            raise AlreadyExists(why, doing=doing, hint="Open that version, and change it as this one was changed since")
        self._end()
        return True

    def _settled(self) -> bool:
        """Whether MASTER names it although keeping it failed. If not, it stays temporary: nothing of it stays below."""
        if self._frozen is None:
            return False
        if settle_fork(self._parent, self.object):
            return True
        for one in self._forced:
            self._overlay.below.delete(one)
        self._parent.context.membership.forget(self.object)
        self._frozen = None
        return False

    def close(self) -> None:
        """Forget it. Closing twice is no error."""
        if self._closed:
            return
        self.context.closed = True
        try:
            if not self._settled():
                for block in self._names.blocks:
                    sweep_block(self._parent.context.objects, block, frozenset())
        except StorageError:  # its names stay unsettled, for the process that fences this one
            self.store.unsettled_forks[self.object] = self._parent
            self._closed = True
            self._base.close()
            return
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._base.close()
        self._names.settle()
        self._overlay.memory.objects.clear()

    def _after_swap(self, registry: ProcessRegistry) -> None:
        """Its swaps are seen by no other process, so they are no sign of life and no occasion to fence others."""
