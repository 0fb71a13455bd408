"""What views need of the store that they are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from strandline.tables import TableTransaction
from strandline.views.running import Running
from strandline.whatif.transaction import Home as WhatIfHome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.whatif import WhatIf

R = TypeVar("R")


class Home(WhatIfHome, Protocol):
    """One version of a store: what what-ifs need of it, and more."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """The store's own id, which no restored store shares."""
        ...

    def autocommit(self, work: Callable[[TableTransaction], R]) -> R: ...

    def frame(self, table: str, at: Any = None) -> DataFrame: ...

    def what_if(self, name: str) -> WhatIf: ...

    def running(self, runner: str = "auto") -> Running: ...
