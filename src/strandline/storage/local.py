"""Local files: an object is a file under a root folder.

A new object is written to an unnamed file, flushed, given its name by a hard link, and its folder is
flushed: a reader sees all of it or nothing, and a crash leaves no half-written name. A swap has the right to swap
(`swap_folder`), writes the successor and renames it over the object.

What nothing names before a swap does is put without a flush (`put_for_swap`): the swap flushes it together with its
successor, all at the same time, and then renames. A crash before that may leave half of it, under a name that means
nothing.

A folder whose flush failed is remembered: its names may not survive a crash. It is flushed again before a value is read
for a swap and before every swap, so what a swap builds on is durable. A swap whose own flush failed is `Unanswered`:
others see the new value, and that it lasts is known when it was read again.

Large things that are written or read once, as dumps are, can pass by the machine's cache (`put_in_passing`,
`get_in_passing`), so that they don't push out what others use. Where it can't be told how much of a file is cached, all
of it counts as cached.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

from strandline.errors import AlreadyExists, NotFound, StorageError, Unanswered
from strandline.storage.durable_file import flush, write_flushed, write_pieces
from strandline.storage.file_lock import check_system
from strandline.storage.seam import Storage, Stored, Token, checked_name, require_auditing, swap_lost, token_of
from strandline.storage.swap_folder import SwapFolder
from strandline.storage.threads import together
from strandline.storage.turns import Turns

_UNNAMED = getattr(os, "O_TMPFILE", 0)
SWAP_LIMIT = 60.0
"""Seconds for which a swap waits for those of other processes."""


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
    return 1.0 if failed else sum(page & 1 for page in pages) / len(pages)


def drop_cached(descriptor: int) -> None:
    """Take a file out of the cache, as far as it is durable."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


