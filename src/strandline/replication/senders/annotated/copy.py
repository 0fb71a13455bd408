"""A copy of an annotated base table, as users hold it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from strandline.errors import InputError, NotFound, StateError
from strandline.relations import Address, connect
from strandline.replication.copy_state import CopyState
from strandline.replication.full_copy import SentPieces, next_envelope
from strandline.replication.message import Position, ranges_message
from strandline.replication.senders.annotated import delivery
from strandline.replication.senders.annotated.base_table import describe
from strandline.replication.senders.annotated.catalog import BaseCatalog, BaseCopyRecord
from strandline.replication.senders.annotated.cost import (
    DIFFERENTIAL,
    FIRST,
    FULL,
    REPAIR,
    BaseExplanation,
    BaseFacts,
    at_activity,
    explain,
    uses_index,
)
from strandline.replication.senders.annotated.delivery import send_first
from strandline.replication.senders.annotated.fix_up import BaseSite, fix_up_base, offer
from strandline.replication.senders.annotated.program import LAG
from strandline.replication.senders.annotated.statements import Numbers
from strandline.replication.senders.annotated.verification import BaseVerification, compare_mended, rows_at, verify
from strandline.replication.targets import Replica, open_replica

METHODS = ("auto", DIFFERENTIAL, FULL)
RECOUNT = 0.1
"""The part of a copy's rows that messages may concern before they are counted again."""


@dataclass(frozen=True)
class Refresh:
    """What a refresh did. `messages` counts as the paper does: ranges and rows that went to the copy."""

    method: str
    messages: int
    bytes: int
    seconds: float
    position: int
    why: str = ""


@contextmanager
def opened(address: Address) -> Iterator[BaseSite]:
    """A base's database, open."""
    with connect(address) as database:
        yield BaseSite(describe(database, address), BaseCatalog(database, address.schema))


