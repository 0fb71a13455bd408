"""A temporary branch in a user's hands: `store.branch()` without a name."""

from __future__ import annotations

from typing import Any, NoReturn

from strandline.errors import InputError
from strandline.pages import TemporaryPageVersion
from strandline.store.shared import Shared
from strandline.store.store import Store


class TemporaryStore(Store):
    """A version in memory, with the same face as the store. Closing it forgets it; `keep` makes it permanent.

    Its pages are in this process only, so Spark can't read them, and nothing can stand on it.
    """

    def __init__(self, shared: Shared, version: TemporaryPageVersion) -> None:
        super().__init__(shared, version)
        self._temporary = version

    @property
    def name(self) -> str:
        """It has none."""
        return ""

    def __enter__(self) -> TemporaryStore:
        return self

    def keep(self, name: str) -> Store:
        """Make it permanent: a branch like any other from now on. This handle is closed."""
        return Store(self.shared, self._temporary.keep(name))

    def branch(self, name: str | None = None, *, at: Any = None) -> NoReturn:
        """Nothing can stand on a temporary branch."""
        raise self._refusal("branched")

    def relation(self, table: str, at: Any = None) -> NoReturn:
        """Kernels read pages from storage, where those of a temporary branch are not."""
        raise self._refusal("read by kernels or by Spark")

    def close(self) -> None:
        """Forget it; the store stays open. Closing twice is no error."""
        self._temporary.close()

    def _refusal(self, what: str) -> InputError:
        return InputError(
            f"a temporary branch can't be {what}",
            doing="Using a temporary branch",
            hint="Make it permanent first, with keep(name); to_arrow and query read it as it is",
        )
