"""Files in object stores and on the web: found by a URL, a prefix or a glob, told apart as local ones are."""

from __future__ import annotations

import fnmatch
import glob

from strandline.errors import NotFound
from strandline.relations.formats.files import DataFile, hidden, hive_values
from strandline.storage import list_objects, object_version


def find_objects(url: str, *, hive: bool = True) -> list[DataFile]:
    """The data files of an object's URL, a prefix or a glob; at least one."""
    if url.startswith(("http://", "https://")):  # a web server lists nothing, and `?` is no pattern there
        version = object_version(url)
        return [DataFile(url, version.bytes, mark=version.mark)]
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
            files.append(DataFile(each.url, each.bytes, dict(hive_values(names[:-1])) if hive else {}, each.mark))
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
