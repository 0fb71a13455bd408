"""Progress of long work, on standard error, only when that is a terminal: tasks done of tasks planned, rows, bytes.

`byte_count` is how a number of bytes is told to people, here and elsewhere.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.progress

_quiet = False


def set_quiet(*, quiet: bool) -> None:
    """Turns progress off (or on again) for the whole process, as `--quiet` and `--json` do."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


class Progress:
    """A line that grows while work is done; silent where there is no terminal."""

    def __init__(self, title: str, tasks: int) -> None:
        self.title = title
        self.tasks = tasks
        self.shown = sys.stderr.isatty() and not _quiet
        self.done = self.rows = self.bytes = 0
        self._display: rich.progress.Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self.shown:
            self._display = _display()
            self._display.start()
            self._task = self._display.add_task(self.title, total=self.tasks, detail="")
        return self

    def advance(self, tasks: int, rows: int = 0, bytes_: int = 0) -> None:
        self.show(self.done + tasks, self.rows + rows, self.bytes + bytes_)

    def show(self, done: int, rows: int, bytes_: int) -> None:
        """Absolute figures, for runners that are told totals."""
        self.done, self.rows, self.bytes = done, rows, bytes_
        if self._display is not None:
            detail = f"{done}/{self.tasks} tasks"
            if rows:
                detail += f" · {rows:,} rows"
            if bytes_:
                detail += f" · {bytes_ / 1e6:,.1f} MB"
            self._display.update(self._task, completed=done, detail=detail)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()


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


def _display() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
