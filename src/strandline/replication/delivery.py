"""From a sender to a copy: the copy is claimed, and messages are handed over, each with the envelope that comes next.

A sender claims a copy before it sends: other senders are fenced off, and the copy gets the columns that its source has
now. Changed columns are shipped as a difference, too: a keyed copy gets the new ones in one transaction of the target,
keeps its rows, and is then compared and sent what differs. Stopped between the two, it stands at a position from which
no difference may start: the next refresh compares it again. Where rows can't stay (another key, another form) the copy
is made anew, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.replication.copy_state import CopyState, Evolution
from strandline.replication.definition import CopyDefinition
from strandline.replication.message import Envelope, Message, Position, load_message
from strandline.replication.targets import CopyTarget


@dataclass(frozen=True)
class Sent:
    """How much went to a copy: messages as the papers count them (rows, keys and ranges), and bytes."""

    messages: int = 0
    bytes: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.messages + other.messages, self.bytes + other.bytes)


@dataclass(frozen=True)
class Claimed:
    """A copy, its state, and what was done before: `evolved` says how its columns changed, `anew` why it is empty."""

    replica: CopyTarget
    state: CopyState
    evolved: str = ""
    anew: str = ""


def claim(replica: CopyTarget, definition: CopyDefinition) -> Claimed:
    """Make the copy one of this definition, and fence off other senders."""
    there = replica.state()
    if there is not None and there.definition == definition:
        return Claimed(replica, replica.claim())
    if there is None or there.definition.source != definition.source:
        replica.create(definition)
        return Claimed(replica, replica.claim())
    evolution = Evolution(there.definition, definition)
    obstacle = "its first content was not complete" if there.position is None else evolution.obstacle
    obstacle = obstacle or replica.evolve(definition)
    if not obstacle:
        return Claimed(replica, replica.claim(), evolved=f"the view's columns have changed ({evolution})")
    replica.drop()
    replica.create(definition)
    return Claimed(replica, replica.claim(), anew=f"the copy was made anew: {obstacle}")


def next_envelope(state: CopyState) -> Envelope:
    """Of the message after the last one that a copy took."""
    return Envelope(state.epoch, state.number + 1, state.definition.fingerprint)


def deliver(replica: CopyTarget, message: Message) -> tuple[CopyState, Sent]:
    """Hand a message over; the target encodes it, and its size is known from then on."""
    state = replica.apply(message)
    return state, Sent(len(message), message.size)


def deliver_content(
    replica: CopyTarget, state: CopyState, pieces: Iterable[pa.Table], position: Position
) -> tuple[CopyState, Sent]:
    """Send a whole content, one message for each piece, beside what the copy holds; the last takes its place."""
    sent, first = Sent(), True
    coming = iter(pieces)
    piece: pa.Table | None = next(coming)
    while piece is not None:
        following = next(coming, None)
        message = load_message(state.definition, next_envelope(state), piece)
        last = following is None
        message = replace(message, first=first, last=last, position=position if last else None)
        state, more = deliver(replica, message)
        sent, first, piece = sent + more, False, following
    return state, sent
