"""Saved change sets: a folder, on disk or in an object store, of Parquet parts and one `manifest.json`.

The manifest names the parts with their sizes and SHA-256 sums, holds everything that the header says, and carries a
sum of itself; it is written in one canonical way, so that not a byte of it can change unseen. Saving is atomic: a new
folder appears whole, and an existing change set is replaced by replacing its manifest, which is the only thing that
says which parts count. Loading checks all of it, and trusts nothing in the folder before.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from strandline.changes.execution import StoredChanges
from strandline.changes.part_files import PartFile, header_from_json
from strandline.errors import FormatError, InputError, NotFound
from strandline.storage import (
    absolute,
    building,
    copy_file,
    file_exists,
    file_size,
    files_below,
    is_object_url,
    open_version,
    remove_files,
    replacing,
)

FORMAT = 1
KIND = "strandline changes"
MANIFEST = "manifest.json"


def save(changes: StoredChanges, path: str | os.PathLike[str]) -> None:
    """Writes a change set to a folder, or under a URL, replacing a change set that is there, and nothing else."""
    folder = absolute(path)
    replaced = _check_target(folder)
    if not is_object_url(folder):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
    if replaced or is_object_url(folder):
        names = _write_parts(changes, folder)
        _replace_manifest(_manifest(changes, names, folder), folder)
        _remove_others(folder, {*names, MANIFEST})
        return
    with building(folder) as fresh:
        names = _write_parts(changes, fresh)
        _replace_manifest(_manifest(changes, names, fresh), fresh)


def load(path: str | os.PathLike[str]) -> StoredChanges:
    """The change set in the folder `path`, once every byte of it is checked."""
    folder = absolute(path)
    doing = f"loading {os.fspath(path)}"
    manifest = _read_manifest(folder, doing)
    try:
        header = header_from_json(manifest["header"])
        files = [
            (str(part["name"]), int(part["rows"]), int(part["bytes"]), str(part["sha256"]))
            for part in manifest["parts"]
        ]
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise FormatError(f"the manifest does not say what it should: {error!r}", doing=doing) from None
    parts = []
    for name, rows, size, digest in files:
        part = _inside(folder, name, doing)
        if not file_exists(part):
            raise FormatError(f"part {name} is missing", doing=doing, hint="Save the change set again")
        if file_size(part) != size or _sha256(part) != digest:
            raise FormatError(f"part {name} is damaged: its checksum differs", doing=doing, hint="Save it again")
        parts.append(PartFile(part, rows, size))
    return StoredChanges(header, tuple(parts))


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like a saved change set, without checking it."""
    try:
        with open_version(f"{absolute(path)}/{MANIFEST}")[0] as file:
            return bool(json.loads(file.read()).get("kind") == KIND)
    except (OSError, ValueError, AttributeError, NotFound):
        return False


def _check_target(folder: str) -> bool:
    """Whether there is a change set to replace; refuses anything else that is in the way."""
    if not (files_below(folder) if is_object_url(folder) else os.path.lexists(folder)):
        return False
    if is_saved(folder):
        return True
    raise InputError(
        "there is something else in the way that is not a change set",
        doing=f"saving a change set to {folder}",
        hint="Choose another name, or remove it first",
    )


def _write_parts(changes: StoredChanges, folder: str) -> list[str]:
    """Copies the parts under names that were not used before."""
    token = secrets.token_hex(4)
    names = []
    for number, part in enumerate(changes.parts):
        name = f"part-{number:05d}-{token}.parquet"
        copy_file(part.path, f"{folder}/{name}")
        names.append(name)
    return names


def _manifest(changes: StoredChanges, names: list[str], folder: str) -> bytes:
    parts = [
        {"name": name, "rows": part.rows, "bytes": part.bytes, "sha256": _sha256(f"{folder}/{name}")}
        for name, part in zip(names, changes.parts, strict=True)
    ]
    return _canonical({"kind": KIND, "format": FORMAT, "header": changes.header.to_json(), "parts": parts})


def _canonical(body: Mapping[str, Any]) -> bytes:
    """The one way to write a manifest, its own sum included."""
    sealed = {**body, "sha256": hashlib.sha256(_dump(body)).hexdigest()}
    return _dump(sealed)


def _dump(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode("ascii")


def _read_manifest(folder: str, doing: str) -> dict[str, Any]:
    if not is_object_url(folder) and not os.path.lexists(folder):
        raise NotFound("there is no such folder", doing=doing)
    try:
        with open_version(f"{folder}/{MANIFEST}")[0] as file:
            raw = file.read()
    except (OSError, NotFound):
        raise FormatError("it is no saved change set: it has no manifest", doing=doing) from None
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the manifest is damaged: {error}", doing=doing, hint="Save it again") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise FormatError("it is no saved change set: its manifest is of another kind, or damaged", doing=doing)
    number = manifest.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise FormatError(
            f"it has format {number}, and this version reads up to {FORMAT}",
            doing=doing,
            hint="Use a newer Strandline; or the manifest is damaged",
        )
    body = {name: value for name, value in manifest.items() if name != "sha256"}
    if raw != _canonical(body) or number != FORMAT:
        raise FormatError("the manifest is damaged: its checksum differs", doing=doing, hint="Save it again")
    return manifest


def _inside(folder: str, name: str, doing: str) -> str:
    """The path of a part; refuses names and links that lead out of the folder."""
    path = f"{folder}/{name}"
    plain = name and name == os.path.basename(name) and name not in (".", "..") and "\x00" not in name
    local = not is_object_url(folder)
    if not plain or (local and os.path.realpath(path) != os.path.join(os.path.realpath(folder), name)):
        raise FormatError(f"the manifest names {name!r}, which is not in the folder", doing=doing)
    return path


def _replace_manifest(manifest: bytes, folder: str) -> None:
    with replacing(f"{folder}/{MANIFEST}") as file:
        file.write(manifest)


def _remove_others(folder: str, kept: set[str]) -> None:
    """Removes parts that the manifest no longer names; files that are no parts of ours stay."""
    ours = [name for name in files_below(folder) if name.startswith("part-") and name.endswith(".parquet")]
    remove_files([f"{folder}/{name}" for name in ours if name not in kept and "/" not in name])


def _sha256(path: str) -> str:
    with open_version(path)[0] as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
