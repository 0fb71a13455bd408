"""The improved algorithm over ranges of addresses, vectorised: `marked.py` for any relation with the four fields.

The frame is that of `kernels.py`, and so is what one range leaves to the next: `Deletion` is raised by a gap, or by a
changed, unqualified entry that the snapshot may hold, and only those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from strandline.changes.parts import write_part
from strandline.detect.annotated.kernels import (
    Addresses,
    Carry,
    Entries,
    Flags,
    Survey,
    before,
    entries_of,
    integers,
    qualified_by,
    read_entries,
    survey_of,
)
from strandline.detect.annotated.names import ADDRESS, GAP, PREVIOUS, TIME, UNHELD, VALUED
from strandline.engine import Attempt, Result, WorkItem, kernel


@dataclass(frozen=True)
class Marks:
    """The two more fields. A gap of 0 is NULL; `unknown` says where the bits are."""

    gap: Addresses
    unheld: Addresses
    unknown: Flags


@dataclass(frozen=True)
class Asked:
    """What a snapshot asks. Without a `bit` it may hold any entry; `refreshing` is the bit that fix-up brings up to
    date. `unqualified` says for the bit of each snapshot which entries do not qualify for it."""

    snap_time: int
    now: int
    bit: int | None
    refreshing: int | None
    unqualified: Mapping[int, Flags]


@dataclass(frozen=True)
class MarkedPassed:
    """A range after the pass. `valued`: the entry goes with its value; other sent ones are merely named."""

    previous: Addresses
    time: Addresses
    gap: Addresses
    unheld: Addresses
    unknown: Flags
    touched: Flags
    deletion: Flags
    sent: Flags
    valued: Flags
    last_qual: Addresses


def marked_pass(entries: Entries, marks: Marks, carry: Carry, asked: Asked) -> MarkedPassed:
    """Fix-up and refresh of one range."""
    address, qualified, now = entries.address, entries.qualified, asked.now
    expect_prev = before(np.where(~entries.new, address, carry.expect_prev), carry.expect_prev)
    emptied = ~entries.new & (entries.previous != expect_prev)
    written = entries.new | entries.null
    time = np.where(written, now, entries.time)
    gap = np.where(entries.new, 0, np.where(emptied, now, marks.gap))
    valued = time > asked.snap_time
    deletion = (gap > asked.snap_time) | (~qualified & valued & _held(entries, marks, asked.bit))
    last_qual = before(np.where(qualified, address, carry.last_qual), carry.last_qual)
    # A deletion that is pending already counts as one just above the last qualified address.
    floor = carry.last_qual + 1 if carry.deletion else carry.last_qual
    pending = np.maximum.accumulate(np.where(deletion, address, floor)) > last_qual if len(address) else deletion
    previous = np.concatenate([np.array([carry.last_addr], dtype=np.int64), address[:-1]])[: len(address)]
    return MarkedPassed(
        previous=previous,
        time=time,
        gap=gap,
        unheld=np.where(written, _bits(entries, marks, asked), marks.unheld),
        unknown=marks.unknown & ~written,
        touched=written | emptied | (entries.previous != previous),
        deletion=deletion,
        sent=qualified & (valued | pending),
        valued=valued,
        last_qual=last_qual,
    )


def _held(entries: Entries, marks: Marks, bit: int | None) -> Flags:
    """What the snapshot may hold, as its bit said before this fix-up."""
    if bit is None:
        return np.ones(len(entries.address), dtype=np.bool_)
    held: Flags = ~entries.new & ((marks.unheld >> bit) & 1 == 0)
    return held


def _bits(entries: Entries, marks: Marks, asked: Asked) -> Addresses:
    """An inserted entry is held by nobody: what stood at its address before is covered by a gap behind it."""
    known = np.where(entries.new, -1, marks.unheld)
    found = np.zeros(len(known), dtype=np.int64)
    for bit, unqualified in asked.unqualified.items():
        unheld = unqualified if bit == asked.refreshing else unqualified & ((known >> bit) & 1 == 1)
        found |= np.where(unheld, np.int64(1) << np.int64(bit), 0)
    return found


def marked_survey(entries: Entries, marks: Marks, asked: Asked) -> Survey:
    """What the range adds to the carry, its first old entry's chain taken for whole."""
    return survey_of(entries, lambda whole: marked_pass(entries, marks, whole, asked).deletion)


@kernel
def survey_marked(item: WorkItem, attempt: Attempt) -> Result:
    """Reads a range's annotations; writes nothing."""
    table = read_entries(item, [])
    found = marked_survey(entries_of(table, item), _marks(table, item), _asked(table, item))
    return {**asdict(found), "rows_read": len(table)}


@kernel
def refresh_marked(item: WorkItem, attempt: Attempt) -> Result:
    """The messages and the new annotations of a range, as two part files."""
    table = read_entries(item, item["columns"])
    entries = entries_of(table, item)
    passed = marked_pass(entries, _marks(table, item), Carry(**item["carry"]), _asked(table, item))
    chosen = np.flatnonzero(passed.sent)
    valued = passed.valued[chosen]
    given = pa.array(np.where(valued, chosen, 0), mask=~valued)  # a null place takes a null
    sent = {
        ADDRESS: pa.array(entries.address[chosen]),
        PREVIOUS: pa.array(passed.last_qual[chosen]),
        VALUED: pa.array(valued),
        **{name: table.column(name).combine_chunks().take(given) for name in item["columns"]},
    }
    moved = np.flatnonzero(passed.touched)
    gap = passed.gap[moved]
    fixed = {
        ADDRESS: pa.array(entries.address[moved]),
        PREVIOUS: pa.array(passed.previous[moved]),
        TIME: pa.array(passed.time[moved]),
        GAP: pa.array(gap, mask=gap == 0),
        UNHELD: pa.array(passed.unheld[moved], mask=passed.unknown[moved]),
    }
    paths = {"messages": attempt.path("messages.parquet"), "fixed": attempt.path("fixed.parquet")}
    write_part(pa.table(sent), paths["messages"])
    write_part(pa.table(fixed), paths["fixed"])
    return {**paths, "rows_read": len(table)}


def _marks(table: pa.Table, item: WorkItem) -> Marks:
    gap, unheld = (table.column(item["names"][name]) for name in ("gap", "unheld"))
    unknown = np.asarray(unheld.is_null(), dtype=bool)
    return Marks(integers(gap.fill_null(0)), integers(unheld.fill_null(0)), unknown)


def _asked(table: pa.Table, item: WorkItem) -> Asked:
    unqualified = {bit: ~qualified_by(table, sql, columns) for bit, sql, columns in item["restrictions"]}
    return Asked(item["snap_time"], item["now"], item["bit"], item["refreshing"], unqualified)
