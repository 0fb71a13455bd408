"""One version of the store, as the tables hold it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import TracebackType

from strandline.pages.commit import Committer
from strandline.pages.ids import DomainId, VersionObject
from strandline.pages.pointer import LogEntry, Pointer, SnapshotRecord
from strandline.pages.snapshots import Snapshot, demote, drop_snapshot, find_state, name_snapshot, take
from strandline.pages.temporary import TemporaryVersion
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version
from strandline.pages.view import View
from strandline.pages.walk import Visits


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

    def now(self) -> float:
        """The time, in seconds since 1970: for people and for retention, never for order."""
        return self._version.context.surroundings.now()

    @property
    def inner(self) -> Version:
        """For the other files of this package."""
        return self._version


class TemporaryPageVersion(PageVersion):
    """A version in memory: `keep` makes it permanent, closing forgets it. A context manager."""

    def __init__(self, temporary: TemporaryVersion, open_version: Callable[[VersionObject], PageVersion]) -> None:
        super().__init__(temporary.version)
        self._temporary = temporary
        self._open = open_version

    def keep(self, name: str) -> PageVersion:
        """Make it permanent; this handle is closed."""
        self._temporary.keep(name)
        return self._open(self._temporary.object)

    def close(self) -> None:
        """Forget it. Closing twice is no error."""
        self._temporary.close()

    def __enter__(self) -> TemporaryPageVersion:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
