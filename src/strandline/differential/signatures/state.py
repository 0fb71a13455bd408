"""Saved signatures: the state that one differential leaves for the next (sections 3.2 and 3.3).

A state is a folder: `manifest.json` names the segments of one generation and says what they were made with. A new
generation is written beside the old one, then the manifest is replaced by a rename, then the old files go: a crash
leaves the old state or the new one, and what it may leave besides is removed by the next save.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.differential.signatures.known_blocks import KnownBlock
from strandline.differential.signatures.signature_file import SignatureSegment, SignatureSpec, rename_fields
from strandline.errors import FormatError, InputError, NotFound, StateError, StorageError
from strandline.relations import schema_from_text, schema_to_text
from strandline.storage import (
    absolute,
    copy_file,
    files_below,
    flush,
    is_object_url,
    list_objects,
    locked,
    open_version,
    remove_files,
    replacing,
)
from strandline.values import parse_condition, renamed_columns

FORMAT = 1
MANIFEST = "manifest.json"
KIND = "strandline signatures"
LEFT_DAYS = 1
"""How old what a save that was stopped left in an object store must be to be removed."""

_GENERATION = re.compile("[0-9a-f]{12}")
_DOING = "reading saved signatures"


@dataclass(frozen=True)
class SignatureState:
    """Signatures of a relation, in segments that are sorted and disjoint, in ascending order of number."""

    spec: SignatureSpec
    schema: pa.Schema
    segments: tuple[SignatureSegment, ...]
    blocks: tuple[KnownBlock, ...] = ()
    source: str = ""
    where: str | None = None
    path: str | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    def renamed(self, names: Mapping[str, str]) -> SignatureState:
        """The same signatures under other column names: values alone are hashed, never names.

        Blocks go: their shapes tell the names that the columns had.
        """
        if not names:
            return self
        schema = rename_fields(self.schema, names)
        where = self.where and parse_condition(renamed_columns(self.where, names), schema).sql
        return replace(self, spec=self.spec.renamed(names), schema=schema, where=where, blocks=())

    def check_fits(self, spec: SignatureSpec, where: str | None) -> None:
        """Refuses a request that these signatures can't answer, saying what differs."""
        wrong = list(self.spec.scheme.differences(spec.scheme)) if self.rows else []
        if self.spec.key != spec.key:
            wrong.append(f"key: {', '.join(self.spec.key)} was saved, {', '.join(spec.key)} is asked for")
        elif self.rows:
            wrong += self.spec.key_differences(spec)
        if self.where != where:
            wrong.append(f"condition: {self.where or 'none'} was saved, {where or 'none'} is asked for")
        if spec.column_signatures and not self.spec.column_signatures:
            wrong.append("per-column signatures: none were saved")
        if spec.pointers and not self.spec.pointers:
            wrong.append("pointers: none were saved")
        if wrong:
            raise StateError(
                f"the saved signatures don't fit: {'; '.join(wrong)}",
                doing=f"comparing with {self.path or 'saved signatures'}",
                hint="Ask for what was saved, or save a new state from the old extract with --save-state",
            )


def is_state(path: object) -> bool:
    """Whether a path is a folder of saved signatures (or was meant as one: a folder with our manifest)."""
    if not isinstance(path, (str, os.PathLike)) or str(path).startswith(("http://", "https://")):
        return False
    try:
        return bool(json.loads(_read_manifest(absolute(path))).get("kind") == KIND)
    except (OSError, ValueError, AttributeError, NotFound, StorageError):
        return False  # it is then opened as data, which says what is wrong with the storage


def _read_manifest(folder: str) -> bytes:
    with open_version(f"{folder}/{MANIFEST}")[0] as file:
        return file.read()


def load_state(path: str | os.PathLike[str]) -> SignatureState:
    """The state in a folder, or under a URL; a damaged, foreign or newer one is refused."""
    folder = absolute(path)
    if not has_state(folder):
        raise NotFound(f"there is no folder {folder}", doing=_DOING, hint="Make one with --save-state")
    try:
        record = json.loads(_read_manifest(folder))
        checksum = record.pop("checksum")
        newer = record.get("format", 0) > FORMAT
    except (OSError, ValueError, KeyError, AttributeError, TypeError, NotFound) as error:
        raise FormatError(f"{folder} is no state, or its manifest is damaged ({error})", doing=_DOING) from error
    if record.get("kind") != KIND:
        raise FormatError(f"{folder} is not a folder of saved signatures", doing=_DOING)
    if newer:
        raise FormatError(
            f"{folder} has format {record['format']}, and this version reads up to {FORMAT}",
            doing=_DOING,
            hint="Install a newer Strandline, or make the state anew",
        )
    if _digest(record) != checksum:
        raise FormatError(
            f"the manifest of {folder} is damaged: its checksum differs",
            doing=_DOING,
            hint="Make the state anew from the old extract with --save-state",
        )
    return _from_record(record, folder)


def state_lock(path: str | os.PathLike[str], *, shared: bool = False) -> AbstractContextManager[Any]:
    """Keeps runs on one local state apart: a run that replaces it holds the lock from reading it on, readers share it.

    There is none at a URL, nor where something else stands than a folder, nor for readers of nothing.
    """
    if is_object_url(path) or (shared and not os.path.isdir(path)):
        return contextlib.nullcontext()
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        return contextlib.nullcontext()
    return locked(path, shared=shared, folder=True)


