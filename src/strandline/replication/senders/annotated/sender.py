"""Copies of annotated base tables, refreshed by the differential algorithm (Lindsay, Haas, Mohan, Pirahesh and Wilms).

What the base knows of a copy is in its database, beside the base: where it stands (`taken`), what was last offered to
it, and how many rows it holds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from strandline.errors import NotFound, StateError
from strandline.relations import Address
from strandline.replication.copy_state import CopyState
from strandline.replication.delivery import Claimed, Sent, check_claimed, claim
from strandline.replication.explanation import BaseFacts, Explanation
from strandline.replication.message import Position
from strandline.replication.senders.annotated.catalog import BaseCopyRecord, BaseRecord
from strandline.replication.senders.annotated.cost import DIFFERENTIAL, at_activity, explain, uses_index
from strandline.replication.senders.annotated.delivery import (
    check_history,
    definition_of,
    obstacle,
    send_differential,
    send_first,
    send_full,
    send_repair,
)
from strandline.replication.senders.annotated.fix_up import BaseSite, check_begun, fill, opened
from strandline.replication.senders.annotated.program import LAG, UNSETTLED
from strandline.replication.senders.annotated.statements import FixUpNumbers
from strandline.replication.senders.annotated.verification import differing_rows, verify
from strandline.replication.senders.sender import AUTO, FIRST, FULL, REPAIR, Refresh
from strandline.replication.targets import CopyTarget
from strandline.replication.verification import Verification

METHODS = (AUTO, DIFFERENTIAL, FULL)
COMPARED_ROWS = 2_000
"""A base of so many rows is compared with its copy after each refresh, which takes some milliseconds."""
RECOUNT = 0.1
"""The part of a copy's rows that messages may concern before they are counted again."""


class AnnotatedSender:
    """The copies of one annotated base table."""

    methods = METHODS

    def __init__(self, base: Address) -> None:
        self.base = base

    def record(self, name: str) -> BaseCopyRecord:
        with opened(self.base, leaving=True) as site:
            return _record(site, name)

    @contextmanager
    def opened(self, name: str, runner: str) -> Iterator[AnnotatedSource]:
        with opened(self.base) as site:
            yield AnnotatedSource(site, _record(site, name), runner)

    def status(self, name: str) -> dict[str, Any]:
        with opened(self.base) as site:
            copy = _record(site, name)
            return {
                "name": name,
                "base": copy.base,
                "target": copy.target,
                "position": None if copy.taken is None else copy.taken.time,
                "lag": None if copy.taken is None else _facts(site, copy, copy.taken).changed,
                "expected": copy.expected.get("method"),
                **copy.last,
            }

    def let_go(self, name: str) -> None:
        """Nothing: annotations serve all copies, wherever they stand."""

    def forget(self, name: str) -> None:
        """The base may be in any trouble, and its table gone."""
        with opened(self.base, leaving=True) as site, site.table.database.transaction():
            record = site.catalog.base(site.name, lock=True)
            if record is not None:
                site.catalog.drop_copy(name)
                site.program(record)  # the one UPDATE of a fix-up knows all copies


@dataclass(frozen=True)
class AnnotatedSource:
    """One copy, as an open connection to its base sees it."""

    site: BaseSite
    copy: BaseCopyRecord
    runner: str

    @property
    def target(self) -> str:
        return self.copy.target

    @property
    def method(self) -> str:
        return self.copy.method

    def claim(self, replica: CopyTarget, method: str) -> Claimed:
        """A copy of other types, or by another key, is made anew: rows at addresses are sent with all columns."""
        return claim(replica, definition_of(self.site, self.site.record(), self.copy))

    def plan(self, claimed: Claimed, method: str) -> AnnotatedPlan:
        position, name = claimed.state.position, self.copy.name
        if position is None and method == REPAIR and not claimed.anew:
            raise StateError("the copy is empty", doing=f"repairing {name!r}", hint="Refresh it")
        record, copy = self._begin(claimed, check=method not in (FULL, REPAIR))
        source = replace(self, copy=copy)
        if position is None:
            return AnnotatedPlan(source, FIRST, claimed.anew or "the copy was empty")
        if method == REPAIR:
            return AnnotatedPlan(source, REPAIR, "compared row by row")
        if method == AUTO:
            facts = _facts(self.site, source.copy, position)
            chosen = explain(facts, obstacle(record, position))
            return AnnotatedPlan(source, chosen.method, chosen.obstacle or chosen.why, not uses_index(facts))
        trouble = "" if method == FULL else obstacle(record, position)
        if trouble:
            raise StateError(
                f"no differential is possible: {trouble}",
                doing=f"refreshing {name!r}",
                hint="refresh(method='full') makes the next one possible",
            )
        altered = _altered(self.site, record)
        return AnnotatedPlan(source, method, f"asked for; {altered}" if altered else "asked for")

    def _begin(self, claimed: Claimed, *, check: bool) -> tuple[BaseRecord, BaseCopyRecord]:
        """The records, read again once the copy was claimed: another refresh may have ended since they were.

        Refreshes begin in the base in the order in which they claimed the copy: one that was overtaken is refused here.
        So what the base offers from here on it offers to a copy that stands where the claim found it.
        """
        position = claimed.state.position
        with self.site.table.database.transaction():
            record = self.site.record(lock=True)
            check_claimed(claimed)
            copy = _record(self.site, self.copy.name)
            if check and position is not None:
                check_history(record, copy, position)
            copy = replace(copy, claim=secrets.token_hex(8))
            if position in (copy.taken, copy.offered):
                copy = replace(copy, taken=position)
            self.site.catalog.put_copy(copy)
        return record, copy

    def explain(self, state: CopyState | None) -> Explanation:
        if state is None or state.position is None:
            raise StateError("the copy is empty: the first refresh fills it", doing=f"explaining {self.copy.name!r}")
        position = state.position
        return explain(_facts(self.site, self.copy, position), obstacle(self.site.record(), position))

    def verify(self, replica: CopyTarget) -> Verification:
        state = replica.state()
        if state is None:
            raise NotFound("there is no copy", doing=f"verifying {self.copy.name!r}", hint="Refresh it")
        if state.definition != definition_of(self.site, self.site.record(), self.copy):
            return Verification(self.copy.held, damaged=("the base's columns or key have changed: refresh the copy",))
        return verify(self.site, self.copy, replica, state.definition)