class BaseCopy:
    """One copy of one base: its own restriction, columns, position and target, refreshed on its own."""

    def __init__(self, base: Address, name: str, target: Address, clock: Callable[[], float] = time.time) -> None:
        self._base = base
        self._target = target
        self._clock = clock
        self.name = name

    def refresh(self, method: str | None = None, *, runner: str = "auto") -> Refresh:
        """Brings the copy to the base's present state.

        `auto` takes the way that is expected to cost less and says which; `differential` means that way, or an error
        that says why not; `full` sends everything. `runner` says who reads a first copy: Spark if it is large.
        """
        started = self._clock()
        with opened(self._base) as site, open_replica(self._target) as replica:
            copy = self._record(site)
            method = method or copy.method
            if method not in METHODS:
                raise InputError(f"{method!r} is no method", doing="refreshing", hint=f"Use {', '.join(METHODS)}")
            state = self._claimed(site, copy, replica)
            if state.position is None:
                state, done, way, why = *self._first(site, copy, replica, state, runner), FIRST, "the copy was empty"
            else:
                state, done, way, why = self._again(site, copy, replica, state, method)
            return self._note(site, replica, state, _Result(done, way, why, self._clock() - started))

    def explain(self) -> BaseExplanation:
        """What each way would cost, which one a refresh would take, and why."""
        with opened(self._base) as site, open_replica(self._target) as replica:
            state = replica.state()
            if state is None or state.position is None:
                raise StateError("the copy is empty: the first refresh fills it", doing=f"explaining {self.name!r}")
            return self._explained(site, self._record(site), state.position)

    def verify(self) -> BaseVerification:
        """Compares the copy with its query over the base as it is now, row by row."""
        with opened(self._base) as site, open_replica(self._target, create=False) as replica:
            state = replica.state()
            if state is None:
                raise NotFound("there is no copy", doing=f"verifying {self.name!r}", hint="Refresh it")
            return verify(site, self._record(site), replica, state.definition)

    def repair(self) -> Refresh:
        """Makes a copy that was edited or damaged by hand equal to its query again, by sending just what differs.

        What can't be read any more is left out first and then sent again.
        """
        started = self._clock()
        with opened(self._base) as site, open_replica(self._target) as replica:
            copy = self._record(site)
            state = self._claimed(site, copy, replica)
            if state.position is None:
                raise StateError("the copy is empty", doing=f"repairing {self.name!r}", hint="Refresh it")
            with site.table.database.transaction():
                record, _ = fix_up_base(site, copy)
                found = compare_mended(site, copy, replica, state.definition)
                rows = rows_at(site, copy, found.coming).select(state.definition.rows_schema.names)
                position = offer(site, copy, record)
            message = ranges_message(state.definition, next_envelope(state), found.ranges, rows, position)
            state = replica.apply(message)
            done = SentPieces(len(message), len(message.encode()))
            return self._note(
                site, replica, state, _Result(done, REPAIR, "compared row by row", self._clock() - started)
            )

    def drop(self) -> None:
        """Removes the copy at its target, and what the base knows of it."""
        with opened(self._base) as site:
            with open_replica(self._target) as replica:
                replica.drop()
            with site.table.database.transaction():
                site.catalog.drop_copy(self.name)
                site.program(site.record())  # the one UPDATE of a fix-up knows all copies

    def status(self) -> dict[str, Any]:
        """Position, lag (entries of the base that changed since), the way that was expected to be cheaper when the copy
        was defined, and the last refresh, without touching the target."""
        with opened(self._base) as site:
            copy = self._record(site)
            return {
                "name": self.name,
                "base": copy.base,
                "target": copy.target,
                "position": None if copy.taken is None else copy.taken.time,
                "lag": None if copy.taken is None else self._facts(site, copy, copy.taken).changed,
                "expected": copy.expected.get("method"),
                **copy.last,
            }

    def _record(self, site: BaseSite) -> BaseCopyRecord:
        found = site.catalog.copy(self.name)
        if found is None or found.base != site.name:
            raise NotFound(f"there is no copy {self.name!r} of {site.name!r}", doing="opening a copy")
        return found

    def _claimed(self, site: BaseSite, copy: BaseCopyRecord, replica: Replica) -> CopyState:
        replica.create(delivery.definition_of(site, site.record(), copy))
        return replica.claim()

    def _first(
        self, site: BaseSite, copy: BaseCopyRecord, replica: Replica, state: CopyState, runner: str
    ) -> tuple[CopyState, SentPieces]:
        state, done = send_first(site, copy, replica, state, runner)
        state, more = delivery.send_differential(site, self._taken(site, state), replica, state)
        return state, done.and_(more)

    def _again(
        self, site: BaseSite, copy: BaseCopyRecord, replica: Replica, state: CopyState, method: str
    ) -> tuple[CopyState, SentPieces, str, str]:
        assert state.position is not None
        record = site.record()
        if method != FULL:
            delivery.check_history(record, copy, state.position)
        way, why, anchored = method, "asked for", True
        if method == "auto":
            chosen = self._explained(site, copy, state.position)
            way, why, anchored = chosen.method, chosen.obstacle or chosen.why, not uses_index(chosen.facts)
        if way == FULL:
            return *delivery.send_full(site, copy, replica, state, anchored=anchored), way, why
        obstacle = delivery.obstacle(record, state.position)
        if obstacle:
            raise StateError(
                f"no differential is possible: {obstacle}",
                doing=f"refreshing {self.name!r}",
                hint="refresh(method='full') makes the next one possible",
            )
        return *delivery.send_differential(site, copy, replica, state), way, why

    def _explained(self, site: BaseSite, copy: BaseCopyRecord, position: Position) -> BaseExplanation:
        return explain(self._facts(site, copy, position), delivery.obstacle(site.record(), position))

    def _facts(self, site: BaseSite, copy: BaseCopyRecord, position: Position) -> BaseFacts:
        record = site.record()
        lag = site.copy_program(record, copy)
        rows, changed = lag.run(site.table.database, LAG, Numbers(since=position.time))[0]
        indexed = bool(copy.restricted_by) and site.table.has_index(copy.restricted_by)
        deleted = max(record.rows - rows, 0)
        return BaseFacts(rows, copy.held, (changed or 0) + deleted, indexed, copy.where is not None, record.algorithm)

    def _taken(self, site: BaseSite, state: CopyState) -> BaseCopyRecord:
        """Notes in the base where the copy now stands."""
        with site.table.database.transaction():
            copy = replace(self._record(site), taken=state.position)
            site.catalog.put_copy(copy)
        return copy

    def _note(self, site: BaseSite, replica: Replica, state: CopyState, result: _Result) -> Refresh:
        assert state.position is not None
        done, way = result.sent, result.method
        last = {"method": way, "messages": done.messages, "bytes": done.bytes, "seconds": round(result.seconds, 3)}
        last["refreshed"] = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        with site.table.database.transaction():
            copy = self._counted(replace(self._record(site), taken=state.position, last=last), replica, done.messages)
            if way == FIRST:
                told = explain(at_activity(self._facts(site, copy, state.position)))
                copy = replace(copy, expected={"method": told.method, "why": told.why})
            site.catalog.put_copy(copy)
        return Refresh(way, done.messages, done.bytes, result.seconds, state.position.time, result.why)

    def _counted(self, copy: BaseCopyRecord, replica: Replica, messages: int) -> BaseCopyRecord:
        """Counts what the copy holds, if enough has changed: small refreshes must not cost a scan of the copy."""
        uncounted = copy.uncounted + messages
        if uncounted <= RECOUNT * copy.held:
            return replace(copy, uncounted=uncounted)
        return replace(copy, held=replica.count(), uncounted=0)


@dataclass(frozen=True)
class _Result:
    sent: SentPieces
    method: str
    why: str
    seconds: float
