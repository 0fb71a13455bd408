"""Text files as streams of bytes, unpacked on the way: gzip by content, bz2, zstd and lz4 by suffix."""

from __future__ import annotations

import pyarrow as pa


def open_stream(path: str) -> pa.NativeFile:
    """The unpacked bytes of a file."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return pa.input_stream(path, compression="gzip" if packed else _by_suffix(path))


def _by_suffix(path: str) -> str | None:
    for suffix, codec in ((".bz2", "bz2"), (".zst", "zstd"), (".lz4", "lz4")):
        if path.lower().endswith(suffix):
            return codec
    return None
