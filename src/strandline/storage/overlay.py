"""Memory over another storage: what is written stays in memory, what is read may come from below.

For temporary versions, whose changes are not flushed until they are made permanent. Names are never used twice, so an
object is in one place only. A delete of what is not in memory goes below: pages that workers wrote for this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.errors import NotFound
from strandline.storage.memory import MemoryStorage
from strandline.storage.seam import Storage, Stored, Token


class OverlayStorage:
    """See the module. Safe for many threads."""

    def __init__(self, below: Storage) -> None:
        self.below = below
        self.memory = MemoryStorage()

    @property
    def url(self) -> str:
        return self.below.url

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
