"""Figures 3 and 7 over ranges of addresses, vectorised: the same algorithm for any annotated relation.

The pass over the base is cut into ranges of addresses. What one range needs to know of those before it is small: the
last address, the last one that was not newly inserted, the last qualified one, and whether a deletion is pending after
that. `survey` learns what each range adds to this by reading the annotations alone, the driver carries it from range
to range, and `refresh_range` does the work with what was carried in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes.parts import write_part
from strandline.detect.annotated.names import ADDRESS, PREVIOUS, TIME, VALUED
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.relations import Scan, read_scan
from strandline.relations.expressions import Condition

Addresses = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Carry:
    """The variables of the pseudo code as one range leaves them to the next."""

    last_addr: int
    expect_prev: int
    last_qual: int
    deletion: bool = False


@dataclass(frozen=True)
class Survey:
    """What a range adds. `pending` is its `Deletion` at the end, its first old entry's chain taken for whole;
    `first_counts` says whether that entry, should its chain be broken, would raise it."""

    last_addr: int | None
    last_kept: int | None
    last_qual: int | None
    pending: bool
    first_kept_previous: int | None
    first_counts: bool


def carried(carry: Carry, survey: Survey) -> Carry:
    """The variables after a range."""
    broken = survey.first_kept_previous is not None and survey.first_kept_previous != carry.expect_prev
    return Carry(
        last_addr=_or(survey.last_addr, carry.last_addr),
        expect_prev=_or(survey.last_kept, carry.expect_prev),
        last_qual=_or(survey.last_qual, carry.last_qual),
        deletion=survey.pending or (broken and survey.first_counts) or (survey.last_qual is None and carry.deletion),
    )


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


@dataclass(frozen=True)
class Entries:
    """The annotations of a range in address order, and which entries qualify; `new` and `null` mark NULLs."""

    address: Addresses
    previous: Addresses
    time: Addresses
    new: Flags
    null: Flags
    qualified: Flags


@dataclass(frozen=True)
class Passed:
    """A range after the pass: its annotations, which entries are sent, and with which LastQual."""

    previous: Addresses
    time: Addresses
    sent: Flags
    last_qual: Addresses


def pass_range(entries: Entries, carry: Carry, snap_time: int, now: int) -> Passed:
    """Fix-up and refresh of one range."""
    address, qualified = entries.address, entries.qualified
    expect_prev = before(np.where(~entries.new, address, carry.expect_prev), carry.expect_prev)
    broken = ~entries.new & (entries.previous != expect_prev)
    time = np.where(entries.new | entries.null | broken, now, entries.time)
    changed = time > snap_time
    last_qual = before(np.where(qualified, address, carry.last_qual), carry.last_qual)
    # A deletion that is pending already counts as one just above the last qualified address.
    floor = carry.last_qual + 1 if carry.deletion else carry.last_qual
    last_deletion = before(np.where(~qualified & changed, address, floor), floor)
    sent = qualified & (changed | (last_deletion > last_qual))
    previous = np.concatenate([np.array([carry.last_addr], dtype=np.int64), address[:-1]])
    return Passed(previous, time, sent, last_qual)


def before(values: Addresses, first: int) -> Addresses:
    """For each entry the greatest of the values before it."""
    if not len(values):
        return values
    running = np.maximum.accumulate(values)
    return np.concatenate([np.array([first], dtype=np.int64), running[:-1]])


def survey_range(entries: Entries, snap_time: int, now: int) -> Survey:
    """What the range adds to the carry, from its annotations alone."""

    def deletion(whole: Carry) -> Flags:
        return (pass_range(entries, whole, snap_time, now).time > snap_time) & ~entries.qualified

    return survey_of(entries, deletion)


def survey_of(entries: Entries, deletion: Callable[[Carry], Flags]) -> Survey:
    """The same for any algorithm: `deletion` says which entries raise Deletion, given what is before the range."""
    address = entries.address
    kept = np.flatnonzero(~entries.new)
    qualified = np.flatnonzero(entries.qualified)
    after = int(qualified[-1]) if len(qualified) else -1
    first_previous = int(entries.previous[kept[0]]) if len(kept) else None
    start = int(address[0]) - 1 if len(address) else 0
    whole = Carry(start, first_previous if first_previous is not None else start, start)
    raised = deletion(whole) if len(address) else np.zeros(0, dtype=np.bool_)
    return Survey(
        last_addr=int(address[-1]) if len(address) else None,
        last_kept=int(address[kept[-1]]) if len(kept) else None,
        last_qual=int(address[after]) if after >= 0 else None,
        pending=bool(raised[after + 1 :].any()),
        first_kept_previous=first_previous,
        first_counts=bool(len(kept) and kept[0] > after and not entries.qualified[kept[0]]),
    )


@kernel
def survey(item: WorkItem, attempt: Attempt) -> Result:
    """Reads a range's annotations; writes nothing."""
    table = read_entries(item, [])
    return {**asdict(survey_range(entries_of(table, item), item["snap_time"], item["now"])), "rows_read": len(table)}


