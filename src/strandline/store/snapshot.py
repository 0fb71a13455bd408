"""A temporary snapshot in a user's hands."""

from __future__ import annotations

from types import TracebackType

from strandline.errors import InputError
from strandline.pages import PageVersion, SnapshotRecord, View
from strandline.pages import Snapshot as PageSnapshot


class Snapshot:
    """A state that stays readable until closed: a context manager, usable wherever `at=` is."""

    def __init__(self, inner: PageSnapshot, version: PageVersion) -> None:
        self._inner = inner
        self._version = version

    @property
    def view(self) -> View:
        """The state; `SnapshotExpired` may follow when it is closed."""
        if self._inner.closed:
            raise InputError("the snapshot is closed", doing="Reading a snapshot", hint="Take another, or name one")
        return self._inner.view

    @property
    def commit(self) -> int:
        """The last commit that the snapshot includes."""
        return int(self._inner.commit)

    @property
    def inner(self) -> PageSnapshot:
        return self._inner

    def keep(self, name: str) -> SnapshotRecord:
        """Make the state permanent by giving it a name; this stays a reader of it until closed."""
        return self._version.name_snapshot(name, of=self._inner)

    def close(self) -> None:
        """Let go of the state. Closing twice is no error."""
        self._inner.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
