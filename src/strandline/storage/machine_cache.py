"""The machine's cache of files: what of a file it holds, and letting it go. Where that can't be told, all of it is."""

from __future__ import annotations

import ctypes
import mmap
import os


def cached_share(descriptor: int, size: int) -> float:
    """How much of a file is cached, from 0 to 1."""
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    if mincore is None or size == 0:
        return 1.0
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with mmap.mmap(descriptor, size, mmap.MAP_PRIVATE) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        failed = mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages)
        del start  # a mapping that is looked at can't be closed
    return 1.0 if failed else sum(one & 1 for one in pages) / len(pages)


def let_go(descriptor: int) -> None:
    """Take a file out of the cache, as far as it is durable."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