@kernel
def refresh_range(item: WorkItem, attempt: Attempt) -> Result:
    """The messages and the new annotations of a range, as two part files."""
    table = read_entries(item, item["columns"])
    entries = entries_of(table, item)
    passed = pass_range(entries, Carry(**item["carry"]), item["snap_time"], item["now"])
    chosen = pa.array(np.flatnonzero(passed.sent))
    sent = {
        ADDRESS: pa.array(entries.address).take(chosen),
        PREVIOUS: pa.array(passed.last_qual).take(chosen),
        VALUED: pa.array(np.ones(len(chosen), dtype=np.bool_)),
        **{name: table.column(name).take(chosen) for name in item["columns"]},
    }
    touched = entries.new | entries.null | (passed.previous != entries.previous) | (passed.time != entries.time)
    moved = pa.array(np.flatnonzero(touched))
    fixed = {
        ADDRESS: pa.array(entries.address).take(moved),
        PREVIOUS: pa.array(passed.previous).take(moved),
        TIME: pa.array(passed.time).take(moved),
    }
    paths = {"messages": attempt.path("messages.parquet"), "fixed": attempt.path("fixed.parquet")}
    write_part(pa.table(sent), paths["messages"])
    write_part(pa.table(fixed), paths["fixed"])
    return {**paths, "rows_read": len(table)}


def read_entries(item: WorkItem, columns: list[str]) -> pa.Table:
    """The range's rows in address order: of each scan, those above `above` and up to `upto`."""
    names: Mapping[str, str] = item["names"]
    conditions = [*item["condition_columns"], *(name for _, _, read in item["restrictions"] for name in read)]
    wanted = list(dict.fromkeys([*names.values(), *conditions, *columns]))
    tables = []
    for record in item["scans"]:
        scan = Scan.from_json(record)
        rows = pa.Table.from_batches(read_scan(scan, wanted), schema=pa.schema([scan.schema.field(n) for n in wanted]))
        address = rows.column(names["address"])
        inside = pc.and_(pc.greater(address, item["above"]), pc.less_equal(address, item["upto"]))
        tables.append(rows.filter(inside))
    return pa.concat_tables(tables).sort_by(names["address"])


def entries_of(table: pa.Table, item: WorkItem) -> Entries:
    names: Mapping[str, str] = item["names"]
    previous, time = table.column(names["previous"]), table.column(names["time"])
    return Entries(
        address=integers(table.column(names["address"])),
        previous=integers(previous.fill_null(0)),
        time=integers(time.fill_null(0)),
        new=np.asarray(previous.is_null(), dtype=bool),
        null=np.asarray(time.is_null(), dtype=bool),
        qualified=qualified_by(table, item["condition"], item["condition_columns"]),
    )


def qualified_by(table: pa.Table, sql: str | None, columns: Sequence[str]) -> Flags:
    """Which rows satisfy a condition; all without one."""
    if sql is None:
        return np.ones(len(table), dtype=np.bool_)
    return np.asarray(Condition(sql, tuple(columns)).mask(table), dtype=np.bool_)


def integers(column: Any) -> Addresses:
    return np.asarray(column.cast(pa.int64()), dtype=np.int64)
