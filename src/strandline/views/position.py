"""Where a copy stands: (store, lineage, version, fingerprint of the view, commit number, commit id).

The id is that of the commit itself, as the version's pointer records it.

Two histories that reach the same commit number differ in the rest: a store that was restored has an identity of its
own, and so has a branch; a folder that was copied and went on apart differs in the id of the commit. A message leads
from one position to the next and applies only where the copy is at the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.replicas import Position as Place


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

    def place(self) -> Place:
        """The position as a copy records it."""
        rest = [self.store, self.lineage, self.version, self.view, self.id]
        return Place(self.commit, json.dumps(rest))

    @staticmethod
    def of(place: Place) -> Position | None:
        """The position that a copy recorded; None if it is not one of a view, or no difference may start from it."""
        if not place.anchored:
            return None
        try:
            store, lineage, version, view, id_ = json.loads(place.token)
        except (ValueError, TypeError):
            return None
        return Position(store, lineage, version, view, place.time, id_)
