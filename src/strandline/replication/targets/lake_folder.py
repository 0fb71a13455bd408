"""A folder of Parquet whose content a log keeps: what Delta and Iceberg tables have in common as copies.

The parts are the table's data files. A commit is one commit of the table: the files that come and go, and the manifest
with the copy's state, so a position is never anywhere but with the rows that belong to it. Columns of ours stand
beside the table, as in a bare folder:

    orders/
      _strandline/ids/…         our own columns of each part, row by row, where there are any
      _strandline/LOCK

Files that no commit names are not seen, and old ones stay for readers of old versions: removing both is what
the table's own tools do (`VACUUM`, `expire_snapshots`).
"""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import Damaged, SchemaError, StateError, StorageError
from strandline.relations import HOLDERS, Held, held_columns, own_batch, stored_table
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition
from strandline.replication.targets.parquet_folder import IDS, INSIDE, FolderManifest, FolderPart, ParquetFolder
from strandline.storage import flush
from strandline.values import plain_schema

RECORD = "strandline.copy"
"""Where the log holds the manifest."""


@dataclass(frozen=True)
class LakeTable:
    """A table at one version: the manifest (None: it is no copy of ours), its data files with their numbers of rows,
    its columns, and the files that rows were deleted from without writing them again."""

    record: str | None
    files: Mapping[str, int]
    columns: list[tuple[str, str]]
    deleting: frozenset[str] = frozenset()


