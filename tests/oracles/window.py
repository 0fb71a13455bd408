"""Algorithm 3.3 record by record, as figure 4 has it: the oracle for `window`, and the way to read it first.

The loop runs while *either* input buffer holds records, or the tail of the longer file would be lost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from strandline.differential.window.options import Kind, WindowOptions


@dataclass(frozen=True)
class Record:
    """⟨K, B⟩ with its place in the snapshot and its size in bytes."""

    key: Hashable
    body: Any
    position: int
    size: int


@dataclass
class AgingBuffer:
    """A hash table with an aging queue: without room, the oldest record (first in `queue`) is displaced."""

    limit: int
    used: int = 0
    queue: OrderedDict[int, Record] = field(default_factory=OrderedDict)
    table: dict[Hashable, deque[int]] = field(default_factory=dict)

    def take(self, key: Hashable) -> Record | None:
        """Remove and return the oldest record with the key."""
        waiting = self.table.get(key)
        return self._remove(waiting[0]) if waiting else None

    def put(self, record: Record) -> Iterator[Record]:
        """Add a record; yields those that it displaces."""
        while self.queue and self.used + record.size > self.limit:
            yield self._remove(next(iter(self.queue)))
        self.queue[record.position] = record
        self.table.setdefault(record.key, deque()).append(record.position)
        self.used += record.size

    def _remove(self, position: int) -> Record:
        record = self.queue.pop(position)
        waiting = self.table[record.key]
        waiting.remove(position)
        if not waiting:
            del self.table[record.key]
        self.used -= record.size
        return record


Message = tuple[Kind, Record | None, Record | None]


@dataclass
class Reference:
    """The messages, and the pairs that matched."""

    messages: list[Message] = field(default_factory=list)
    pairs: list[tuple[Record, Record]] = field(default_factory=list)

    def meet(self, old: Record, new: Record) -> None:
        self.pairs.append((old, new))
        if old.body != new.body:
            self.messages.append(("update", old, new))

    def delete(self, old: Record) -> None:
        self.messages.append(("delete", old, None))

    def insert(self, new: Record) -> None:
        self.messages.append(("insert", None, new))


def reference_window(old: Iterable[Record], new: Iterable[Record], options: WindowOptions) -> Reference:
    """Algorithm 3.3; the numbers are the paper's steps."""
    out = Reference()
    aging_1, aging_2 = AgingBuffer(options.aging_bytes), AgingBuffer(options.aging_bytes)
    file_1, file_2 = deque(old), deque(new)
    input_1 = _read(file_1, options.input_bytes)  # (1)
    input_2 = _read(file_2, options.input_bytes)  # (2)
    while input_1 or input_2:  # (3)
        input_1, input_2 = _match_inputs(input_1, input_2, out)  # (4)
        input_1 = [r for r in input_1 if not _met(aging_2.take(r.key), r, out, old_first=False)]  # (5)
        input_2 = [r for r in input_2 if not _met(aging_1.take(r.key), r, out, old_first=True)]  # (6)
        for record in input_1:  # (7)
            for displaced in aging_1.put(record):
                out.delete(displaced)
        for record in input_2:  # (8)
            for displaced in aging_2.put(record):
                out.insert(displaced)
        input_1 = _read(file_1, options.input_bytes)  # (9)
        input_2 = _read(file_2, options.input_bytes)  # (10)
    for record in aging_1.queue.values():  # (11)
        out.delete(record)
    for record in aging_2.queue.values():  # (12)
        out.insert(record)
    return out


def _read(file: deque[Record], room: int) -> list[Record]:
    """The next records that fit into an input buffer, at least one."""
    found: list[Record] = []
    while file and (not found or file[0].size <= room):
        record = file.popleft()
        room -= record.size
        found.append(record)
    return found


def _match_inputs(input_1: list[Record], input_2: list[Record], out: Reference) -> tuple[list[Record], list[Record]]:
    remaining_1 = []
    remaining_2 = list(input_2)
    for old in input_1:
        new = next((record for record in remaining_2 if record.key == old.key), None)
        if new is None:
            remaining_1.append(old)
        else:
            remaining_2.remove(new)
            out.meet(old, new)
    return remaining_1, remaining_2


def _met(aged: Record | None, record: Record, out: Reference, *, old_first: bool) -> bool:
    if aged is None:
        return False
    if old_first:
        out.meet(aged, record)
    else:
        out.meet(record, aged)
    return True
