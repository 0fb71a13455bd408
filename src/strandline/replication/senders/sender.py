"""The seam between a copy and what sends to it: a view of a store, or an annotated base table.

A `Sender` knows its copies by name. `opened` gives one of them as a `Source`: the copy as its sender sees it at one
state, for one refresh, explanation or verification. A source claims the copy and chooses a `Plan`; the plan sends, and
then notes what was sent. To add a kind of source, write these three.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from strandline.replication.copy_state import CopyState
from strandline.replication.delivery import Claimed, Sent
from strandline.replication.explanation import Explanation
from strandline.replication.targets import CopyTarget
from strandline.replication.verification import Verification

AUTO, FULL, FIRST, REPAIR, NOTHING = "auto", "full", "first", "repair", "nothing"


@dataclass(frozen=True)
class Refresh:
    """What a refresh did. `messages` counts as the papers do: the rows, keys and ranges that went to the copy.

    `unequal` says in what the copy was then seen to differ from its source, if it was; `why` says so, too. `as_of` is
    the instant, in UTC, at which the copy shows a view that reads the clock.
    """

    method: str
    messages: int
    bytes: int
    seconds: float
    position: int
    why: str = ""
    unequal: str = ""
    as_of: str | None = None


class Plan(Protocol):
    """How a refresh goes, and why so."""

    @property
    def method(self) -> str: ...

    @property
    def why(self) -> str: ...

    @property
    def as_of(self) -> str | None: ...

    def send(self, replica: CopyTarget, state: CopyState) -> tuple[CopyState, Sent]:
        """Send what the plan says; the copy's state afterwards."""
        ...

    def note(self, replica: CopyTarget, state: CopyState, done: Refresh, sending: float) -> str | None:
        """Write down, at the source, where the copy was left; `sending` are the seconds that `send` took.

        Says in what the copy is unequal to its source, where that was looked at and is so.
        """
        ...


class Source(Protocol):
    """One copy, as its sender sees it at one state."""

    @property
    def target(self) -> str:
        """Where the copy is; a password is left out."""
        ...

    @property
    def method(self) -> str:
        """How it is refreshed unless told otherwise."""
        ...

    def claim(self, replica: CopyTarget, method: str) -> Claimed:
        """Make the copy one of this source, and fence off other senders; an error if the method does not allow that."""
        ...

    def plan(self, claimed: Claimed, method: str) -> Plan:
        """How the copy comes to the present state; an error if the method that was asked for can't lead there."""
        ...

    def explain(self, state: CopyState | None) -> Explanation:
        """What each way would cost for a copy in this state, and which one a plan takes."""
        ...

    def verify(self, replica: CopyTarget) -> Verification:
        """Compare the copy with what it should hold."""
        ...


class Sender(Protocol):
    """What keeps copies, by name."""

    @property
    def methods(self) -> Sequence[str]:
        """The ways of refreshing that users may ask for."""
        ...

    def record(self, name: str) -> Any:
        """What it knows of a copy."""
        ...

    def opened(self, name: str, runner: str) -> AbstractContextManager[Source]: ...

    def status(self, name: str) -> dict[str, Any]:
        """Where a copy stands, how far behind it is, and its last refresh; the target is not read."""
        ...

    def let_go(self, name: str) -> None:
        """Free what is kept for the copy's position."""
        ...

    def forget(self, name: str) -> None:
        """Remove what is known of the copy."""
        ...
