"""Objects in memory: alone, or over another storage; and those of any kind that were used last.

`MemoryStorage` is the seam without anything durable. `OverlayStorage` keeps what is written in memory and reads
through to the storage below: for temporary versions, whose changes are not flushed until they are made permanent.
Names are never used twice, so an object is in one place only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from strandline.errors import AlreadyExists, NotFound
from strandline.storage.seam import Storage, Stored, Token, checked_name, require_auditing, swap_lost, token_of

T = TypeVar("T")


class MemoryStorage(Storage):
    """The seam's promises, without anything durable."""

    url = "memory:"

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self.objects: dict[str, bytes] = dict(objects or {})
        self._mutex = threading.Lock()

    def get(self, name: str) -> bytes:
        try:
            return self.objects[checked_name(name)]
        except KeyError:
            raise NotFound(f"{name} is not there", doing=f"reading {name}") from None

    def get_with_token(self, name: str) -> Stored:
        value = self.get(name)
        return Stored(value, token_of(value))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    def put_if_absent(self, name: str, value: bytes) -> None:
        with self._mutex:
            if checked_name(name) in self.objects:
                raise AlreadyExists(f"{name} exists already", doing=f"writing {name}")
            self.objects[name] = bytes(value)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        for name, value in objects.items():
            self.put_if_absent(name, value)

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        with self._mutex:
            current = self.objects.get(checked_name(name))
            if (None if current is None else token_of(current)) != expected:
                raise swap_lost(name)
            self.objects[name] = bytes(value)
            return token_of(value)

    def delete(self, name: str) -> None:
        with self._mutex:
            self.objects.pop(checked_name(name), None)

    def list(self, prefix: str) -> Iterator[str]:
        require_auditing()
        return iter(sorted(name for name in self.objects if name.startswith(prefix)))


class OverlayStorage(Storage):
    """Writes stay in memory; a delete of what is not there goes below: pages that workers wrote for this process."""

    def __init__(self, below: Storage) -> None:
        self.below = below
        self.url = below.url
        self.memory = MemoryStorage()

    def get(self, name: str) -> bytes:
        try:
            return self.memory.get(name)
        except NotFound:
            return self.below.get(name)

    def get_with_token(self, name: str) -> Stored:
        try:
            return self.memory.get_with_token(name)
        except NotFound:
            return self.below.get_with_token(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        try:
            return self.memory.get_range(name, start, length)
        except NotFound:
            return self.below.get_range(name, start, length)

    def put_if_absent(self, name: str, value: bytes) -> None:
        self.memory.put_if_absent(name, value)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        self.memory.put_all(objects)

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        return self.memory.compare_and_swap(name, expected, value)

    def delete(self, name: str) -> None:
        if name in self.memory.objects:
            self.memory.delete(name)
        else:
            self.below.delete(name)

    def list(self, prefix: str) -> Iterator[str]:
        yield from self.memory.list(prefix)
        yield from self.below.list(prefix)


class Recent(Generic[T]):
    """A cache, the one for pages, objects and packs: values of so many bytes, or so many values, the least recently
    used going first. Safe for many threads.
    """

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
