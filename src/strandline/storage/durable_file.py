"""Files and folders that are there whole or not at all, also after a crash: on a local disk, files also at a URL.

The order is always the same: the bytes are written beside their place, the file is flushed, it is renamed over the
place, and the folder that names it is flushed. A reader meets the old or the new, and what returned is durable.
What a crash leaves beside the place has a name that begins with a dot, or for a folder ends in `.tmp`, and means
nothing; it is locked while its writer lives, and removed by the next writer of the same place afterwards. The place
itself is not locked: the caller sees to it that one process writes at a time.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from strandline.storage.file_lock import StrPath, abandoned, check_system, hold_new
from strandline.storage.object_file import is_object_url, put_object


def flush(path: StrPath) -> None:
    """Makes durable what a file holds, or which names a folder has."""
    check_system(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_pieces(descriptor: int, pieces: Iterable[bytes]) -> None:
    """Writes one piece behind the other."""
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def write_flushed(path: StrPath, pieces: Iterable[bytes]) -> None:
    """A new file, or a file anew, that is flushed; its name is durable once its folder is flushed."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    try:
        write_pieces(descriptor, pieces)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(written: StrPath, place: StrPath) -> None:
    """Renames what is written and flushed to its place, over what was there."""
    os.replace(written, place)
    flush(os.path.dirname(place) or ".")


@contextmanager
def replacing(path: StrPath) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and leaves no trace otherwise.

    A file that was there before hands on its permissions. What processes that were killed left of the same file goes,
    too. What is to stand at a URL is stored there at the end.
    """
    if is_object_url(path):
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            put_object(os.fspath(path), file)
        return
    place = Path(path)
    _remove_abandoned(place, rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}\.part")
    with making(place) as file:
        yield file


@contextmanager
def making(place: Path) -> Iterator[BinaryIO]:
    """As `replacing`, on this machine, for many files of one folder: nothing is looked for that was left of them."""
    file, beside = _new_file(place)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if place.exists():
                beside.chmod(stat.S_IMODE(place.stat().st_mode))
            put_in_place(beside, place)
    finally:
        beside.unlink(missing_ok=True)


def _new_file(place: Path) -> tuple[BinaryIO, Path]:
    """A file beside its place that is locked while it is open, so that others see that its writer is at work."""
    check_system(place)
    while True:
        beside = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
        file = beside.open("xb")
        if hold_new(file.fileno(), beside):
            return file, beside
        file.close()


@contextmanager
def building(folder: StrPath) -> Iterator[str]:
    """A folder to fill that takes its name, which is new, when the block ends well, and leaves no trace otherwise.

    The files in it are the caller's to flush. What processes that were killed left of the same folder goes, too.
    """
    place = os.path.abspath(folder)
    _remove_abandoned(Path(place), rf"{re.escape(os.path.basename(place))}\.[0-9a-f]{{12}}\.tmp")
    descriptor, beside = _new_folder(place)
    try:
        yield beside
        put_in_place(beside, place)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _new_folder(place: str) -> tuple[int, str]:
    check_system(place)
    while True:
        beside = f"{place}.{secrets.token_hex(6)}.tmp"
        os.mkdir(beside)
        with suppress(FileNotFoundError):
            descriptor = os.open(beside, os.O_RDONLY | os.O_DIRECTORY)
            if hold_new(descriptor, beside):
                return descriptor, beside
            os.close(descriptor)


def _remove_abandoned(place: Path, pattern: str) -> None:
    """Removes what stands beside a place under a name of ours and is locked by nobody: its writer is gone."""
    with suppress(OSError), os.scandir(place.parent) as entries:
        for entry in entries:
            if re.fullmatch(pattern, entry.name):
                with abandoned(entry.path) as left:
                    if left and entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    elif left:
                        os.unlink(entry.path)
