"""Whether a copy equals its view: checksums by range, then the ranges that differ row by row.

Rows go into ranges by the leading bits of a signature of what identifies them (the key, or the whole row); a range's
checksum is the sum of its rows' signatures modulo 2¹²⁸. Only the rows of ranges whose checksums differ are compared,
and their differential is what mends the copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.changes.difference import difference
from strandline.changes.shape import COUNTED, ChangeSet, Header, empty, keyed_header
from strandline.relations.encoding import restore
from strandline.relations.signature import row_signatures, scheme_of
from strandline.replicas import Definition, Replica
from strandline.replicas.definition import COUNT

RANGES = 256
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Verification:
    """How a copy compares with its view at the position that it stands at."""

    rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    ranges: int = RANGES
    differing_ranges: int = 0
    repaired: bool = False

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def __bool__(self) -> bool:
        return self.equal


def compare(definition: Definition, replica: Replica, wanted: pa.Table) -> tuple[Verification, ChangeSet]:
    """How the copy compares with the rows that it should hold, and the changes that make it hold them."""
    mine = restore(wanted, definition.schema)
    theirs = stored_rows(definition, replica)
    sides = [_by_range(rows, definition) for rows in (theirs, mine)]
    unlike = np.flatnonzero(np.any(sides[0].sums != sides[1].sums, axis=1))
    if not len(unlike):
        return Verification(len(mine)), _nothing(definition)
    old, new = (
        rows.filter(pa.array(np.isin(side.ranges, unlike))) for rows, side in zip((theirs, mine), sides, strict=True)
    )
    found = difference(old, new, list(definition.key) or None)
    counts = found.header.counts
    told = Verification(len(mine), counts.inserted, counts.deleted, counts.updated, differing_ranges=len(unlike))
    return told, found


def stored_rows(definition: Definition, replica: Replica) -> pa.Table:
    """The rows that users of a copy see."""
    held = pa.Table.from_batches(replica.rows(), schema=definition.stored)
    if definition.form == COUNTED:
        counts = np.asarray(held.column(COUNT), dtype=np.int64)
        held = held.take(pa.array(np.repeat(np.arange(len(held)), counts)))
    return held.select(definition.schema.names)


@dataclass(frozen=True)
class _Ranges:
    ranges: npt.NDArray[np.int64]
    sums: Words


def _by_range(rows: pa.Table, definition: Definition) -> _Ranges:
    words = np.asarray(row_signatures(rows, scheme_of(definition.schema, bits=128)), dtype=np.uint64)
    names = list(definition.key) or definition.schema.names
    keyed = pa.schema([definition.schema.field(name) for name in names])
    identity = row_signatures(rows.select(names), scheme_of(keyed, bits=128)) if definition.key else words
    ranges = (np.asarray(identity, dtype=np.uint64)[:, 0] % np.uint64(RANGES)).astype(np.int64)
    # 128-bit sums in four 32-bit limbs, so that no carry is lost: each limb's sum stays far below 2⁶⁴.
    limbs = np.stack([words[:, 0] & 0xFFFFFFFF, words[:, 0] >> 32, words[:, 1] & 0xFFFFFFFF, words[:, 1] >> 32], axis=1)
    sums = np.zeros((RANGES, 4), dtype=np.uint64)
    np.add.at(sums, ranges, limbs)
    for limb in range(3):
        sums[:, limb + 1] += sums[:, limb] >> 32
    return _Ranges(ranges, (sums & np.uint64(0xFFFFFFFF)).astype(np.uint64))


def _nothing(definition: Definition) -> ChangeSet:
    if definition.key:
        return empty(keyed_header(definition.schema, definition.schema, definition.key))
    return empty(Header(COUNTED, definition.schema, definition.schema))
