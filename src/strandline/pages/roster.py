"""Lists that may grow long: a short tail inside the pointer, the rest on extension pages (section 3.5).

A record is a JSON list whose first element is a number by which ranges of records can be told apart.
Extension pages, called chunks, are immutable and written like nodes: a longer list never makes a commit
dearer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from strandline.pages.envelope import Json
from strandline.pages.ids import PhysicalPage

INLINE = 128
"""At most this many records stay inside the pointer."""
CHUNK = 1024
"""At most this many records go on one extension page."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """An extension page: `low` and `high` (both inclusive) bound its records' numbers."""

    name: PhysicalPage
    size: int
    checksum: str
    count: int
    low: int
    high: int


LoadChunk = Callable[[Chunk], Sequence[Json]]
WriteChunk = Callable[[Sequence[Json]], Chunk]


@dataclass(frozen=True, slots=True)
class Roster:
    """The records, oldest first: those of the chunks, then the inline ones."""

    inline: tuple[Json, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    def __len__(self) -> int:
        return len(self.inline) + sum(chunk.count for chunk in self.chunks)

    def records(self, load: LoadChunk) -> Iterator[Json]:
        """All records; each chunk is read when its turn comes."""
        for chunk in self.chunks:
            yield from load(chunk)
        yield from self.inline

    def extended(self, records: Sequence[Json], write: WriteChunk) -> Roster:
        """With more records at the end; the oldest inline ones move to chunks when there are too many."""
        inline, chunks = (*self.inline, *records), list(self.chunks)
        while len(inline) > INLINE:
            spilled = inline[: min(CHUNK, len(inline) - INLINE // 2)]
            chunks.append(write(spilled))
            inline = inline[len(spilled) :]
        return Roster(inline, tuple(chunks))

    def without(
        self, unwanted: Callable[[Json], bool], load: LoadChunk, write: WriteChunk
    ) -> tuple[Roster, list[Chunk]]:
        """Without some records, and the chunks that are no longer named. Untouched chunks are kept."""
        retired: list[Chunk] = []
        chunks: list[Chunk] = []
        for chunk in self.chunks:
            records = load(chunk)
            kept = [record for record in records if not unwanted(record)]
            if len(kept) == len(records):
                chunks.append(chunk)
                continue
            retired.append(chunk)
            if kept:
                chunks.append(write(kept))
        inline = tuple(record for record in self.inline if not unwanted(record))
        return replace(self, inline=inline, chunks=tuple(chunks)), retired

    def to_json(self) -> Json:
        """As stored in the pointer."""
        rows = [[c.name, c.size, c.checksum, c.count, c.low, c.high] for c in self.chunks]
        return [list(self.inline), rows]

    @staticmethod
    def from_json(body: Json) -> Roster:
        """The reverse of `to_json`."""
        return Roster(tuple(body[0]), tuple(Chunk(*row) for row in body[1]))
