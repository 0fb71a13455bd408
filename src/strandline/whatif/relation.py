"""A what-if at a state as a `Relation`: each part is a run of the base's pages with every D's tuples for it.

A part is a scan of the format `what-if`. It names a state, a what-if, a scan time and a range of keys; reading it, here
or on a Spark worker, opens the pages of the base and of each differential relation that correspond to the range, and
the ids of each whole D (section 4.4). Whoever holds the relation keeps its states from being freed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from strandline.pages import Entry, Snapshot, State, View
from strandline.relations import Part, Scan
from strandline.relations.read import register_reader
from strandline.tables import PageCache
from strandline.tables.key_bounds import ALL, KeyBounds
from strandline.tables.relation import key_column_bounds, release_with
from strandline.tables.worker_storage import objects_of
from strandline.whatif.catalogue import chain_of
from strandline.whatif.placing import place_of
from strandline.whatif.planning import Span
from strandline.whatif.reading import Key, WhatIfReader

FORMAT = "what-if"

PART_BYTES = 4 << 20
"""Neighbouring pages of the base go together up to about so many bytes: a page of D covers several of them."""

_KEPT_BYTES = 64 << 20
_KEPT_READERS = 8


@dataclass(frozen=True, eq=False)
class WhatIfRelation:
    """See the module; `relations.Relation`."""

    name: str
    schema: pa.Schema
    reader: WhatIfReader
    store: str
    bounds: KeyBounds = ALL

    @property
    def bytes(self) -> int:
        return self.reader.bytes_within(self.bounds)

    @property
    def rows(self) -> None:
        """Nobody knows without reading them."""
        return None

    def parts(self, columns: Sequence[str] | None = None) -> list[Part]:
        options = {
            "module": __name__,
            "store": self.store,
            "name": self.name,
            "scan": self.reader.scan,
            "state": self.reader.view.state.to_json(),
            "base": self.reader.base_view.state.to_json(),
        }
        return [self._part(span, entries, options) for span, entries in self._spans()]

    def _part(self, span: Span, entries: Sequence[Entry], options: dict[str, Any]) -> Part:
        levels = [self.reader.differential(one).entries(span.bounds)[0] for one in self.reader.chain.definitions]
        size = sum(_size(entry) for entry in (*entries, *(page for pages in levels for page in pages)))
        here = {**options, "low": span.low.hex(), "high": None if span.high is None else span.high.hex()}
        scan = Scan(FORMAT, f"{self.store}/{self.name}/{span.low.hex()}", self.schema, options=here, bytes=size)
        rows = sum(entry.rows for entry in entries)
        return Part(scan, rows, size, key_column_bounds(self._ends(span, entries, levels), self.reader.record))

    def _ends(
        self, span: Span, entries: Sequence[Entry], levels: Sequence[Sequence[Entry]]
    ) -> tuple[Key | None, Key | None]:
        """The least and greatest key that a part may hold (both inclusive); pages of D reach beyond it."""
        if not self.reader.record.key:
            return None, None
        ends = [(entry.least, entry.greatest) for entry in entries]
        for pages, definition in zip(levels, self.reader.chain.definitions, strict=True):
            types = self.reader.differential(definition).key_types
            ends += [(place_of(entry.least, types), place_of(entry.greatest, types)) for entry in pages]
        least = [end for end, _ in ends if end is not None]
        greatest = [end for _, end in ends if end is not None]
        if not least or not greatest:
            return None, None
        return max(min(least), span.low), max(greatest) if span.high is None else min(max(greatest), span.high)

    def _spans(self) -> Iterator[tuple[Span, list[Entry]]]:
        """Runs of neighbouring pages of the base."""
        pages = list(self.reader.base_pages(self.bounds))
        group: list[Entry] = []
        low, size = b"", 0
        for place, (separator, entry) in enumerate(pages):
            if not group:
                low = separator
            group.append(entry)
            size += _size(entry)
            last = place + 1 == len(pages)
            if size >= PART_BYTES or last:
                yield Span(low, self.reader.next_separator(separator) if last else pages[place + 1][0]), group
                group, size = [], 0


def what_if_relation(reader: WhatIfReader, store: str, snapshots: Sequence[Snapshot] = ()) -> WhatIfRelation:
    """A what-if at a state. The relation takes snapshots over and closes them when it is no longer used itself."""
    plain = pa.schema([pa.field(name, reader.record.schema.field(name).type) for name in reader.record.shown])
    for snapshot in snapshots:
        release_with(reader, snapshot)
    return WhatIfRelation(reader.chain.top.name, plain, reader, store)


def relation_of(view: View, cache: PageCache, name: str, store: str, scan: int | None = None) -> WhatIfRelation:
    """A what-if as a state has it, or at an earlier scan time; the state must stay readable meanwhile."""
    chain = chain_of(view, cache, name)
    reader = WhatIfReader(chain, view, cache, scan=int(view.commit) if scan is None else scan)
    return what_if_relation(reader, store)


def read_range(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in order of the key."""
    options = scan.options
    states = json.dumps([options["state"], options["base"]])
    reader = _opened(options["store"], options["name"], options["scan"], states)
    high = options["high"]
    span = Span(bytes.fromhex(options["low"]), None if high is None else bytes.fromhex(high))
    yield from reader.rows_within(span, columns).to_batches(max_chunksize=batch_rows)


register_reader(FORMAT, read_range)


@lru_cache(maxsize=_KEPT_READERS)
def _opened(store: str, name: str, scan: int, states: str) -> WhatIfReader:
    """A what-if at a state: what its parts share (definitions, ids, pages of D) is read once by each process."""
    objects, cache = objects_of(store), PageCache(_KEPT_BYTES)
    view, base = (View(State.from_json(state), objects) for state in json.loads(states))
    return WhatIfReader(chain_of(view, cache, name), view, cache, scan=scan, base_view=base)


def _size(entry: Entry) -> int:
    return sum(page.size for page in entry.pages)