def save_state(state: SignatureState, path: str | os.PathLike[str], *, held: bool = False) -> SignatureState:
    """Puts a state in a folder, or under a URL, replacing the one that may be there, atomically.

    `held` says that the caller has its `state_lock`.
    """
    place = absolute(path)
    if has_state(place) and not is_state(place):
        raise InputError(
            f"{place} exists and is not a folder of saved signatures",
            doing="saving signatures",
            hint="Name another folder",
        )
    if is_object_url(place):
        return _save_objects(state, place)
    folder = Path(place)
    # Sweeping must not meet a generation that another process is writing.
    with contextlib.nullcontext() if held else state_lock(place):
        try:
            (folder / (generation := secrets.token_hex(6))).mkdir()
            return _save_generation(state, place, generation)
        finally:
            # Also after a failure, which may have come after the manifest was replaced: what it names stays.
            _sweep(folder)


def _save_objects(state: SignatureState, url: str) -> SignatureState:
    """The same in an object store, which has no locks: only the generation that was replaced goes, and old ones."""
    before = _read_manifest(url).decode() if is_state(url) else ""
    saved = _save_generation(state, url, secrets.token_hex(6))
    now = _read_manifest(url).decode()
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=LEFT_DAYS)
    gone = []
    for stored in list_objects(f"{url}/"):
        generation = stored.url.removeprefix(f"{url}/").partition("/")[0]
        left = generation in before or (stored.modified is not None and stored.modified < old)
        if _GENERATION.fullmatch(generation) and generation not in now and left:
            gone.append(stored.url)
    remove_files(gone)
    return saved


def _save_generation(state: SignatureState, folder: str, generation: str) -> SignatureState:
    segments = _copy_segments(state.segments, f"{folder}/{generation}")
    saved = SignatureState(state.spec, state.schema, segments, state.blocks, state.source, state.where, folder)
    _replace_manifest(folder, _record(saved, folder))
    return saved


def has_state(path: str | os.PathLike[str]) -> bool:
    """Whether something stands where a state is asked for; what a first save left when it was stopped is nothing."""
    if is_object_url(path):
        names = {name.partition("/")[0] for name in files_below(absolute(path))}
        return any(not _GENERATION.fullmatch(name) for name in names)
    return Path(path).exists() and not _is_unfinished(Path(path))


def _is_unfinished(folder: Path) -> bool:
    """An empty folder, or one in which only generations and unnamed manifests stand."""
    return folder.is_dir() and all(_is_leftover(inner) for inner in folder.iterdir())


def _is_leftover(inner: Path) -> bool:
    return bool(_GENERATION.fullmatch(inner.name)) if inner.is_dir() else inner.name.startswith(f".{MANIFEST}.")


def _sweep(folder: Path) -> None:
    """Removes every generation and manifest but those in force, as far as that is possible."""
    try:
        named = (folder / MANIFEST).read_text()
    except FileNotFoundError:
        named = ""
    except OSError:
        return
    for inner in folder.iterdir():
        if not _is_leftover(inner) or inner.name in named:
            continue
        if inner.is_dir():
            shutil.rmtree(inner, ignore_errors=True)
        else:
            inner.unlink(missing_ok=True)


def _copy_segments(segments: Sequence[SignatureSegment], folder: str) -> tuple[SignatureSegment, ...]:
    copied = []
    for place, segment in enumerate(segments):
        target = f"{folder}/{place:05d}.arrow"
        _link_or_copy(segment.path, target)
        copied.append(SignatureSegment(**{**vars(segment), "path": target}))
    if not is_object_url(folder):
        flush(folder)
    return tuple(copied)


def _link_or_copy(path: str, target: str) -> None:
    if not is_object_url(target):
        with contextlib.suppress(OSError):
            os.link(path, target)
            flush(target)
            return
    copy_file(path, target)


def _replace_manifest(folder: str, record: dict[str, Any]) -> None:
    with replacing(f"{folder}/{MANIFEST}") as file:
        file.write(json.dumps({**record, "checksum": _digest(record)}, indent=1).encode())


def _record(state: SignatureState, folder: str) -> dict[str, Any]:
    return {
        "kind": KIND,
        "format": FORMAT,
        "making": state.spec.to_json(),
        "schema": schema_to_text(state.schema),
        "source": state.source,
        "where": state.where,
        "segments": [
            {**segment.to_json(), "path": segment.path.removeprefix(f"{folder}/")} for segment in state.segments
        ],
        "blocks": [block.to_json() for block in state.blocks],
    }


def _from_record(record: Mapping[str, Any], folder: str) -> SignatureState:
    try:
        segments = []
        for entry in record["segments"]:
            segments.append(SignatureSegment.from_json({**entry, "path": _inside(folder, entry["path"])}))
        return SignatureState(
            spec=SignatureSpec.from_json(record["making"]),
            schema=schema_from_text(record["schema"]),
            segments=tuple(segments),
            blocks=tuple(KnownBlock(**block) for block in record["blocks"]),
            source=record["source"],
            where=record["where"],
            path=folder,
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise FormatError(f"the manifest of {folder} can't be read: {error!r}", doing=_DOING) from error


def _inside(folder: str, name: str) -> str:
    """The path of a file that the manifest names; refuses one outside of the folder."""
    if is_object_url(folder):
        path, within = f"{folder}/{name}", ".." not in name.split("/") and not name.startswith("/")
    else:
        target = (Path(folder) / name).resolve()
        path, within = str(target), target.is_relative_to(Path(folder).resolve())
    if not within:
        raise FormatError(f"the manifest of {folder} names a file outside of it", doing=_DOING)
    return path


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
