"""Progress of long work, on standard error, only when that is a terminal: tasks done of tasks planned, rows, bytes.

`byte_count` is how a number of bytes is told to people, here and elsewhere.
"""

from __future__ import annotations

import sys
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from strandline.storage import Closeable

if TYPE_CHECKING:
    import rich.progress

_quiet = False


def set_quiet(*, quiet: bool) -> None:
    """Turns progress off (or on again) for the whole process, as `--quiet` and `--json` do."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


class _Bar(Closeable):
    """A line that grows while work is done; silent where it was asked to be, or there is no terminal."""

    def __init__(self, title: str, total: int) -> None:
        self.shown = sys.stderr.isatty() and not _quiet
        self._title, self._total = title, total
        self._display: rich.progress.Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.shown:
            self._display = _display(*self._columns())
            self._display.start()
            self._task = self._display.add_task(self._title, total=self._total, detail="")
        return self

    def close(self) -> None:
        if self._display is not None:
            self._display.stop()

    @abstractmethod
    def _columns(self) -> Sequence[rich.progress.ProgressColumn]:
        """What the bar shows beside its title."""

    def _update(self, completed: int, detail: str = "") -> None:
        if self._display is not None:
            self._display.update(self._task, completed=completed, detail=detail)


class Progress(_Bar):
    """A bar over tasks, with rows and bytes."""

    def __init__(self, title: str, tasks: int) -> None:
        super().__init__(title, tasks)
        self.tasks = tasks
        self.done = self.rows = self.bytes = 0

    def advance(self, tasks: int, rows: int = 0, bytes_: int = 0) -> None:
        self.show(self.done + tasks, self.rows + rows, self.bytes + bytes_)

    def show(self, done: int, rows: int, bytes_: int) -> None:
        """Absolute figures, for runners that are told totals."""
        self.done, self.rows, self.bytes = done, rows, bytes_
        detail = f"{done}/{self.tasks} tasks"
        if rows:
            detail += f" · {rows:,} rows"
        if bytes_:
            detail += f" · {bytes_ / 1e6:,.1f} MB"
        self._update(done, detail=detail)

    def _columns(self) -> Sequence[rich.progress.ProgressColumn]:
        from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

        return TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()


class ByteProgress(_Bar):
    """A bar over bytes, which several threads advance."""

    def __init__(self, title: str, total: int) -> None:
        super().__init__(title, total)
        self.done = 0
        self._mutex = threading.Lock()

    def advance(self, count: int) -> None:
        """So many bytes more are done."""
        with self._mutex:
            self.done += count
            self._update(self.done)

    def _columns(self) -> Sequence[rich.progress.ProgressColumn]:
        from rich.progress import DownloadColumn, TimeRemainingColumn

        return DownloadColumn(), TimeRemainingColumn()


def byte_count(count: float) -> str:
    """A number of bytes for people.

    >>> byte_count(999), byte_count(1_500), byte_count(2.5e12)
    ('999 B', '1.5 KB', '2.5 TB')
    """
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _display(*columns: rich.progress.ProgressColumn) -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = TextColumn("{task.description}"), BarColumn(bar_width=24)
    return Progress(*bar, *columns, console=Console(stderr=True), transient=True)
