"""Messages from the central site to a copy, each applied there whole, with the position that it leads to.

A keyed view's message carries deletes by key alone, and one row for each key that comes or changes: a delete and an
insert of one key are one replacement (equation 1a). A counted view's carries rows with their counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import CHANGE, COUNTED, DELETE, KEYED, ChangeSet
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition as Held
from strandline.replication.message import CHANGES, Envelope, Message, MessageSegment, changes_message, load_message
from strandline.replication.message import Position as CopyPosition
from strandline.replication.targets import Replica
from strandline.values import plain_schema
from strandline.views import RangeStatement, Subscription, ViewPosition

PIECE_ROWS = 500_000
OrderedPart = tuple[ChangeSet, tuple[RangeStatement, ...]]


@dataclass(frozen=True)
class SentMessages:
    """How much went to a copy: rows and keys, and bytes."""

    messages: int = 0
    bytes: int = 0


def recorded_position(position: ViewPosition) -> CopyPosition:
    """The position as a copy records it."""
    rest = [position.store, position.lineage, position.version, position.view, position.id]
    return CopyPosition(position.commit, json.dumps(rest))


def view_position(recorded: CopyPosition) -> ViewPosition | None:
    """The position that a copy recorded; None if it is not one of a view, or no difference may start from it."""
    if not recorded.anchored:
        return None
    try:
        store, lineage, version, view, commit_id = json.loads(recorded.token)
    except (ValueError, TypeError):
        return None
    return ViewPosition(store, lineage, version, view, recorded.time, commit_id)


def held(subscription: Subscription, source: str) -> Held:
    """What a copy of this subscription holds."""
    definition = subscription.definition
    return Held(plain_schema(definition.schema), KEYED if definition.key else COUNTED, definition.key, source)


def difference_message(state: CopyState, changes: ChangeSet, position: ViewPosition) -> Message:
    """A net difference as the copy's next message."""
    definition = state.definition
    envelope = Envelope(state.epoch, state.number + 1, definition.fingerprint)
    message = changes_message(definition, envelope, changes, recorded_position(position))
    if definition.form != KEYED:
        return message
    leaving = changes.rows.filter(pc.equal(changes.rows.column(CHANGE), DELETE))
    gone = leaving.select(definition.gone_schema.names).cast(definition.gone_schema)
    return Message(envelope, CHANGES, gone, message.rows, recorded_position(position))


def send_difference(replica: Replica, state: CopyState, changes: ChangeSet, position: ViewPosition) -> SentMessages:
    """One net difference."""
    message = difference_message(state, changes, position)
    replica.apply(message)
    return SentMessages(len(message), len(message.encode()))


def send_parts(
    replica: Replica, state: CopyState, parts: Sequence[OrderedPart], position: ViewPosition
) -> SentMessages:
    """An ordered list of segments, in one message: net rows, then statements, and so on."""
    segments = []
    for changes, statements in parts[:-1]:
        message = difference_message(state, changes, position)
        segments.append(MessageSegment(message.gone, message.rows, statements))
    last = replace(difference_message(state, parts[-1][0], position), earlier=tuple(segments))
    replica.apply(last)
    return SentMessages(len(last), len(last.encode()))


def send_everything(replica: Replica, state: CopyState, rows: pa.Table, position: ViewPosition) -> SentMessages:
    """All rows, beside what the copy holds; the last piece takes its place."""
    sent = SentMessages()
    pieces = list(_pieces(rows))
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        envelope = Envelope(state.epoch, state.number + 1, state.definition.fingerprint)
        message = load_message(state.definition, envelope, piece)
        message = replace(message, first=number == 0, last=last, position=recorded_position(position) if last else None)
        state = replica.apply(message)
        sent = SentMessages(sent.messages + len(message), sent.bytes + len(message.encode()))
    return sent


def _pieces(rows: pa.Table) -> Iterable[pa.Table]:
    yield rows.slice(0, PIECE_ROWS)
    for start in range(PIECE_ROWS, len(rows), PIECE_ROWS):
        yield rows.slice(start, PIECE_ROWS)
