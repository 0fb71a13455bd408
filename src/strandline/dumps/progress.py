"""Progress of copying, on standard error, where somebody watches: bytes done of bytes planned, and the time left."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from strandline.engine.progress import Progress

if TYPE_CHECKING:
    import rich.progress


class CopyProgress:
    """A bar over bytes; silent where the engine's progress is."""

    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.shown = Progress(title, 0).shown
        self._display: rich.progress.Progress | None = None
        self._task: Any = None
        self._mutex = threading.Lock()

    def __enter__(self) -> CopyProgress:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            self._display = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                DownloadColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._display.start()
            self._task = self._display.add_task(self.title, total=self.total)
        return self

    def advance(self, count: int) -> None:
        """So many bytes more are done."""
        with self._mutex:
            self.done += count
            if self._display is not None:
                self._display.update(self._task, completed=self.done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()
