"""A folder of Parquet whose content changes all at once: parts, and a manifest that says which of them count.

    orders/
      part-….parquet            what users read: the copy's rows, with their columns alone
      _strandline/MANIFEST      the truth: state, parts, and parts that are to go
      _strandline/new/…         parts that are written but do not count yet, or are about to be shown
      _strandline/ids/…         our own columns of each part, row by row, where there are any

A commit is the replacement of the manifest. Whatever a stopped process left undone (showing new parts, removing old
ones) is done by the next process that opens the folder to write. Between the manifest and the end of that, a reader of
the bare folder can meet parts of two states; the manifest never does.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes import check_carried
from strandline.errors import Damaged, StorageError
from strandline.replication.definition import CopyDefinition
from strandline.storage import JsonRecord, flush, locked, put_in_place, write_flushed
from strandline.values import cast_rows

INSIDE, MANIFEST, NEW, IDS = "_strandline", "MANIFEST", "new", "ids"
FORMAT = 1


@dataclass(frozen=True)
class FolderPart(JsonRecord):
    """A part file with its number of rows and, where rows have addresses, the least and greatest of them."""

    name: str
    rows: int
    least: int | None = None
    greatest: int | None = None


@dataclass(frozen=True)
class FolderManifest(JsonRecord):
    """What counts: the copy's state, its parts, the parts of a load under way, and names of files to remove."""

    state: str
    parts: tuple[FolderPart, ...] = ()
    loading: tuple[FolderPart, ...] = ()
    going: tuple[str, ...] = ()

    def to_text(self) -> str:
        return json.dumps({"format": FORMAT, **self.to_json()}, sort_keys=True)

    @staticmethod
    def from_text(text: str) -> FolderManifest:
        record = json.loads(text)
        if record["format"] != FORMAT:
            raise ValueError("its format differs")
        return FolderManifest.from_json(record)