class LocalStorage(Storage):
    """Objects as files below `root`. Safe for many threads and many processes on one machine."""

    is_shared = True

    def __init__(self, root: str | os.PathLike[str], lock_limit: float = SWAP_LIMIT) -> None:
        check_system(root)
        self.lock_limit = lock_limit
        self._root = Path(root).absolute()
        self.url = str(self._root)
        self._text = f"{self._root}/"
        self._unflushed: set[Path] = set()
        """Folders with names that came or went since they were flushed."""
        self._refused: set[Path] = set()
        """Folders whose last flush failed."""
        self._swaps = SwapFolder(self._root)
        self.turns = Turns(self._root)
        self._mutex = threading.Lock()
        self._unnamed_works = bool(_UNNAMED)

    def leave(self) -> None:
        """Remove what is kept here for swaps, and empty folders, where nothing is stored any more; the root stays."""
        with _refusals("leaving", self.url):
            self._swaps.remove()
            self.turns.remove()
        for folder, _, _ in os.walk(self._root, topdown=False):
            if Path(folder) != self._root:
                with suppress(OSError):  # it is not empty
                    os.rmdir(folder)

    def get(self, name: str) -> bytes:
        with _refusals("reading", name):
            return _read_file(f"{self._text}{checked_name(name)}")

    def get_in_passing(self, name: str) -> bytes:
        with _refusals("reading", name), open(self.path(name), "rb", buffering=0) as file:
            share = cached_share(file.fileno(), os.fstat(file.fileno()).st_size)
            value = file.read()
            if share < 0.5:
                drop_cached(file.fileno())
            return value

    def put_in_passing(self, name: str, pieces: Sequence[bytes]) -> None:
        path = self.path(name)
        with _refusals("writing", name):
            self._ensure_folder(path.parent)
            self._create(path, pieces)  # one by one: joining them would hold up every other thread
            with open(path, "rb", buffering=0) as file:
                drop_cached(file.fileno())
            self._flush_folder(path.parent)

    def get_with_token(self, name: str) -> Stored:
        if self._refused:
            self._flush_refused("reading", name)
        value = self.get(name)
        return Stored(value, token_of(value))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with _refusals("reading", name), open(self.path(name), "rb") as file:
            return os.pread(file.fileno(), length, start)

    def put_if_absent(self, name: str, value: bytes) -> None:
        self.put_all({name: value})

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        paths = {name: self.path(name) for name in objects}
        folders = {path.parent for path in paths.values()}
        for folder in folders:
            with _refusals("writing", folder.name):
                self._ensure_folder(folder)
        together(lambda name: self._put(name, paths[name], objects[name]), list(objects))
        together(self._flush_put, list(folders))

    def put_for_swap(self, objects: Mapping[str, bytes]) -> None:
        for name, value in objects.items():
            path = self.path(name)
            with _refusals("writing", name):
                self._ensure_folder(path.parent)
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                try:
                    write_pieces(descriptor, [value])
                finally:
                    os.close(descriptor)

    def _put(self, name: str, path: Path, value: bytes) -> None:
        with _refusals("writing", name):
            self._create(path, [value])

    def _flush_put(self, folder: Path) -> None:
        with _refusals("flushing", folder.name):
            self._flush_folder(folder)

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        return self.swap_after((), name, expected, value)

    def swap_after(self, put: Collection[str], name: str, expected: Token | None, value: bytes) -> Token:
        path, files = self.path(name), [self.path(one) for one in put]
        if self._refused:
            self._flush_refused("swapping", name)
        end = time.monotonic() + self.lock_limit
        with _refusals("swapping", name):
            while not self._swap(files, path, expected, value, end):
                continue  # the right to swap was taken away: nothing was changed
        return token_of(value)

    def _swap(self, files: Sequence[Path], path: Path, expected: Token | None, value: bytes, end: float) -> bool:
        self._ensure_folder(path.parent)
        name = path.relative_to(self._root)
        with self._swaps.held(end) as folder:
            if self._current_token(path) != expected:
                raise swap_lost(str(name))
            try:
                with self._swaps.successor(folder, value) as successor:
                    self._flush_before_swap(successor, files)
                self._swaps.replace(folder, path)
            except FileNotFoundError:
                return False
            try:
                self._flush_folder(path.parent)
            except OSError as error:
                raise Unanswered(
                    f"the new value is in place, and the disk refused to flush it ({error.strerror})",
                    doing=f"swapping {name}",
                    hint="Whether it survives a crash is not known until the disk takes it; look at the disk",
                ) from error
        return True

    def is_unswapped(self, name: str, expected: Token | None) -> bool:
        with suppress(StorageError):
            return self.get_with_token(name).token == expected
        return False

    def turn(self) -> AbstractContextManager[bool]:
        return self.turns.taken()

    @property
    def contended(self) -> bool:
        return self.turns.contended

    def delete(self, name: str) -> None:
        path = self.path(name)
        with _refusals("deleting", name):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
        with self._mutex:
            self._unflushed.add(path.parent)

    def list(self, prefix: str) -> Iterator[str]:
        require_auditing()
        for folder, _, files in os.walk(self._root):
            for file in files:
                name = str(Path(folder, file).relative_to(self._root))
                if not file.startswith(".") and name.startswith(prefix):
                    yield name

    def path(self, name: str) -> Path:
        """The file that holds an object."""
        return self._root / checked_name(name)

    def _ensure_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            missing = [folder, *(p for p in folder.parents if not p.is_dir())]
            folder.mkdir(parents=True, exist_ok=True)
            for made in missing:
                self._flush_folder(made.parent)
        elif self._refused:
            self._flush_refused("writing into", folder.name)

    def _create(self, path: Path, pieces: Sequence[bytes]) -> None:
        if not self._unnamed_works:
            self._create_by_rename(path, pieces)
            return
        try:
            descriptor = os.open(path.parent, _UNNAMED | os.O_RDWR, 0o644)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            self._unnamed_works = False
            self._create_by_rename(path, pieces)
            return
        try:
            write_pieces(descriptor, pieces)
            os.fsync(descriptor)
            # Only `linkat` follows the link in /proc, and Python calls it only when given a folder.
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
        finally:
            os.close(descriptor)

    def _create_by_rename(self, path: Path, pieces: Sequence[bytes]) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            write_flushed(temporary, pieces)
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _current_token(self, path: Path) -> Token | None:
        try:
            return token_of(_read_file(str(path)))
        except FileNotFoundError:
            return None

    def _flush_before_swap(self, successor: int, files: Sequence[Path]) -> None:
        """What a swap names, all at the same time: the successor itself, and what was put for it, bytes and names. The
        swap may forget what was deleted, so the deletes must not come back after a crash either.
        """
        with self._mutex:
            folders = {*self._unflushed, *(file.parent for file in files)}
        flushes = [partial(os.fsync, successor), *(partial(flush, file) for file in files)]
        flushes += [partial(self._flush_folder, folder) for folder in folders]
        with _refusals("flushing what was put below", self.url):
            together(lambda one: one(), flushes)

    def _flush_folder(self, folder: Path) -> None:
        """Make the names in a folder durable; a failure is remembered."""
        with self._mutex:
            # Before the flush: what is deleted meanwhile waits for the next one.
            self._unflushed.discard(folder)
        try:
            flush(folder)
        except BaseException:
            with self._mutex:
                self._unflushed.add(folder)
                self._refused.add(folder)
            raise

    def _flush_refused(self, doing: str, name: str) -> None:
        """Flush what could not be flushed before. A kernel may take a failed flush for done, so each folder gets a new
        name, which goes again.
        """
        with _refusals(doing, name):
            for folder in list(self._refused):
                mark = folder / f".flush.{os.getpid()}.{threading.get_ident()}"
                write_flushed(mark, [])
                os.unlink(mark)
                self._flush_folder(folder)
                with self._mutex:
                    self._refused.discard(folder)


def _read_file(path: str) -> bytes:
    """A whole file. Every transaction reads a pointer, so it takes as few system calls as there can be."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        value = os.read(descriptor, size)
        while len(value) < size and (more := os.read(descriptor, size - len(value))):
            value += more
        return value
    finally:
        os.close(descriptor)


@contextmanager
def _refusals(doing: str, name: str) -> Iterator[None]:
    """Turn the operating system's refusals into the seam's errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"{name} is not there", doing=f"{doing} {name}") from error
    except FileExistsError as error:
        raise AlreadyExists(f"{name} exists already", doing=f"{doing} {name}") from error
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise StorageError(error.strerror or str(error), doing=f"{doing} {name}", hint=hint) from error


_FULL = "Free some space and try again; what was stored before stands"
_READ_ONLY = "Take a place that can be written; who only reads a store needs that, too: readers are listed in it"
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
}
