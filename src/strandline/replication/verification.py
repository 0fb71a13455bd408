"""Whether a copy equals its source, and the comparison by checksums of ranges, then row by row where those differ.

Where the copy's own system computes signatures (`targets/range_checksums.py`), only checksums travel, and the rows of
ranges that differ. Elsewhere the copy's file is read here, twice and a batch at a time: rows go into ranges by the
leading bits of a signature of what identifies them (the key, or the whole row), a range's checksum is the sum of its
rows' signatures modulo 2¹²⁸, and only the rows of ranges whose checksums differ are held and compared. Their
differential is what mends the copy. Copies whose rows stand at addresses are compared by these, without holding rows:
see `senders/annotated/verification.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.changes import COUNT as CHANGES_COUNT
from strandline.changes import COUNTED, ChangeSet, Header, difference, empty, keyed_header
from strandline.errors import Damaged, StorageError
from strandline.replication.definition import COUNT, SIGNATURE, CopyDefinition, signed
from strandline.replication.targets import DIGITS, CopyTarget, RangeChecksums
from strandline.values import Words, cast_rows, no_rows, plain_schema, row_signatures, scheme_of
from strandline.views import ContentChecksum

RANGES = 256


@dataclass(frozen=True)
class Verification:
    """How a copy compares with what it should hold: `rows` of them.

    `ranges` were compared, and `differing_ranges` of them differ; `read` rows of the copy were read here. `misplaced`
    counted rows stand under the signature of another row: they were edited there. `addresses` names some of the
    differing rows of a base's copy. `damaged` says what of the copy could not be read or does not belong there; rows
    were not compared then.
    """

    rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    ranges: int = 0
    differing_ranges: int = 0
    read: int = 0
    misplaced: int = 0
    repaired: bool = False
    addresses: tuple[int, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the copy holds just what it should."""
        return not (self.missing or self.extra or self.different or self.damaged)

    def __bool__(self) -> bool:
        return self.equal


@dataclass(frozen=True)
class CopyDifference:
    """How a copy compares with the rows that it should hold, and the changes that make it hold them."""

    verification: Verification
    changes: ChangeSet

    @property
    def mends(self) -> bool:
        """Whether there is anything to mend."""
        return bool(len(self.changes) or self.verification.misplaced)


def compare(definition: CopyDefinition, replica: CopyTarget, wanted: pa.Table) -> CopyDifference:
    """The copy against the rows that it should hold."""
    mine = cast_rows(wanted, definition.schema)
    checksums = replica.checksums()
    if checksums is None:
        verification, old, new = _read_here(definition, replica, mine)
    else:
        verification, old, new = _asked_there(definition, checksums, mine)
    if not verification.differing_ranges:
        return CopyDifference(verification, _nothing(definition))
    changes = difference(old, new, list(definition.key) or None)
    counts = changes.header.counts
    unlike = replace(verification, missing=counts.inserted, extra=counts.deleted, different=counts.updated)
    return CopyDifference(unlike, changes)


def verified(definition: CopyDefinition, replica: CopyTarget, wanted: pa.Table) -> Verification:
    """The comparison, or what of the copy stands in its way."""
    damaged = tuple(replica.damage())
    try:
        return (
            Verification(len(wanted), damaged=damaged) if damaged else compare(definition, replica, wanted).verification
        )
    except Damaged as error:
        return Verification(len(wanted), damaged=(error.why,))


def mended(definition: CopyDefinition, replica: CopyTarget, wanted: pa.Table) -> CopyDifference:
    """The same comparison with what is left of the copy once what can't be read is left out."""
    if not replica.damage():
        with suppress(Damaged, StorageError):
            return compare(definition, replica, wanted)
    replica.mend()
    return compare(definition, replica, wanted)


CHECKED_ROWS = 20_000
"""Copies of at most so many rows are read after every refresh, and their checksum is compared."""


def content_checksum(schema: pa.Schema, rows: pa.Table, before: ContentChecksum | None = None) -> ContentChecksum:
    """The checksum of rows, or, with `before`, that of a content once they are added to it; rows may have `_count`."""
    schema = plain_schema(schema)
    words = row_signatures(cast_rows(rows.select(schema.names), schema), scheme_of(schema, bits=128))
    limbs, start = _limbs(np.asarray(words, dtype=np.uint64)), before or ContentChecksum(0, "0" * 32)
    if CHANGES_COUNT not in rows.column_names:
        held, total = len(rows), _sum(limbs)
    else:
        counts = np.asarray(rows.column(CHANGES_COUNT), dtype=np.int64)
        each = [int(count) for count in np.unique(counts)]
        held, total = int(counts.sum()), sum(count * _sum(limbs[counts == count]) for count in each)
    return ContentChecksum(start.rows + held, f"{(int(start.sum, 16) + total) % 2**128:032x}")


def _sum(limbs: Words) -> int:
    return sum(int(limb) << 32 * place for place, limb in enumerate(limbs.sum(axis=0)))


