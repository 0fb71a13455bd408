"""Messages: a change set with an envelope. A numbered, checksummed batch of what a copy must do to become its source.

A message says first what goes, then what comes. `changes` are applied whole, with the position that they lead to.
`load` carries a piece of a new content beside the old one; its last piece takes the old one's place, with a position.

What goes is determined once, here: keys of deleted rows, rows whose count falls, or ranges of addresses to empty. A row
that comes replaces the one of its key, so an update is one row and no key (equation 1a of Chao, Diehr and Saharia).

A message is encoded once, where it is taken: as bytes (Arrow's stream format), with a checksum that covers all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import CHANGE, COUNTED, DELETE, KEYED, ChangeSet
from strandline.changes import COUNT as CHANGES_COUNT
from strandline.errors import ChangesError
from strandline.replication.definition import ABOVE, COUNT, UPTO, CopyDefinition
from strandline.storage import JsonRecord, cached_property
from strandline.values import Flags, Numbers, no_rows
from strandline.views import RangeStatement

CHANGES, LOAD = "changes", "load"
_MARK = b"STRANDLINE MESSAGE 1\n"
_CHECKSUM_BYTES = 16


@dataclass(frozen=True)
class Position(JsonRecord):
    """Where a copy stands on its source's own time. `token` is chance: two histories that reach one time differ in it.

    `anchored` says whether a differential may start from here.
    """

    time: int
    token: str = ""
    anchored: bool = True


@dataclass(frozen=True)
class Envelope:
    """Who sends a message, and which one it is: `number` is one more than the one before it."""

    epoch: int
    number: int
    fingerprint: str


@dataclass(frozen=True)
class MessageSegment:
    """A part of an ordered message: what goes, what comes, and the statements that are then run."""

    gone: pa.Table
    rows: pa.Table
    statements: tuple[RangeStatement, ...] = ()


@dataclass(frozen=True)
class Message:
    """One message. `cursor` (in a load) is how far the source was read, for a sender that has to go on.

    `earlier` segments come before `gone` and `rows`, in order, in the same transaction.
    """

    envelope: Envelope
    kind: str
    gone: pa.Table
    rows: pa.Table
    position: Position | None = None
    first: bool = True
    last: bool = True
    cursor: Mapping[str, Any] = field(default_factory=dict)
    earlier: tuple[MessageSegment, ...] = ()

    @cached_property
    def body(self) -> bytes:
        """The message as bytes, without its checksum."""
        head = {
            **self.envelope.__dict__,
            "kind": self.kind,
            "position": None if self.position is None else self.position.to_json(),
            "first": self.first,
            "last": self.last,
            "cursor": dict(self.cursor),
            "earlier": [[statement.to_json() for statement in segment.statements] for segment in self.earlier],
        }
        tables = [self.gone, self.rows, *(table for one in self.earlier for table in (one.gone, one.rows))]
        parts = (len(part).to_bytes(8, "big") + part for part in map(_ipc, tables))
        return b"".join([_MARK, json.dumps(head, sort_keys=True).encode(), b"\n", *parts])

    @cached_property
    def checksum(self) -> str:
        return hashlib.blake2b(self.body, digest_size=_CHECKSUM_BYTES).hexdigest()

    @property
    def size(self) -> int:
        """The number of bytes that travel: the body, then its checksum."""
        return len(self.body) + _CHECKSUM_BYTES

    def __len__(self) -> int:
        """How many rows, ranges and statements it carries."""
        before = sum(len(one.gone) + len(one.rows) + len(one.statements) for one in self.earlier)
        return before + len(self.gone) + len(self.rows)


def refuse_statements(message: Message) -> None:
    """For copies that no database keeps: they take rows alone."""
    if message.earlier:
        raise ChangesError("it carries statements, and this kind of copy takes rows", doing="taking a message")


def segment(
    definition: CopyDefinition, changes: ChangeSet, statements: tuple[RangeStatement, ...] = ()
) -> MessageSegment:
    """What goes and what comes by a change set, keyed or counted."""
    header = changes.header
    if header.form != definition.form or header.partial or set(header.columns) != set(definition.schema.names):
        raise ChangesError(
            f"a {'partial ' if header.partial else ''}{header.form} change set of {', '.join(header.columns)} does not "
            f"fit a {definition.form} copy of {', '.join(definition.schema.names)}",
            doing="sending changes to a copy",
        )
    if definition.form == KEYED:
        leaving, rows = pc.equal(changes.rows.column(CHANGE), DELETE), changes.rows
        coming = pc.invert(leaving)
    else:
        counts = changes.rows.column(CHANGES_COUNT)
        rows = changes.rows.append_column(COUNT, pc.abs(counts))
        leaving, coming = pc.less(counts, 0), pc.greater(counts, 0)
    gone = _as(rows.filter(leaving), definition.gone_schema)
    return MessageSegment(gone, _as(rows.filter(coming), definition.rows_schema), statements)


def changes_message(definition: CopyDefinition, envelope: Envelope, changes: ChangeSet, position: Position) -> Message:
    """A change set, keyed or counted, as a message."""
    whole = segment(definition, changes)
    return Message(envelope, CHANGES, whole.gone, whole.rows, position)


def ranges_message(
    definition: CopyDefinition, envelope: Envelope, gone: pa.Table, rows: pa.Table, position: Position
) -> Message:
    """Ranges of addresses to empty, then rows at addresses."""
    return Message(envelope, CHANGES, _as(gone, definition.gone_schema), _as(rows, definition.rows_schema), position)


def load_message(definition: CopyDefinition, envelope: Envelope, rows: pa.Table) -> Message:
    """A piece of new content; `replace` its first, last, cursor and position."""
    if definition.form == COUNTED and COUNT not in rows.column_names:
        rows = rows.append_column(COUNT, pa.array([1] * len(rows), pa.int64()))
    return Message(envelope, LOAD, no_rows(definition.gone_schema), _as(rows, definition.rows_schema))


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    table = table.select(schema.names)
    return table if table.schema.equals(schema) else table.cast(schema)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if table.nbytes > 4096 else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class Emptying:
    """The ranges of one message. They do not overlap; each is open below and closed above."""

    def __init__(self, gone: pa.Table) -> None:
        gone = gone.take(pc.sort_indices(gone, sort_keys=[(ABOVE, "ascending")]))
        self._above = np.asarray(gone.column(ABOVE), dtype=np.int64)
        self._upto = np.asarray(gone.column(UPTO).fill_null(2**63 - 1), dtype=np.int64)

    def concerns(self, least: int, greatest: int) -> bool:
        """Whether addresses from `least` to `greatest`, both included, can be among them."""
        return bool(np.any((self._above < greatest) & (self._upto >= least)))

    def holds(self, addresses: Numbers) -> Flags:
        """Which of the addresses are to go."""
        if not len(self._above):
            return np.zeros(len(addresses), dtype=np.bool_)
        place = np.searchsorted(self._above, addresses, side="left") - 1
        return (place >= 0) & (addresses <= self._upto[np.maximum(place, 0)])
