"""A message as it travels, read again: all that a copy needs is in the bytes that a message counts as its size."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pyarrow as pa

from strandline.errors import FormatError
from strandline.replication.message import Envelope, Message, MessageSegment, Position
from strandline.views import RangeStatement

_MARK = b"STRANDLINE MESSAGE 1\n"
_CHECKSUM_BYTES = 16


def encoded(message: Message) -> bytes:
    """What travels."""
    return message.body + bytes.fromhex(message.checksum)


def decoded(data: bytes) -> Message:
    """The message in these bytes, once their checksum is seen to be right."""
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if not body.startswith(_MARK) or hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise FormatError(
            "its checksum differs: it was damaged on the way", doing="receiving a message", hint="Send it again"
        )
    first_line, _, rest = body[len(_MARK) :].partition(b"\n")
    head = json.loads(first_line)
    tables = []
    while rest:
        size = int.from_bytes(rest[:8], "big")
        tables.append(pa.ipc.open_stream(rest[8 : 8 + size]).read_all())
        rest = rest[8 + size :]
    envelope = Envelope(head["epoch"], head["number"], head["fingerprint"])
    position = None if head["position"] is None else Position.from_json(head["position"])
    message = Message(envelope, head["kind"], tables[0], tables[1], position)
    earlier = tuple(
        MessageSegment(gone, rows, tuple(RangeStatement.from_json(one) for one in statements))
        for statements, gone, rows in zip(head["earlier"], tables[2::2], tables[3::2], strict=True)
    )
    return replace(message, first=head["first"], last=head["last"], cursor=head["cursor"], earlier=earlier)
