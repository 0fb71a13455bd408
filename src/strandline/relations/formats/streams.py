"""Streams: `-`, `/dev/stdin`, FIFOs and what a shell writes for `<(…)`. They can be read once, from the beginning.

A stream is put into a file of the spool first, which is then read as any other: its format is told by its content, and
it goes with the spool. A pipe does not say whether its writer came to the end. What the content itself shows is
refused: a stream without a byte, Parquet without a footer, Arrow without the mark of its end, packed bytes that
break off. Text that ends within a line may be whole, so that is said, and no error.
"""

from __future__ import annotations

import os
import secrets
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from strandline.engine import Spool
from strandline.errors import FormatError, InputError, StrandlineError
from strandline.relations.formats.files import is_packed, reading

STANDARD_INPUT = "-"
_CHUNK = 1 << 20
_LOOK = 1.0
_ARROW_STREAM = b"\xff\xff\xff\xff"
_ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def is_stream(path: str) -> bool:
    """Whether a path is standard input, or leads to a pipe, a socket or a terminal."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def stream_identity(path: str) -> tuple[int, int] | None:
    """What two names of one stream share; None for what is no stream."""
    if not is_stream(path):
        return None
    try:
        status = os.fstat(0) if path == STANDARD_INPUT else os.stat(path)
    except OSError:
        return None  # closed: reading it will tell
    return status.st_dev, status.st_ino


def shown_stream(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


def catch_stream(path: str, spool: Spool) -> str:
    """Reads the stream to its end into a file of the spool, and gives the file's path."""
    caught = os.path.join(spool.path, f"stream-{secrets.token_hex(6)}")
    with reading(path), _opened(path) as stream, open(caught, "wb") as file:
        while chunk := _next(stream.fileno()):
            file.write(chunk)
        size = file.tell()
    if not size:
        raise FormatError(
            "nothing came through it",
            doing=f"reading {shown_stream(path)}",
            hint="See whether the command that writes to it failed",
        )
    _check_arrow_end(caught, size, path)
    return caught


def ends_a_line(caught: str) -> bool:
    """Whether text ends with the end of a line; of packed text that is not asked."""
    if is_packed(caught):
        return True
    with open(caught, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() in (b"\n", b"\r", b"\x00")  # a null byte: the end of a line in UTF-16


@contextmanager
def naming_stream(path: str, caught: str) -> Iterator[None]:
    """Errors about the file of the spool name the stream instead."""
    try:
        yield
    except StrandlineError as error:
        record = {name: text.replace(caught, shown_stream(path)) for name, text in error.to_json().items()}
        if isinstance(error, FormatError):
            record["hint"] = (
                "See whether the command that writes to it failed; or say what it is (--old-format, --new-format)"
            )
        raise StrandlineError.from_json(record) from None


def _next(descriptor: int) -> bytes:
    """What has come; nothing at the end. A reader that only waits would not see an interrupt that came just before."""
    while not select.select([descriptor], [], [], _LOOK)[0]:
        pass
    return os.read(descriptor, _CHUNK)


def _opened(path: str) -> BinaryIO:
    if path != STANDARD_INPUT:
        return open(path, "rb")
    try:
        return os.fdopen(os.dup(0), "rb")
    except OSError:
        raise InputError(
            "there is none", doing="reading standard input", hint="Pipe something into it, or name a file"
        ) from None


def _check_arrow_end(caught: str, size: int, path: str) -> None:
    """Arrow takes the end of the bytes for the end of a stream; a writer that came to its end wrote a mark."""
    with open(caught, "rb") as file:
        if file.read(4) != _ARROW_STREAM:
            return
        file.seek(max(size - 8, 0))
        if file.read() != _ARROW_END:
            raise FormatError(
                "the Arrow stream breaks off: the mark of its end is missing",
                doing=f"reading {shown_stream(path)}",
                hint="See whether the command that writes to it failed",
            )
