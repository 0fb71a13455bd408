"""Text files as streams of bytes, unpacked on the way: gzip by content, bz2, zstd and lz4 by suffix."""

from __future__ import annotations

import pyarrow as pa


def open_stream(path: str) -> pa.NativeFile:
    """The unpacked bytes of a file."""
    return pa.input_stream(path, compression=_codec(path))


def is_packed(path: str) -> bool:
    """Whether a file can only be read from its beginning."""
    return _codec(path) is not None


def _codec(path: str) -> str | None:
    with open(path, "rb") as file:
        if file.read(2) == b"\x1f\x8b":
            return "gzip"
    for suffix, codec in ((".bz2", "bz2"), (".zst", "zstd"), (".lz4", "lz4")):
        if path.lower().endswith(suffix):
            return codec
    return None
