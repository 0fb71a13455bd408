"""What views need of the store that they are in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from strandline.pages import PageVersion
from strandline.pages import View as State
from strandline.storage import Storage
from strandline.tables import PageCache, TableTransaction
from strandline.views.running import Running

R = TypeVar("R")


class Home(Protocol):
    """One version of a store."""

    @property
    def name(self) -> str: ...

    @property
    def pages(self) -> PageVersion: ...

    @property
    def cache(self) -> PageCache: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def identity(self) -> str:
        """The store's own id, which no restored store shares."""
        ...

    def state(self, at: Any = None) -> AbstractContextManager[State]: ...

    def autocommit(self, work: Callable[[TableTransaction], R]) -> R: ...

    def running(self, runner: str = "auto") -> Running: ...
