"""From a sender to a copy: the copy is claimed, and messages are handed over, each with the envelope that comes next.

A sender claims a copy before it sends: other senders are fenced off, and the copy gets the columns that its source has
now. Changed columns are shipped as a difference, too: a keyed copy gets the new ones in one transaction of the target,
keeps its rows, and is then compared and sent what differs. Stopped between the two, it stands at a position from which
no difference may start: the next refresh compares it again. Where rows can't stay (another key, another form) the copy
is made anew, and says why.

A whole content goes in pieces, one message each (`deliver_content`). A large one is read side by side, by Spark tasks
or threads, and its pieces are taken one after the other (`stream`): while one wave of them is delivered the next one is
read, and what was delivered leaves the spool. Each message says how many pieces the copy has, so a stream that was
stopped goes on with the piece after these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from strandline.engine import Attempt, Kernel, Outcome, Result, Runner, Spool, WorkItem
from strandline.errors import Fenced
from strandline.replication.copy_state import CopyState, Evolution
from strandline.replication.definition import CopyDefinition
from strandline.replication.message import Envelope, Message, Position, load_message
from strandline.replication.targets import CopyTarget
from strandline.storage import Workers

DONE = "done"
WAVE = 4
"""Pieces in a wave for each that is read at once: enough to keep tasks busy, few enough for the spool."""


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


def check_claimed(claimed: Claimed) -> None:
    """Refuses to go on if another sender has claimed the copy since."""
    there = claimed.replica.state()
    if there is not None and there.epoch != claimed.state.epoch:
        raise Fenced("another refresh of the copy has begun", doing="refreshing a copy", hint="Try again")


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


@dataclass(frozen=True)
class Pieces:
    """One work item for each piece; the kernel leaves its rows, by `write_piece`, and returns what that gives.

    `facts` are what the sender needs to make the very same items again; they travel in each message's cursor.
    """

    kernel: Kernel
    items: Sequence[WorkItem]
    facts: Mapping[str, Any] = field(default_factory=dict)


def stream(
    replica: CopyTarget, state: CopyState, pieces: Pieces, position: Position, runner: Runner
) -> tuple[CopyState, Sent]:
    """Sends a whole content, or what is left of it; with the last piece the copy stands at `position`."""
    done = 0 if state.loading is None else int(state.loading[DONE])
    first, total, sent = state.loading is None, len(pieces.items), Sent()
    width = WAVE * max(runner.parallelism, 1)
    waves = [pieces.items[start : start + width] for start in range(done, total, width)]
    ahead: Workers[list[Outcome]] = Workers(1)
    with Spool() as spool, ahead:

        def read(wave: Sequence[WorkItem]) -> list[Outcome]:
            return runner.run(pieces.kernel, wave, spool, "Reading the first copy")

        reading = ahead.submit(partial(read, waves[0]))
        for number in range(len(waves)):
            outcomes = reading.result()
            if number + 1 < len(waves):
                reading = ahead.submit(partial(read, waves[number + 1]))
            for outcome in outcomes:
                done += 1
                message = load_message(state.definition, next_envelope(state), _taken(outcome.result["piece"]))
                message = replace(message, first=first, last=done == total, cursor={**pieces.facts, DONE: done})
                message = replace(message, position=position if done == total else None)
                state, more = deliver(replica, message)
                sent, first = sent + more, False
    return state, sent


def write_piece(rows: pa.Table, attempt: Attempt) -> Result:
    """A piece's rows in the spool."""
    path = attempt.path("piece.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {"piece": path, "rows_read": len(rows), "bytes_read": rows.nbytes}


def _taken(path: str) -> pa.Table:
    with pa.memory_map(path) as source:
        table = pa.ipc.open_file(source).read_all()
    os.unlink(path)  # the mapping keeps the rows
    return table
