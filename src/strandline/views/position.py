"""Where a copy stands: (store, lineage, version, fingerprint of the view, commit number, commit id).

The id is that of the commit itself, as the version's pointer records it.

Two histories that reach the same commit number differ in the rest: a store that was restored has an identity of its
own, and so has a branch; a folder that was copied and went on apart differs in the id of the commit. A message leads
from one position to the next and applies only where the copy is at the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Position:
    """See the module. `lineage` is the storage name of the version's pointer, which is never used again."""

    store: str
    lineage: str
    version: str
    view: str
    commit: int
    id: str

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @staticmethod
    def from_json(record: Mapping[str, Any] | None) -> Position | None:
        return None if record is None else Position(**record)
