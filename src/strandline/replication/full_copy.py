"""A new content in pieces that are read side by side, by Spark tasks or threads, and taken one after the other.

While one wave of pieces is delivered the next one is read; what was delivered leaves the spool. Each message says how
many pieces the copy has, so a stream that was stopped goes on with the piece after these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from strandline.engine import Attempt, Kernel, Outcome, Result, Runner, Spool, WorkItem
from strandline.replication.copy_state import CopyState
from strandline.replication.delivery import Sent, deliver, next_envelope
from strandline.replication.message import Position, load_message
from strandline.replication.targets import CopyTarget
from strandline.storage import Workers

DONE = "done"
WAVE = 4
"""Pieces in a wave for each that is read at once: enough to keep tasks busy, few enough for the spool."""


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
