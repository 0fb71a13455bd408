"""Files by a path or a URL alike: opened, copied, listed, removed; and what tells one version of a file from others.

A plan is made from one version of a file and carried out later, perhaps elsewhere. A version is told by a *mark*, a
short text. A file that has changed since its mark was taken is refused by name instead of being read as if it had not.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from strandline.errors import FormatError, NotFound
from strandline.storage.durable_file import making, replacing
from strandline.storage.object_file import (
    delete_objects,
    is_object_url,
    list_objects,
    object_version,
    open_object,
    shown,
)


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute path of a file or folder, or its URL without a slash at the end."""
    text = os.fspath(path)
    return text.rstrip("/") if is_object_url(text) else os.path.abspath(text)


def file_exists(path: str) -> bool:
    if not is_object_url(path):
        return os.path.isfile(path)
    try:
        object_version(path)
    except NotFound:
        return False
    return True


def file_size(path: str) -> int:
    return object_version(path).bytes if is_object_url(path) else os.path.getsize(path)


def files_below(folder: str) -> list[str]:
    """The names of the files below a folder, relative to it, in order; none where there is no such folder."""
    if is_object_url(folder):
        root = folder.rstrip("/") + "/"
        return [one.url.removeprefix(root) for one in list_objects(root)]
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


def read_file(path: str) -> bytes | None:
    """What a file or an object holds; None where there is none."""
    try:
        with open_version(path)[0] as file:
            return file.read()
    except (FileNotFoundError, NotFound):
        return None


def write_file(path: str, content: bytes) -> None:
    """A file or an object with that content, in the place of one that may be there; its folders are made."""
    if not is_object_url(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with replacing(path) as file:
        file.write(content)


def copy_file(source: str, target: str) -> None:
    """Copies a file; the copy is there whole and durable, or not at all. It is one of many in a folder."""
    fresh = replacing(target) if is_object_url(target) else making(Path(target))
    with open_version(source)[0] as read, fresh as written:
        shutil.copyfileobj(read, written, 1 << 20)


def remove_files(paths: Sequence[str]) -> None:
    """Removes files, or objects of one bucket; those that are gone already are no error."""
    delete_objects([path for path in paths if is_object_url(path)])
    for path in paths:
        if not is_object_url(path):
            Path(path).unlink(missing_ok=True)


def remove_folder(folder: str) -> None:
    """Removes a folder, or the objects below a URL, as far as it is possible."""
    if is_object_url(folder):
        remove_files([f"{folder}/{name}" for name in files_below(folder)])
    else:
        shutil.rmtree(folder, ignore_errors=True)


def file_mark(path: str) -> str:
    """What tells the version of a file, or of an object by its URL, that is there now."""
    return object_version(path).mark if is_object_url(path) else stat_mark(os.stat(path))


def stat_mark(stat: os.stat_result) -> str:
    """The mark of a local file. Machines may hold copies under one path: their times say nothing to each other."""
    return f"{stat.st_size} {stat.st_mtime_ns}/{stat.st_ino} {socket.gethostname()}"


def open_version(path: str, mark: str | None = None) -> tuple[BinaryIO, str]:
    """A file or object to read, and its mark; one that has another mark than `mark` is refused."""
    if is_object_url(path):
        version = object_version(path)
        _check(path, mark, version.mark)
        return open_object(version), version.mark
    file = open(path, "rb")  # noqa: SIM115 - it is the caller's to close
    present = stat_mark(os.fstat(file.fileno()))
    try:
        _check(path, mark, present)
    except FormatError:
        file.close()
        raise
    return file, present


def check_mark(path: str, mark: str | None) -> None:
    """Refuses a file that has changed since the mark was taken."""
    if mark is not None:
        _check(path, mark, file_mark(path))


def _check(path: str, mark: str | None, present: str) -> None:
    if mark is None or present == mark or _is_copy(present, mark):
        return
    raise FormatError(
        "it was replaced or changed while it was read",
        doing=f"reading {shown(path) if is_object_url(path) else path}",
        hint="Read it again when it is whole",
    )


def _is_copy(present: str, mark: str) -> bool:
    """Whether both marks are of local files of one size on different machines."""
    here, there = present.split(" "), mark.split(" ")
    return len(here) == len(there) == 3 and here[0] == there[0] and here[2] != there[2]
