"""The ids of a whole differential relation, kept beside it as bitmaps (section 4.3; the rule for restricted reads).

A read that is restricted by key opens a few pages of D, and must know the ids of all of it. While D fits on one page,
that page tells. Beyond, bitmaps are kept in a hidden table, cut into chunks, so that an update writes only the chunks
whose ids it adds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from strandline.pages import View
from strandline.tables import PageCache, TableReader, TableTransaction
from strandline.whatif.catalogue import IDS, Definition
from strandline.whatif.seen_ids import Bits, IdSet, SeenIds
from strandline.whatif.tuples import Numbers

CHUNK = 1 << 19
"""How many numbers one bitmap covers: 64 KiB."""

SCHEMA = pa.schema(
    [
        pa.field("what_if", pa.string()),
        pa.field("level", pa.int16()),
        pa.field("chunk", pa.int64()),
        pa.field("bits", pa.binary()),
    ]
)
KEY = ("what_if", "level", "chunk")


def indexed_ids(view: View, cache: PageCache, definition: Definition) -> SeenIds:
    """The ids that the index of a differential relation holds."""
    if view.find_domain(IDS) is None:
        return SeenIds()
    where = "what_if = :name"
    rows = TableReader(view, IDS, cache).to_arrow(None, where, {"name": definition.name})
    found: dict[int, list[IdSet]] = {}
    for row in rows.to_pylist():
        one = IdSet.from_bits(np.frombuffer(row["bits"], dtype=np.uint8), row["chunk"] * CHUNK)
        found.setdefault(row["level"], []).append(one)
    return SeenIds({level: IdSet.united(parts) for level, parts in found.items()})


def write_ids(tables: TableTransaction, definition: Definition, ids: SeenIds, *, anew: bool) -> None:
    """Put ids into the index, which holds nothing else then if `anew`."""
    where, params = "what_if = :name", {"name": definition.name}
    if anew:
        tables.delete(IDS, where=where, params=params)
    rows = []
    for level, one in ids.levels.items():
        numbers = one.numbers()
        for chunk in np.unique(numbers // CHUNK).tolist():
            inside = numbers[numbers // CHUNK == chunk] - chunk * CHUNK
            rows.append(_row(tables, definition, {"level": level, "chunk": chunk}, inside, anew=anew))
    if rows:
        tables.upsert(IDS, pa.Table.from_pylist(rows, schema=SCHEMA))


def _row(
    tables: TableTransaction, definition: Definition, place: Mapping[str, int], inside: Numbers, *, anew: bool
) -> dict[str, object]:
    flags = np.zeros(CHUNK, dtype=np.bool_)
    flags[inside] = True
    bits: Bits = np.packbits(flags, bitorder="little")
    if not anew:
        where = "what_if = :name AND level = :level AND chunk = :chunk"
        known = tables.to_arrow(IDS, where=where, params={"name": definition.name, **place})
        if len(known):
            old = np.frombuffer(known.column("bits")[0].as_py(), dtype=np.uint8)
            bits[: len(old)] |= old
    used = np.flatnonzero(bits)
    return {"what_if": definition.name, **place, "bits": bits[: int(used[-1]) + 1 if len(used) else 0].tobytes()}
