"""Finding the files of a source: a path, a folder, a glob; hidden files left out; hive folders understood.

A name that begins with `_` or `.` is hidden (`_SUCCESS`, `_temporary`, `.part-0.crc`), unless it is a hive folder such
as `_day=1`. Files come in the order of their paths.
"""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from strandline.errors import FormatError, InputError, NotFound

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """One file of a source. `hive` holds the text of the `column=value` folders above it; None is null."""

    path: str
    bytes: int
    hive: dict[str, str | None] = field(default_factory=dict)


def local_path(source: str | os.PathLike[str]) -> str:
    """The absolute path that a path or a `file://` URL means."""
    text = os.fspath(source)
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    url = urlsplit(text)
    if url.scheme != "file":
        raise InputError(
            f"the scheme {url.scheme}:// is not supported",
            doing=f"reading {text}",
            hint="Give a local path or a file:// URL",
        )
    if url.netloc not in ("", "localhost"):
        raise InputError(f"the host {url.netloc!r} is not this machine", doing=f"reading {text}")
    return os.path.abspath(unquote(text.split("://", 1)[1].removeprefix(url.netloc)))


def find_files(path: str, *, hive: bool = True) -> list[DataFile]:
    """The data files of a path, a folder or a glob; at least one."""
    with reading(path):
        if os.path.isfile(path):
            found = [DataFile(path, os.path.getsize(path))]
        elif os.path.isdir(path):
            found = sorted(_inside(path, path, hive), key=lambda file: file.path)
            if not found:
                raise _no_data(path)
        else:
            found = _matching(path, hive)
    check_readable(found)
    return found


def check_readable(files: list[DataFile]) -> None:
    for file in files:
        if not os.access(file.path, os.R_OK):
            raise _forbidden(file.path) if os.path.exists(file.path) else missing(file.path)


@contextmanager
def reading(path: str, what: str = "") -> Iterator[None]:
    """Turns what goes wrong while reading `path` into our errors; a failing disk stays what it is."""
    try:
        yield
    except FileNotFoundError as error:
        raise damaged(path, what, error) if os.path.exists(path) else missing(path) from None
    except PermissionError:
        raise _forbidden(path) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise damaged(path, what, error) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(path, what, error) from error


def damaged(path: str, what: str, error: BaseException) -> FormatError:
    reason = " ".join(str(error).split())[:300]
    return FormatError(
        f"it is not a whole, readable {what or 'data'} file: {reason}",
        doing=f"reading {path}",
        hint="The file may be damaged or still being written; or say what it is with format=",
    )


def missing(path: str) -> NotFound:
    """The error for a path that is not there, with the names nearest to it."""
    folder, name = os.path.split(path.rstrip(os.sep))
    if not os.path.isdir(folder):
        while folder and not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return NotFound("there is no such file or folder", doing=f"reading {path}", hint=f"{folder} is there")
    try:
        near = difflib.get_close_matches(name, os.listdir(folder), n=3, cutoff=0.5)
    except OSError:
        near = []
    hint = f"Did you mean {' or '.join(os.path.join(folder, n) for n in near)}?" if near else f"See what {folder} holds"
    return NotFound("there is no such file or folder", doing=f"reading {path}", hint=hint)


def _matching(path: str, hive: bool) -> list[DataFile]:
    if not glob.has_magic(path):
        raise missing(path)
    root = path
    while glob.has_magic(root):
        root = os.path.dirname(root)
    found: list[DataFile] = []
    for match in sorted(glob.glob(path, recursive=True)):
        if os.path.isdir(match):
            if not path.endswith("**") and not _hidden(os.path.basename(match)):
                found.extend(_inside(match, root, hive))
        elif not any(_hidden(name) for name in os.path.relpath(match, root).split(os.sep)):
            found.append(_data_file(match, root, hive))
    if not found:
        raise NotFound("no file matches", doing=f"reading {path}", hint=f"See what {root} holds")
    return list({file.path: file for file in found}.values())


def _inside(folder: str, root: str, hive: bool) -> Iterator[DataFile]:
    for above, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        _check_loops(above, folders)
        for name in sorted(names):
            if not _hidden(name):
                yield _data_file(os.path.join(above, name), root, hive)


def _check_loops(above: str, folders: list[str]) -> None:
    """Links to folders are followed; one that leads back up would give rows twice."""
    here = os.path.realpath(above)
    for name in folders:
        link = os.path.join(above, name)
        if os.path.islink(link) and os.path.commonpath([here, os.path.realpath(link)]) == os.path.realpath(link):
            raise InputError("this link leads back to a folder above it", doing=f"reading {link}", hint="Remove it")


def _data_file(path: str, root: str, hive: bool) -> DataFile:
    folders = os.path.relpath(os.path.dirname(path), root).split(os.sep)
    return DataFile(path, os.path.getsize(path), dict(_hive_values(folders)) if hive else {})


def _hive_values(folders: list[str]) -> Iterator[tuple[str, str | None]]:
    for folder in folders:
        column, equals, value = folder.partition("=")
        if equals and column:
            yield unquote(column), None if value == _NULL_FOLDER else unquote(value)


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) and "=" not in name


def _raise(error: OSError) -> None:
    raise error


def _forbidden(path: str) -> InputError:
    return InputError(
        "permission to read it is denied", doing=f"reading {path}", hint="Ask its owner, or read it as another user"
    )


def _no_data(path: str) -> NotFound:
    try:
        hidden = sorted(os.listdir(path))[:5]
    except OSError:
        hidden = []
    why = f"the folder holds no data, only {', '.join(hidden)}" if hidden else "the folder is empty"
    return NotFound(why, doing=f"reading {path}", hint="Name a folder with data files, or a file")