def unequal(replica: CopyTarget, definition: CopyDefinition, wanted: ContentChecksum, held: int) -> str:
    """In what a copy of `held` rows is unequal to what it should hold, as far as that is cheap to say; or nothing."""
    if held != wanted.rows:
        return f"the copy is unequal to its view: it holds {held:,} rows, and should hold {wanted.rows:,}"
    if held > CHECKED_ROWS:
        return ""
    there = ContentChecksum(0, "0" * 32)
    for stored in _tables(definition, replica.rows()):
        there = content_checksum(definition.schema, _expanded(definition, stored), there)
    return "" if there == wanted else "the copy is unequal to its view: its checksum differs"


_Compared = tuple[Verification, pa.Table, pa.Table]
"""What is known of the ranges, and the rows of those that differ: the copy's, and those that it should hold."""


def _read_here(definition: CopyDefinition, replica: CopyTarget, mine: pa.Table) -> _Compared:
    here = _by_range(mine, definition)
    theirs, count, misplaced = np.zeros((RANGES, 4), dtype=np.uint64), 0, 0
    for stored in _tables(definition, replica.rows()):
        rows = _expanded(definition, stored)
        theirs += _by_range(rows, definition).sums
        count += len(rows)
        misplaced += _misplaced(definition, stored)
    unlike = np.flatnonzero(np.any(_carried(theirs) != _carried(here.sums), axis=1))
    verification = Verification(len(mine), ranges=RANGES, differing_ranges=len(unlike), read=count, misplaced=misplaced)
    old = [no_rows(definition.schema)]
    if len(unlike):
        for stored in _tables(definition, replica.rows()):
            rows = _expanded(definition, stored)
            old.append(rows.filter(pa.array(np.isin(_by_range(rows, definition).ranges, unlike))))
    return verification, pa.concat_tables(old), mine.filter(pa.array(np.isin(here.ranges, unlike)))


def _asked_there(definition: CopyDefinition, checksums: RangeChecksums, mine: pa.Table) -> _Compared:
    stored = mine
    if definition.form == COUNTED:
        stored = signed(definition, mine.append_column(COUNT, pa.array(np.ones(len(mine), dtype=np.int64))))
    ranges, here = checksums.of(stored)
    there = checksums.sums()
    unlike = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    batches = checksums.rows(unlike) if unlike else iter(())
    held = pa.concat_tables([no_rows(definition.stored), *_tables(definition, batches)])
    old = _expanded(definition, held)
    new = _expanded(definition, stored.filter(pa.array(np.isin(ranges, unlike))) if unlike else stored.slice(0, 0))
    verification = Verification(len(mine), ranges=16**DIGITS, differing_ranges=len(unlike), read=len(old))
    return replace(verification, misplaced=_misplaced(definition, held)), old, new


def _tables(definition: CopyDefinition, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_batches([batch], schema=definition.stored)


def _misplaced(definition: CopyDefinition, stored: pa.Table) -> int:
    if definition.form != COUNTED or not len(stored):
        return 0
    words = row_signatures(stored.select(definition.schema.names), scheme_of(definition.schema, bits=128))
    right = np.array([f"{high:016x}{low:016x}" for low, high in words.tolist()])
    standing = np.array(stored.column(SIGNATURE).to_pylist())
    return int(np.count_nonzero((right != standing) | (np.asarray(stored.column(COUNT), dtype=np.int64) < 1)))


def _expanded(definition: CopyDefinition, stored: pa.Table) -> pa.Table:
    """The rows that users of a copy see."""
    if definition.form == COUNTED:
        counts = np.maximum(np.asarray(stored.column(COUNT), dtype=np.int64), 0)
        stored = stored.take(pa.array(np.repeat(np.arange(len(stored)), counts)))
    return stored.select(definition.schema.names)


@dataclass(frozen=True)
class _Ranges:
    ranges: npt.NDArray[np.int64]
    sums: Words


def _by_range(rows: pa.Table, definition: CopyDefinition) -> _Ranges:
    words = np.asarray(row_signatures(rows, scheme_of(definition.schema, bits=128)), dtype=np.uint64)
    names = list(definition.key) or definition.schema.names
    keyed = pa.schema([definition.schema.field(name) for name in names])
    identity = row_signatures(rows.select(names), scheme_of(keyed, bits=128)) if definition.key else words
    ranges = (np.asarray(identity, dtype=np.uint64)[:, 0] % np.uint64(RANGES)).astype(np.int64)
    sums = np.zeros((RANGES, 4), dtype=np.uint64)
    np.add.at(sums, ranges, _limbs(words))
    return _Ranges(ranges, sums)


def _limbs(words: Words) -> Words:
    """128-bit numbers in four 32-bit limbs, to be summed so that no carry is lost: each limb's sum stays far below
    2⁶⁴.
    """
    return np.stack([words[:, 0] & 0xFFFFFFFF, words[:, 0] >> 32, words[:, 1] & 0xFFFFFFFF, words[:, 1] >> 32], axis=1)


def _carried(sums: Words) -> Words:
    """Sums of limbs as a number modulo 2¹²⁸."""
    sums = sums.copy()
    for limb in range(3):
        sums[:, limb + 1] += sums[:, limb] >> np.uint64(32)
    return sums & np.uint64(0xFFFFFFFF)


def _nothing(definition: CopyDefinition) -> ChangeSet:
    if definition.key:
        return empty(keyed_header(definition.schema, definition.schema, definition.key))
    return empty(Header(COUNTED, definition.schema, definition.schema))