class LakeFolder(ParquetFolder):
    """The files of one copy, and the log that says which of them count."""

    kind: str
    shown_kind: str
    data: str = ""
    """Where data files stand, below the folder."""

    def __init__(self, path: str) -> None:
        super().__init__(os.path.abspath(path))
        self._seen: tuple[Any, LakeTable] | None = None

    @abstractmethod
    def _newest(self) -> str | None:
        """The newest file of the log; None where there is no table."""

    @abstractmethod
    def _look(self) -> LakeTable:
        """The table as it is."""

    @abstractmethod
    def _columns_of(self, schema: pa.Schema) -> list[tuple[str, str]]:
        """The columns that a table of this schema has, by name, each with its type as the format names it. Their order
        is the table's own."""

    @abstractmethod
    def _commit(self, record: str, schema: pa.Schema, parts: Iterable[FolderPart], going: Iterable[str]) -> None:
        """One commit of the table, which is made if there is none: `parts` come, `going` go, and columns are these."""

    @abstractmethod
    def _of_log(self) -> tuple[str, ...]:
        """The folders and files that make the table, besides data files."""

    def exists(self) -> bool:
        table = self._now()
        return table is not None and table.record is not None

    def _now(self) -> LakeTable | None:
        """The table as it is, read again when its log has grown."""
        newest = self._newest()
        if newest is None:
            return None
        facts = os.stat(newest)
        mark = (newest, facts.st_ino, facts.st_mtime_ns)
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, self._look())
        return self._seen[1]

    def _table(self) -> LakeTable:
        table = self._now()
        if table is None:
            raise Damaged("its log is gone", doing=f"reading the copy in {self.path}", hint="Replicate again")
        return table

    def make(self) -> None:
        os.makedirs(self._inside(IDS), exist_ok=True)

    def is_foreign(self) -> bool:
        if self.exists():
            return False
        return any(files for folder, _, files in os.walk(self.path) if INSIDE not in folder.split(os.sep))

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.make()
        with super().locked():
            yield

    def read(self) -> FolderManifest:
        table = self._table()
        try:
            manifest = FolderManifest.from_text(table.record or "")
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"what the copy recorded about itself can't be read ({error!r})",
                doing=f"opening the copy in {self.path}",
                hint="Remove the folder and replicate again",
            ) from None
        known = {part.name: part for part in manifest.parts}
        parts = tuple(known.get(name, FolderPart(name, rows)) for name, rows in table.files.items())
        return replace(manifest, parts=parts)

    def commit(self, manifest: FolderManifest) -> None:
        definition = CopyState.from_text(manifest.state).definition
        schema = self._stored_schema(definition)
        table = self._now()
        if table is not None and table.columns != self._columns_of(schema):
            manifest = replace(manifest, parts=tuple(self._again(part, definition) for part in manifest.parts))
        kept = {part.name for part in manifest.parts}
        logged = table.files if table is not None else {}
        # What the log says itself is left out of the record: it would grow with the table.
        bounded = tuple(part for part in manifest.parts if part.least is not None)
        record = replace(manifest, parts=bounded, going=()).to_text()
        self.watch("commit")
        new = [part for part in manifest.parts if part.name not in logged]
        self._commit(record, schema, new, [name for name in logged if name not in kept])
        self.watch("after commit")
        self.settle(manifest)

    def settle(self, manifest: FolderManifest) -> None:
        """Removes our columns of parts that are not the copy's any more."""
        known = {part.name for part in (*manifest.parts, *manifest.loading)}
        for name in sorted(os.listdir(self._inside(IDS))):
            if name not in known:
                self.watch(f"remove {name}")
                os.unlink(self._inside(IDS, name))

    def strays(self, manifest: FolderManifest) -> list[str]:
        """Data files that another program wrote, where rows need columns of ours."""
        if not len(CopyState.from_text(manifest.state).definition.ours):
            return []
        return [part.name for part in manifest.parts if not os.path.exists(self._inside(IDS, part.name))]

    def remove(self, manifest: FolderManifest) -> None:
        """Takes the table away, with its old versions; other things in the folder stay."""
        for name in self._of_log():
            shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)
        data = os.path.join(self.path, self.data)
        for name in os.listdir(data) if os.path.isdir(data) else ():
            if name.endswith(".parquet"):
                os.unlink(os.path.join(data, name))
        shutil.rmtree(self._inside(), ignore_errors=True)
        for folder in (data, self.path):
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)

    def check_holdable(self, definition: CopyDefinition) -> None:
        self._held(definition.schema)

    def check_layout(self, definition: CopyDefinition) -> None:
        columns, wanted = self._table().columns, self._columns_of(self._stored_schema(definition))
        if columns != wanted:
            was, now = (", ".join(f"{name} {kind}" for name, kind in side) for side in (wanted, columns))
            raise SchemaError(
                f"the copy's table was altered: it was made with {was} and has {now}",
                doing=f"writing to {self.path}",
                hint="Undo that, repair the copy, or drop it and replicate it again",
            )

    def _again(self, part: FolderPart, definition: CopyDefinition) -> FolderPart:
        """A part in other columns is another part; one that was just written has them."""
        if part.name not in self._table().files:
            return part
        rows = self.load(part, definition.schema, definition.ours)
        ours = rows.select(definition.ours.names) if len(definition.ours) else None
        bounds = None if part.least is None or part.greatest is None else (part.least, part.greatest)
        return self.write(rows.select(definition.schema.names), ours, bounds)

    def _file(self, part: FolderPart) -> str:
        return os.path.join(self.path, self.data, part.name)

    def _held(self, schema: pa.Schema) -> dict[str, Held]:
        return held_columns(schema, HOLDERS[self.kind], self.shown_kind)

    def _stored_schema(self, definition: CopyDefinition) -> pa.Schema:
        held = self._held(definition.schema)
        return pa.schema([(name, held[name].stored) for name in definition.schema.names])

    def _write_rows(self, rows: pa.Table, name: str) -> None:
        stored = stored_table(rows, self._held(rows.schema), f"writing the copy in {self.path}")
        path = os.path.join(self.path, self.data, name)
        try:
            self._write_file(stored, path)
            flush(path)
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StorageError(str(error), doing=f"writing the copy in {self.path}") from None

    def _write_file(self, stored: pa.Table, path: str) -> None:
        pq.write_table(stored, path, compression="zstd", compression_level=1)

    def load(self, part: FolderPart, schema: pa.Schema, ids: pa.Schema) -> pa.Table:
        if part.name in self._table().deleting:
            raise Damaged(
                f"rows of {os.path.basename(part.name)} were deleted by another program",
                doing=f"reading the copy in {self.path}",
                hint="Repair the copy, or refresh with method='full'",
            )
        return super().load(part, schema, ids)

    def _read_rows(self, path: str, schema: pa.Schema) -> pa.Table:
        schema, held = plain_schema(schema), self._held(schema)
        stored = pa.schema([(name, held[name].stored) for name in schema.names])
        doing = f"reading the copy in {self.path}"
        try:
            with pq.ParquetFile(path) as file:
                table = file.read(columns=schema.names).select(schema.names).cast(stored)
            batches = [own_batch(batch, schema, held, doing) for batch in table.to_batches()]
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, StorageError) as error:
            raise Damaged(
                f"{os.path.basename(path)} can't be read: {error}",
                doing=doing,
                hint="The table was edited by hand: repair the copy, or refresh with method='full'",
            ) from None
        return pa.Table.from_batches(batches, schema)
