"""One version of the store, as the tables hold it.

What `at=` may mean, in one place: now, a snapshot's name, a commit number, a time; or a text that says one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from types import TracebackType

from strandline.errors import InputError, NotFound
from strandline.pages.format import LogEntry, Pointer, SnapshotRecord, Visits
from strandline.pages.ids import TableId, VersionObject
from strandline.pages.read_view import ReadView
from strandline.pages.snapshots import PageSnapshot, demote, drop_snapshot, find_state, name_snapshot, take
from strandline.pages.temporary_version import TemporaryVersion
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version


class PageVersion:
    """One version of the store, as the tables hold it. Safe for many threads."""

    def __init__(self, version: Version) -> None:
        self._version = version

    @property
    def name(self) -> str:
        return self._version.name

    @property
    def object(self) -> VersionObject:
        """The storage name of its pointer."""
        return self._version.object

    def view(self) -> ReadView:
        """The newest state that this process knows, not protected: for reads that may be repeated."""
        return self._version.current.view

    def refresh(self) -> ReadView:
        """The newest state that there is: takes in commits of other processes."""
        return self._version.refresh()

    def look(self) -> ReadView:
        """The newest state, other processes' commits included, without waiting for a commit of this process that is
        under way: that one takes them in.
        """
        return self._version.look()

    def begin(self, message: str = "") -> Transaction:
        """A transaction on this version."""
        return self._version.committer.begin(message)

    def snapshot(self) -> PageSnapshot:
        """A temporary snapshot of the current state; microseconds, at any size."""
        return take(self._version)

    def name_snapshot(
        self, name: str, *, of: PageSnapshot | None = None, domains: Collection[TableId] | None = None
    ) -> SnapshotRecord:
        """A permanent snapshot of the current state, or of a temporary one; of all domains, or of some."""
        return name_snapshot(self._version, name, of=of, domains=domains)

    def demote(self, name: str) -> PageSnapshot:
        """Make a permanent snapshot temporary."""
        return demote(self._version, name)

    def drop_snapshot(self, name: str, visits: Visits | None = None) -> int:
        """Drop a permanent snapshot; how many objects that freed."""
        return drop_snapshot(self._version, name, visits)

    def snapshots(self) -> list[SnapshotRecord]:
        """The permanent snapshots, oldest first."""
        return self._version.refresh_pointer().all_snapshots(self._version.context.objects.chunk)

    def at(self, at: str | int | float) -> PageSnapshot:
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


SHOWN = 20


def state_at(version: PageVersion, at: object) -> PageSnapshot:
    """The state that `at` means, held until closed. None is now; a text is a snapshot's name here; a datetime without
    a zone is local time.
    """
    if at is None:
        version.look()
        return version.snapshot()
    if isinstance(at, SnapshotRecord):
        return version.at(at.name)
    if isinstance(at, dt.datetime):
        return version.at(at.timestamp())
    if isinstance(at, (str, int)) and not isinstance(at, bool):
        return version.at(at)
    raise InputError(
        f"{at!r} is no state", doing="Reading a state", hint="Give a name, a snapshot, a commit number, a datetime"
    )


def parse_at(version: PageVersion, text: str | None) -> str | int | dt.datetime | None:
    """What a text from a command line or an option means: a snapshot's name, else a commit number, else a time.

    Without a text: now.
    """
    if text is None:
        return None
    known = [record.name for record in version.snapshots()]
    if text in known:
        return text
    if text.isdecimal():
        return int(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        names = f"The snapshots are {', '.join(known[:SHOWN])}" if known else "There are no snapshots yet"
        raise NotFound(
            f"there is no snapshot {text}",
            doing=f"Looking for the state {text}",
            hint=f"{names}; a commit number or a time like 2030-01-31T12:00 will do too",
        ) from None
