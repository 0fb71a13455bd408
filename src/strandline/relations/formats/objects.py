"""The objects of a source: found by a URL, a prefix or a glob, as files are by a path, a folder or a glob."""

from __future__ import annotations

import fnmatch
import glob
from bisect import bisect_left
from collections.abc import Sequence

from strandline.errors import NotFound, StorageError
from strandline.relations.formats.files import DataFile, hidden, hive_values
from strandline.storage import ObjectVersion, list_objects, object_version


def find_objects(url: str, *, hive: bool = True) -> list[DataFile]:
    """The data files of an object's URL, a prefix or a glob; at least one."""
    root = _listed_root(url)
    found = []
    for each in objects_at(url):
        folders = each.url.removeprefix(root).strip("/").split("/")
        if not any(map(hidden, folders)):
            values = dict(hive_values(folders[:-1])) if hive else {}
            found.append(DataFile(each.url, each.bytes, values, each.mark))
    urls = sorted(file.path for file in found)
    files = [file for file in found if file.bytes or not _marks_a_folder(file.path, urls)]
    if not files:
        raise NotFound("there is no such object, and nothing below it", doing=f"reading {url}", hint="Check the URL")
    return files


def objects_at(url: str) -> list[ObjectVersion]:
    """The objects that a URL stands for: the one of that name, or else those below it, or that fit it as a glob."""
    if url.startswith(("http://", "https://")):  # a web server lists nothing, and `?` is no pattern there
        return [object_version(url)]
    below = list_objects(f"{_listed_root(url)}/")
    if glob.has_magic(url):
        below = [each for each in below if _matches(each.url, url)]
    try:
        whole = [] if url.endswith("/") else [object_version(url)]
    except NotFound:
        whole = []
    except StorageError:  # who may list what is below a prefix alone may not ask for an object of its name
        if not below:
            raise
        whole = []
    return [each for each in whole if each.bytes or not below] or below


def _listed_root(url: str) -> str:
    root = url.rstrip("/")
    while glob.has_magic(root):
        root = root.rpartition("/")[0]
    return root


def _marks_a_folder(url: str, urls: Sequence[str]) -> bool:
    """Whether an empty object stands for a folder, as consoles and Hadoop make them: `name/` or `name_$folder$`.

    Listings leave out the slash: then there is something below that name, or no object of just that name.
    """
    below = bisect_left(urls, f"{url}/")
    if url.endswith("_$folder$") or (below < len(urls) and urls[below].startswith(f"{url}/")):
        return True
    try:
        object_version(url)
    except NotFound:
        return True
    return False


def _matches(url: str, pattern: str) -> bool:
    """Whether a URL fits a glob, name by name; `**` stands for any number of names."""
    return _fits(url.split("/"), pattern.split("/"))


def _fits(names: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_fits(names[n:], patterns[1:]) for n in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], patterns[0]) and _fits(names[1:], patterns[1:])
