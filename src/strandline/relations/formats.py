"""Telling formats: by content where a format has a mark, else by name.

A mark beats a name (a Parquet file called `x.csv` is read as Parquet); text has no mark, so CSV and JSON lines are
told by their suffix, and without one by their first line.
"""

from __future__ import annotations

import gzip
import os

from strandline.errors import FormatError, InputError
from strandline.relations.files import DataFile, reading

FORMATS = ("parquet", "csv", "json", "arrow", "delta", "iceberg")
_ALIASES = {
    "jsonl": "json", "ndjson": "json", "jsonlines": "json", "ipc": "arrow", "feather": "arrow", "tsv": "csv",
    "pq": "parquet",
}  # fmt: skip
_SUFFIXES = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "json",
    ".ndjson": "json", ".json": "json", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_PACKED = (".gz", ".bz2", ".zst", ".lz4")
DELIMITERS = (",", ";", "\t", "|")


def said_format(name: str) -> str:
    """The format that a user's word means."""
    word = name.lower().lstrip(".")
    word = _ALIASES.get(word, word)
    if word not in FORMATS:
        raise InputError(f"unknown format {name!r}", doing="reading a source", hint=f"Say one of {', '.join(FORMATS)}")
    return word


def format_of_folder(path: str) -> str | None:
    """`delta` or `iceberg` for the folder of such a table, else None."""
    if os.path.isdir(os.path.join(path, "_delta_log")):
        return "delta"
    metadata = os.path.join(path, "metadata")
    if os.path.isdir(metadata) and any(name.endswith(".metadata.json") for name in os.listdir(metadata)):
        return "iceberg"
    return None


def format_of_file(path: str) -> str:
    """The format of one file, by its first bytes, else by its name."""
    with reading(path):
        head = _head(path)
    return _by_mark(head, path) or _by_name(path) or _by_text(head) or _unknown(path)


def one_format(files: list[DataFile], where: str) -> str:
    """The format of all the files of a folder or glob; two formats in one relation are an error."""
    first = format_of_file(files[0].path)
    for file in files[1:]:
        # A name that agrees is enough: reading the file will show whether it lies.
        if _by_name(file.path) != first and (other := format_of_file(file.path)) != first:
            raise FormatError(
                f"it mixes formats: {files[0].path} is {first} and {file.path} is {other}",
                doing=f"reading {where}",
                hint="Name the files with a glob, such as folder/*.parquet",
            )
    return first


def sniffed_delimiter(line: str) -> str:
    """The delimiter that cuts a first line, quoted parts aside, into most pieces; a comma where none does."""
    bare = "".join(line.split('"')[::2])
    best = max(DELIMITERS, key=bare.count)
    return best if bare.count(best) else ","


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        head = file.read(4096)
    if head.startswith(b"\x1f\x8b"):
        with gzip.open(path, "rb") as packed:
            try:
                return packed.read(4096)
            except (EOFError, OSError):
                return head
    return head


def _by_mark(head: bytes, path: str) -> str | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith(b"FEA1"):
        raise FormatError("it is in the old Feather format 1", doing=f"reading {path}", hint="Write it as Feather 2")
    if head.startswith(b"PK\x03\x04"):
        raise FormatError("it is a zip file (or a spreadsheet)", doing=f"reading {path}", hint="Unpack it first")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and b'"format-version"' in head and path.endswith(".metadata.json"):
        return "iceberg"
    if text.startswith(b"[{") or (text.startswith(b"[") and path.endswith(".json")):
        raise FormatError(
            "it is one JSON array, not JSON lines",
            doing=f"reading {path}",
            hint="Write one object per line: jq -c '.[]'",
        )
    return None


def _by_name(path: str) -> str | None:
    name = os.path.basename(path).lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    if name.endswith(".metadata.json"):
        return "iceberg"
    return _SUFFIXES.get(os.path.splitext(name)[1])


def _by_text(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip().startswith(b"{"):
        return "json"
    line = text.split(b"\n", 1)[0]
    if b"\x00" in head or not any(mark.encode() in line for mark in DELIMITERS):
        return None
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "csv"


def _unknown(path: str) -> str:
    raise FormatError(
        "neither its name nor its content tells its format",
        doing=f"reading {path}",
        hint=f"Say it with format=, one of {', '.join(FORMATS)}",
    )
