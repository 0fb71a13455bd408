"""Short ways to send messages to a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from strandline.changes.table_difference import difference
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition
from strandline.replication.message import Envelope, Message, Position, changes_message, load_message, ranges_message
from strandline.replication.targets.target import CopyTarget

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
KEYED = CopyDefinition(SCHEMA, "keyed", ("id",), "shop/orders")
COUNTED = CopyDefinition(SCHEMA, "counted", (), "shop/orders")
RANGES = CopyDefinition(SCHEMA.remove(0), "ranges", (), "shop/orders")


def rows(*values: Sequence[Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns: list[Sequence[Any]] = list(zip(*values, strict=True)) if values else [() for _ in schema]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def envelope(state: CopyState, step: int = 1) -> Envelope:
    return Envelope(state.epoch, state.number + step, state.definition.fingerprint)


def load(copy: CopyTarget, table: pa.Table, time: int = 1, pieces: int = 1) -> CopyState:
    """A whole content in so many messages."""
    state = copy.claim()
    size = -(-len(table) // pieces) if len(table) else 1
    for piece in range(pieces):
        state = copy.apply(piece_of(state, table.slice(piece * size, size), piece, pieces, time))
    return state


def piece_of(state: CopyState, table: pa.Table, piece: int, pieces: int, time: int) -> Message:
    last = piece == pieces - 1
    message = load_message(state.definition, envelope(state), table)
    position = Position(time, "t") if last else None
    return replace(message, first=piece == 0, last=last, position=position, cursor={"piece": piece})


def change(state: CopyState, old: pa.Table, new: pa.Table, time: int = 2) -> Message:
    """The message that leads from one content to another."""
    key = state.definition.key if state.definition.form == "keyed" else None
    return changes_message(state.definition, envelope(state), difference(old, new, key), Position(time, "t"))


def ranges(state: CopyState, gone: Iterable[tuple[int, int | None]], table: pa.Table, time: int = 2) -> Message:
    said = list(gone)
    emptied = pa.table(
        {"above": pa.array([a for a, _ in said], pa.int64()), "upto": pa.array([u for _, u in said], pa.int64())}
    )
    return ranges_message(state.definition, envelope(state), emptied, table, Position(time, "t"))
