"""What was used last is kept in memory: one cache for pages, objects and packs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values of so many bytes, or so many values, the least recently used going first. Safe for many threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._size = 0
        self._mutex = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._mutex:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: T, size: int = 1) -> None:
        """The last one stays, however large it is."""
        with self._mutex:
            self._size += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = (value, size)
            while self._size > self.limit and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1][1]

    def drop(self, key: Hashable) -> None:
        with self._mutex:
            self._size -= self._kept.pop(key, (None, 0))[1]

    def keys(self) -> list[Hashable]:
        """The keys, the least recently used first."""
        with self._mutex:
            return list(self._kept)

    def clear(self) -> None:
        with self._mutex:
            self._kept.clear()
            self._size = 0
