"""A copy, as users hold it: of a view, of a table, or of an annotated base table, somewhere else.

`Copy` is the recipe that all copies share: open the source at one state, open the target, claim the copy, choose a
plan, send, note. What differs between sources is behind `Sender`, and what differs between targets behind `CopyTarget`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from strandline.errors import InputError, NotFound, StateError, StrandlineError
from strandline.relations import Address, parse_address
from strandline.replication.explanation import Explanation
from strandline.replication.senders import REPAIR, Refresh, Sender, Source
from strandline.replication.targets import CopyTarget, open_target
from strandline.replication.verification import Verification

logger = logging.getLogger(__name__)


class Copy:
    """One copy: its own restriction, columns, position and target, refreshed on its own."""

    def __init__(self, sender: Sender, name: str, target: Address | None = None) -> None:
        self._sender = sender
        self._target = target
        self.name = name

    def __repr__(self) -> str:
        try:
            return f"<Copy {self.name} at {self.target}>"
        except StrandlineError as error:
            return f"<Copy {self.name}: {error.why}>"

    @property
    def record(self) -> Any:
        """What its source knows of it: a `ViewCopyRecord` of a store, a `BaseCopyRecord` of a base."""
        return self._sender.record(self.name)

    @property
    def target(self) -> str:
        """Where it is; a password is left out."""
        return str(self.record.target)

    def refresh(self, method: str | None = None, *, runner: str = "auto") -> Refresh:
        """Bring the copy to the present state of its view or base.

        Of a view: `auto` sends the net difference since the copy's position, or, where that is not known any more, what
        the copy and the view differ in. `difference` means the first or an error; `repair` the second; `full` sends all
        rows. Without a method the view's refresh policy applies; a policy may be named as a method, too.

        Of a base: `auto` takes the way that is expected to cost less and says which; `differential` means that way, or
        an error that says why not; `full` sends everything. `runner` says who reads a first copy: Spark if it is large.
        """
        started = time.perf_counter()
        with self._sender.opened(self.name, runner) as source:
            asked = method or source.method
            if asked not in self._sender.methods:
                hint = f"Use {', '.join(self._sender.methods)}"
                raise InputError(f"{asked!r} is no method", doing="refreshing", hint=hint)
            return self._refreshed(source, asked, started)

    def repair(self, *, runner: str = "auto") -> Refresh:
        """Make a copy that was edited or damaged equal to its source again, by sending just what differs.

        What can't be read any more is left out first and then sent again.
        """
        started = time.perf_counter()
        with self._sender.opened(self.name, runner) as source:
            return self._refreshed(source, REPAIR, started)

    def verify(self, *, repair: bool = False, runner: str = "auto") -> Verification:
        """Compare the copy with its source as it is now; with `repair`, mend what differs.

        Of a view by checksums of ranges, of a base row by row.
        """
        with (
            self._sender.opened(self.name, runner) as source,
            self._replica(source.target, create=False) as replica,
        ):
            verification = source.verify(replica)
        if repair and not verification.equal:
            self.repair(runner=runner)
            return replace(verification, repaired=True)
        return verification

    def explain(self) -> Explanation:
        """What each way would cost, which one a refresh takes, and why."""
        with (
            self._sender.opened(self.name, "auto") as source,
            self._replica(source.target, create=False) as replica,
        ):
            return source.explain(replica.state())

    def status(self) -> dict[str, Any]:
        """Position, lag, and the last refresh; the target is not read.

        The lag is in commits up to the last that touched what a view reads, or in entries of the base that changed. Of
        a view's copy also for how many seconds it has been `behind`, and its `target_lag`; of a base's copy the way
        that was expected to be cheaper when it was defined.
        """
        return self._sender.status(self.name)

    def let_go(self) -> None:
        """Forget where the copy stands, and so the old pages and segments kept for it; its next refresh is a repair.

        For a subscriber who is away too long: he is never started over, only compared. A base keeps nothing for where a
        copy stands.
        """
        self._sender.let_go(self.name)

    def drop(self) -> None:
        """Remove the copy at its target, and what its source knows of it. A target that is gone needs no removing."""
        target = "" if self._target else self.target
        with suppress(NotFound), self._replica(target, create=False) as replica:
            replica.drop()
        self.forget()

    def forget(self) -> None:
        """Remove what its source knows of the copy, and keeps for it; its target is not touched, nor asked for."""
        self._sender.forget(self.name)

    def _refreshed(self, source: Source, method: str, started: float) -> Refresh:
        """The walk of a refresh, for every source and every target."""
        with self._replica(source.target) as replica:
            claimed = source.claim(replica, method)
            plan = source.plan(claimed, method)
            planned = time.perf_counter()
            state, sent = plan.send(replica, claimed.state)
            ended = time.perf_counter()
            if state.position is None:
                raise StateError("its content is not complete", doing=f"refreshing {self.name!r}", hint="Refresh again")
            at = state.position.time
            done = Refresh(plan.method, sent.messages, sent.bytes, ended - started, at, plan.why, as_of=plan.as_of)
            unequal = plan.note(replica, state, done, ended - planned)
            logger.info(
                "%s: %s, %d messages, %d bytes; %s", self.name, done.method, done.messages, done.bytes, done.why
            )
            return replace(done, unequal=unequal, why=f"{done.why}; {unequal}") if unequal else done

    def _replica(self, target: str, *, create: bool = True) -> CopyTarget:
        return open_target(self._target or parse_address(target), create=create)


@contextmanager
def dropped_on_error(copy: Copy, *, fresh: bool) -> Iterator[None]:
    """A new copy whose first refresh fails inside leaves nothing behind, neither at its target nor at its source."""
    try:
        yield
    except Exception:
        if fresh:
            with suppress(StrandlineError):
                copy.drop()
            with suppress(StrandlineError):
                copy.forget()
        raise