class ParquetFolder:
    """The files of one copy."""

    def __init__(self, path: str) -> None:
        self.path = path

    def watch(self, step: str) -> None:
        """Called before each step that is durable; tests stop a process there."""

    def exists(self) -> bool:
        return os.path.exists(self._inside(MANIFEST))

    def is_foreign(self) -> bool:
        """Whether the folder holds something, and not a copy of ours."""
        return not self.exists() and any(name != INSIDE for name in os.listdir(self.path or "."))

    def make(self) -> None:
        for folder in (self.path, self._inside(), self._inside(NEW), self._inside(IDS)):
            os.makedirs(folder, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time; the kernel releases the lock when a process ends, however it ends."""
        with locked(self._inside("LOCK")):
            if self.exists():
                self.settle(self.read())
            yield

    def read(self) -> FolderManifest:
        try:
            with open(self._inside(MANIFEST), "rb") as file:
                record = json.loads(file.read())
            if _digest(record["body"]) != record["sha256"]:
                raise ValueError("its checksum differs")
            return FolderManifest.from_text(record["body"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(
                f"the manifest can't be read: {error}",
                doing=f"opening the copy in {self.path}",
                hint="Remove the folder and replicate again",
            ) from None

    def commit(self, manifest: FolderManifest) -> None:
        """The one step that changes what counts; then the folder is brought to show it."""
        successor = self._inside(f".{MANIFEST}.next")
        self.watch("write the manifest")
        body = manifest.to_text()
        write_flushed(successor, [json.dumps({"sha256": _digest(body), "body": body}).encode()])
        self.watch("swap the manifest")
        put_in_place(successor, self._inside(MANIFEST))
        self.watch("after commit")
        self.settle(manifest)

    def settle(self, manifest: FolderManifest) -> None:
        """Shows parts that count and removes what does not; doing it again changes nothing."""
        waiting = {part.name for part in manifest.loading}
        for name in sorted(os.listdir(self._inside(NEW))):
            if any(part.name == name for part in manifest.parts):
                self.watch(f"show {name}")
                os.replace(self._inside(NEW, name), os.path.join(self.path, name))
            elif name not in waiting:
                os.unlink(self._inside(NEW, name))
                self._forget(self._inside(IDS, name))
        for name in manifest.going:
            self.watch(f"remove {name}")
            self._forget(os.path.join(self.path, name))
            self._forget(self._inside(IDS, name))

    def write(self, rows: pa.Table, ids: pa.Table | None, addresses: tuple[int, int] | None) -> FolderPart:
        """A new part that does not count yet."""
        name = f"part-{secrets.token_hex(8)}.parquet"
        self.watch(f"write {name}")
        if ids is not None:
            self._write_table(ids, self._inside(IDS, name))
        self._write_rows(rows, name)
        least, greatest = addresses or (None, None)
        return FolderPart(name, len(rows), least, greatest)

    def load(self, part: FolderPart, schema: pa.Schema, ids: pa.Schema) -> pa.Table:
        """The chosen columns of a part, ours first, in exactly these types."""
        tables = [self._read_table(self._inside(IDS, part.name), ids)] if len(ids) else []
        if len(schema) or not tables:
            tables.append(self._read_rows(self._file(part), schema))
        for table in tables:
            if len(table) != part.rows:
                raise Damaged(
                    f"{part.name} has {len(table)} rows instead of {part.rows}",
                    doing=f"reading the copy in {self.path}",
                    hint="The folder was edited by hand: repair the copy, or refresh with method='full'",
                )
        whole = tables[0]
        for table in tables[1:]:
            for name in table.column_names:
                whole = whole.append_column(name, table.column(name))
        return whole

    def has(self, part: FolderPart) -> bool:
        """Whether the part's file is there."""
        return os.path.exists(self._file(part))

    def strays(self, manifest: FolderManifest) -> list[str]:
        """Files that readers of the folder take for the copy's, and that are not."""
        known = {part.name for part in manifest.parts} | set(manifest.going)
        unknown = sorted(name for name in os.listdir(self.path) if name.endswith(".parquet") and name not in known)
        return [name for name in unknown if os.path.isfile(os.path.join(self.path, name))]

    def remove(self, manifest: FolderManifest) -> None:
        """Takes the copy away: what counts ends with the manifest."""
        for part in (*manifest.parts, *manifest.loading):
            self._forget(os.path.join(self.path, part.name))
            self._forget(self._inside(NEW, part.name))
            self._forget(self._inside(IDS, part.name))
        self._forget(self._inside(MANIFEST))

    def check_holdable(self, definition: CopyDefinition) -> None:
        """Refuses columns that its files can't hold exactly."""
        check_carried(definition.stored)

    def check_layout(self, definition: CopyDefinition) -> None:
        """Refuses a table whose columns were altered; bare files have no columns but their own."""

    def _file(self, part: FolderPart) -> str:
        shown = os.path.join(self.path, part.name)
        return shown if os.path.exists(shown) else self._inside(NEW, part.name)

    def _write_rows(self, rows: pa.Table, name: str) -> None:
        self._write_table(rows, self._inside(NEW, name))

    def _read_rows(self, path: str, schema: pa.Schema) -> pa.Table:
        return self._read_table(path, schema)

    def _inside(self, *names: str) -> str:
        return os.path.join(self.path, INSIDE, *names)

    def _forget(self, path: str) -> None:
        if os.path.exists(path):
            os.unlink(path)

    def _write_table(self, table: pa.Table, path: str) -> None:
        try:
            pq.write_table(table, path, compression="zstd", compression_level=1)
            flush(path)
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StorageError(str(error), doing=f"writing the copy in {self.path}") from None

    def _read_table(self, path: str, schema: pa.Schema) -> pa.Table:
        try:
            with pq.ParquetFile(path) as file:
                return cast_rows(file.read(columns=schema.names), schema)
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            raise Damaged(
                f"{os.path.basename(path)} can't be read: {error}",
                doing=f"reading the copy in {self.path}",
                hint="The folder was edited by hand: repair the copy, or refresh with method='full'",
            ) from None


def going(manifest: FolderManifest, parts: tuple[FolderPart, ...], strays: Sequence[str] = ()) -> FolderManifest:
    """The manifest with other parts; those that it no longer has are to go, and files that are not the copy's."""
    kept = {part.name for part in parts}
    gone = tuple(part.name for part in manifest.parts if part.name not in kept)
    return replace(manifest, parts=parts, going=(*gone, *strays))


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