@dataclass(frozen=True)
class AnnotatedPlan:
    """How a copy comes to the base's present state; `anchored` says whether the next differential may start there."""

    source: AnnotatedSource
    method: str
    why: str
    anchored: bool = True
    as_of: str | None = None

    def send(self, replica: CopyTarget, state: CopyState) -> tuple[CopyState, Sent]:
        site, copy = self.source.site, self.source.copy
        fill(site)
        if self.method == FIRST:
            state, sent = send_first(site, copy, replica, state, self.source.runner)
            state, more = send_differential(site, _note_taken(site, copy, state), replica, state)
            return state, sent + more
        if self.method == FULL:
            return send_full(site, copy, replica, state, anchored=self.anchored)
        if self.method == REPAIR:
            return send_repair(site, copy, replica, state)
        return send_differential(site, copy, replica, state)

    def note(self, replica: CopyTarget, state: CopyState, done: Refresh, sending: float) -> str | None:
        site, position = self.source.site, state.position
        last = {"method": done.method, "messages": done.messages, "bytes": done.bytes}
        last["seconds"] = round(done.seconds, 3)
        last["refreshed"] = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")
        with site.table.database.transaction():
            site.record(lock=True)
            copy = replace(_record(site, self.source.copy.name), last=last)
            if copy.offered == position:  # else another refresh has begun since, and noted where the copy stands
                copy = replace(copy, taken=position)
            copy = _counted(copy, replica, done.messages)
            if self.method == FIRST and position is not None:
                expected = explain(at_activity(_facts(site, copy, position)))
                copy = replace(copy, expected={"method": expected.method, "why": expected.why})
            site.catalog.put_copy(copy)
        return self._unequal(replica, state)

    def _unequal(self, replica: CopyTarget, state: CopyState) -> str | None:
        """Of a small base, if it was not written to since: both sides are read in one state of the base."""
        site, position = self.source.site, state.position
        if position is None or site.record().rows > COMPARED_ROWS:
            return None
        database = site.table.database
        with database.transaction():
            if database.dialect == "postgres":
                database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            record = site.record()
            if record.time != position.time or site.program(record).run(database, UNSETTLED, FixUpNumbers())[0][0]:
                return None
            differing = differing_rows(site, self.source.copy, replica, state.definition)
        if differing and replica.state() != state:
            return None  # another refresh has begun, and the copy may be at a later state
        return f"{differing} rows differ from the base: repair the copy" if differing else None


def _record(site: BaseSite, name: str) -> BaseCopyRecord:
    record = site.catalog.copy(name)
    if record is None or record.base != site.name:
        raise NotFound(f"there is no copy {name!r} of {site.name!r}", doing="opening a copy")
    return record


def _facts(site: BaseSite, copy: BaseCopyRecord, position: Position) -> BaseFacts:
    record = site.record()
    program = site.copy_program(record, copy)
    rows, changed = program.run(site.table.database, LAG, FixUpNumbers(since=position.time))[0]
    indexed = bool(copy.restricted_by) and site.table.has_index(copy.restricted_by)
    altered = _altered(site, record)
    changed = rows if altered else changed or 0
    changed += max(record.rows - rows, 0)
    return BaseFacts(rows, copy.held, changed, indexed, copy.where is not None, record.algorithm, altered)


def _altered(site: BaseSite, record: BaseRecord) -> str:
    """Why every row counts as changed; empty if not. Before the first fix-up there is nothing to compare with."""
    if not record.storage or not site.table.altered(record.storage, record.key):
        return ""
    return "the table was altered or written anew, so every row counts as changed"


def _note_taken(site: BaseSite, copy: BaseCopyRecord, state: CopyState) -> BaseCopyRecord:
    """Notes in the base where the copy now stands."""
    with site.table.database.transaction():
        site.record(lock=True)
        check_begun(site, copy)
        copy = replace(_record(site, copy.name), taken=state.position)
        site.catalog.put_copy(copy)
    return copy


def _counted(copy: BaseCopyRecord, replica: CopyTarget, messages: int) -> BaseCopyRecord:
    """Counts what the copy holds, if enough has changed: small refreshes must not cost a scan of the copy."""
    uncounted = copy.uncounted + messages
    if uncounted <= RECOUNT * copy.held:
        return replace(copy, uncounted=uncounted)
    return replace(copy, held=replica.count(), uncounted=0)
