"""The envelope around everything that the control plane stores: kind, format number, checksum.

    strandline node 1 5f0c…\\n
    [ the body, JSON ]

The checksum covers the kind, the format number and the body, so a flipped byte anywhere is noticed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from strandline.errors import Damaged, FormatError

FORMAT = 1
"""The store's format number. A greater one is refused: this program would not understand it."""

Json = Any


def checksum(data: bytes) -> str:
    """The checksum of a page, a node or a body: 128 bits of BLAKE2b in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def seal(kind: str, body: Json) -> bytes:
    """The bytes to store for `body`."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    prefix = f"strandline {kind} {FORMAT}"
    return f"{prefix} {checksum(prefix.encode() + text)}\n".encode() + text


def unseal(kind: str, name: str, data: bytes) -> Json:
    """The body of stored bytes; `Damaged` or `FormatError` when they are not what was sealed."""
    header, newline, text = data.partition(b"\n")
    words = header.split(b" ")
    if not newline or len(words) != 4 or words[0] != b"strandline":
        raise FormatError(f"{name} does not begin as a {kind} does", doing=f"reading {name}")
    if words[2].isdigit() and int(words[2]) > FORMAT:
        raise FormatError(
            f"{name} has format {int(words[2])}; this program knows formats up to {FORMAT}",
            doing=f"reading {name}",
            hint="Use a newer release of Strandline",
        )
    if checksum(header[: header.rindex(b" ")] + text).encode() != words[3]:
        raise Damaged(f"the checksum of {name} does not hold", doing=f"reading {name}", hint="Run check")
    if words[1] != kind.encode():
        raise Damaged(f"{name} is a {words[1].decode()}, not a {kind}", doing=f"reading {name}", hint="Run check")
    return json.loads(text)
