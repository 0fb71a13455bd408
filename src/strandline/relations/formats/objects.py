"""Files in object stores: found by a URL, a prefix or a glob, told apart as local ones are, read by ranges.

What is read from there is Parquet: its footer, and of the rest the columns and row groups that are asked for.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from typing import BinaryIO

import pyarrow as pa

from strandline.errors import FormatError, NotFound
from strandline.relations.formats.files import DataFile, hidden, hive_values
from strandline.storage import is_object_url, list_objects, object_version, open_object


def find_objects(url: str, *, hive: bool = True) -> list[DataFile]:
    """The data files of an object's URL, a prefix or a glob; at least one."""
    root = url.rstrip("/")
    while glob.has_magic(root):
        root = root.rpartition("/")[0]
    versions = list_objects(root)
    whole = [each for each in versions if each.url == url]
    if glob.has_magic(url):
        versions = [each for each in versions if _matches(each.url, url)]
    else:
        versions = whole or [each for each in versions if each.url.startswith(f"{root}/")]
    files = []
    for each in versions:
        names = each.url.removeprefix(root).strip("/").split("/")
        if not each.url.endswith("/") and not any(map(hidden, names)):
            files.append(DataFile(each.url, each.bytes, dict(hive_values(names[:-1])) if hive else {}))
    if not files:
        raise NotFound("there is no such object, and nothing below it", doing=f"reading {url}", hint="Check the URL")
    return files


def _matches(url: str, pattern: str) -> bool:
    """Whether a URL fits a glob, name by name; `**` stands for any number of names."""
    return _fits(url.split("/"), pattern.split("/"))


def _fits(names: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_fits(names[n:], patterns[1:]) for n in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], patterns[0]) and _fits(names[1:], patterns[1:])


def check_parquet(files: list[DataFile], url: str) -> None:
    """Refuses files of other formats, as far as their first bytes tell."""
    with open_bytes(files[0].path) as file:
        if file.read(4) != b"PAR1":
            raise FormatError(
                "it is not Parquet, and nothing else is read from an object store",
                doing=f"reading {url}",
                hint="Copy it to a disk first, or read it with Spark and give the DataFrame",
            )


def open_bytes(path: str) -> BinaryIO:
    """A local file, or an object by its URL, to read."""
    return open_object(object_version(path)) if is_object_url(path) else open(path, "rb")


def open_source(path: str) -> tuple[pa.NativeFile, tuple[str | int | None, ...]]:
    """The same for pyarrow, with what tells this version of the file from others."""
    if is_object_url(path):
        version = object_version(path)
        return pa.PythonFile(open_object(version), mode="r"), (version.bytes, version.tag)
    stat = os.stat(path)
    return pa.OSFile(path), (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
