"""Saved signatures: the state that one differential leaves for the next (sections 3.2 and 3.3).

A state is a folder: `manifest.json` names the segments of one generation and says what they were made with. A new
generation is written beside the old one, then the manifest is replaced by a rename, then the old files go: a crash
leaves the old state or the new one, and what it may leave besides is removed by the next save.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.differential.signatures.known_blocks import KnownBlock
from strandline.differential.signatures.signature_file import SignatureSegment, SignatureSpec, rename_fields
from strandline.errors import FormatError, InputError, NotFound, StateError
from strandline.relations import schema_from_text, schema_to_text
from strandline.storage import flush, locked, replacing

FORMAT = 1
MANIFEST = "manifest.json"
KIND = "strandline signatures"
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
        return replace(self, spec=self.spec.renamed(names), schema=rename_fields(self.schema, names), blocks=())

    def check_fits(self, spec: SignatureSpec, where: str | None) -> None:
        """Refuses a request that these signatures can't answer, saying what differs."""
        wrong = list(self.spec.scheme.differences(spec.scheme))
        if self.spec.key != spec.key:
            wrong.append(f"key: {', '.join(self.spec.key)} was saved, {', '.join(spec.key)} is asked for")
        else:
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
    if not isinstance(path, (str, os.PathLike)):
        return False
    try:
        return bool(json.loads((Path(path) / MANIFEST).read_text()).get("kind") == KIND)
    except (OSError, ValueError, AttributeError):
        return False


def load_state(path: str | os.PathLike[str]) -> SignatureState:
    """The state in a folder; a damaged, foreign or newer one is refused."""
    folder = Path(path)
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", doing=_DOING, hint="Make one with --save-state")
    try:
        record = json.loads((folder / MANIFEST).read_bytes())
        checksum = record.pop("checksum")
        newer = record.get("format", 0) > FORMAT
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
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


def save_state(state: SignatureState, path: str | os.PathLike[str]) -> SignatureState:
    """Puts a state in a folder, replacing the one that may be there, atomically."""
    folder = Path(path)
    if folder.exists() and not _is_ours(folder):
        raise InputError(
            f"{folder} exists and is not a folder of saved signatures",
            doing="saving signatures",
            hint="Name another folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):  # sweeping must not meet a generation that another process is writing
        try:
            return _save_generation(state, folder)
        finally:
            # Also after a failure, which may have come after the manifest was replaced: what it names stays.
            _sweep(folder)


def _save_generation(state: SignatureState, folder: Path) -> SignatureState:
    generation = folder / secrets.token_hex(6)
    generation.mkdir()
    segments = _copy_segments(state.segments, generation)
    saved = SignatureState(state.spec, state.schema, segments, state.blocks, state.source, state.where, str(folder))
    _replace_manifest(folder, _record(saved, folder))
    return saved


def has_state(path: str | os.PathLike[str]) -> bool:
    """Whether something stands where a state is asked for; what a first save left when it was stopped is nothing."""
    return Path(path).exists() and not _is_unfinished(Path(path))


def _is_ours(folder: Path) -> bool:
    return is_state(folder) or _is_unfinished(folder)


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


def _copy_segments(segments: Sequence[SignatureSegment], folder: Path) -> tuple[SignatureSegment, ...]:
    copied = []
    for place, segment in enumerate(segments):
        target = folder / f"{place:05d}.arrow"
        with contextlib.suppress(OSError):
            os.link(segment.path, target)
        if not target.exists():
            shutil.copyfile(segment.path, target)
        flush(target)
        copied.append(SignatureSegment(**{**vars(segment), "path": str(target)}))
    flush(folder)
    return tuple(copied)


def _replace_manifest(folder: Path, record: dict[str, Any]) -> None:
    with replacing(folder / MANIFEST) as file:
        file.write(json.dumps({**record, "checksum": _digest(record)}, indent=1).encode())


def _record(state: SignatureState, folder: Path) -> dict[str, Any]:
    return {
        "kind": KIND,
        "format": FORMAT,
        "making": state.spec.to_json(),
        "schema": schema_to_text(state.schema),
        "source": state.source,
        "where": state.where,
        "segments": [
            {**segment.to_json(), "path": Path(segment.path).relative_to(folder).as_posix()}
            for segment in state.segments
        ],
        "blocks": [block.to_json() for block in state.blocks],
    }


def _from_record(record: Mapping[str, Any], folder: Path) -> SignatureState:
    try:
        segments = []
        for entry in record["segments"]:
            path = (folder / entry["path"]).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise FormatError(f"the manifest of {folder} names a file outside of it", doing=_DOING)
            segments.append(SignatureSegment.from_json({**entry, "path": str(path)}))
        return SignatureState(
            spec=SignatureSpec.from_json(record["making"]),
            schema=schema_from_text(record["schema"]),
            segments=tuple(segments),
            blocks=tuple(KnownBlock(**block) for block in record["blocks"]),
            source=record["source"],
            where=record["where"],
            path=str(folder),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise FormatError(f"the manifest of {folder} can't be read: {error!r}", doing=_DOING) from error


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
