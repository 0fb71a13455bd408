"""Copies as Iceberg tables, in a folder that is its own catalog. A message and its position are one commit.

The manifest is a property of the table, set in the transaction that adds and removes data files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import ENOENT
from typing import Any

import pyarrow as pa

from strandline.errors import Damaged
from strandline.relations import iceberg_catalog, metadata_file
from strandline.replication.targets.lake_folder import RECORD, LakeFolder, LakeTable
from strandline.replication.targets.parquet_folder import FolderPart


class IcebergFolder(LakeFolder):
    """An Iceberg table as a copy."""

    kind = "iceberg"
    shown_kind = "Iceberg"
    data = "data"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._catalog = iceberg_catalog(path, f"opening the copy in {path}")
        self._looked_at: Any = None
        self._files: dict[str, Any] = {}
        self._begun: Any = None
        """The transaction for which files are being written: they bear the numbers of its columns."""

    def _newest(self) -> str | None:
        metadata = os.path.join(self.path, "metadata")
        names = os.listdir(metadata) if os.path.isdir(metadata) else []
        return metadata_file(self.path) if any(name.endswith(".metadata.json") for name in names) else None

    def _look(self) -> LakeTable:
        table, tasks = self._opened()
        self._looked_at = table
        self._files = {self._name(task.file.file_path): task.file for task in tasks}
        files = {name: file.record_count for name, file in self._files.items()}
        deleting = frozenset(self._name(task.file.file_path) for task in tasks if task.delete_files)
        return LakeTable(table.properties.get(RECORD), files, self._catalog.described(table.schema()), deleting)

    def _opened(self) -> tuple[Any, list[Any]]:
        """The table, and its data files."""
        try:
            table = self._catalog.load_table()
            return table, list(table.scan().plan_files())
        except Exception as error:  # whatever pyiceberg makes of such bytes: it decodes them unchecked
            if isinstance(error, OSError) and error.errno not in (None, ENOENT):
                raise  # the machine, not the table
            raise Damaged(
                f"its metadata can't be read: {' '.join(str(error).split())[:300]}",
                doing=f"opening the copy in {self.path}",
                hint="Move the folder aside, and refresh: the copy is made anew",
            ) from None

    def _name(self, location: str) -> str:
        """Ours by their name, others by their path."""
        path = re.sub(r"^file:(//(?=/))?", "", location)
        folder = os.path.join(os.path.abspath(self.path), self.data)
        return os.path.basename(path) if os.path.dirname(path) == folder else path

    def _columns_of(self, schema: pa.Schema) -> list[tuple[str, str]]:
        return self._catalog.described(schema)

    def _of_log(self) -> tuple[str, ...]:
        return ("metadata",)

    def _commit(self, record: str, schema: pa.Schema, parts: Iterable[FolderPart], going: Iterable[str]) -> None:
        if self._newest() is None:
            self._catalog.create(schema, {RECORD: record})
            return
        transaction, self._begun = self._begun or self._with_columns(schema), None
        transaction.set_properties({RECORD: record})
        new = [self._catalog.data_file(transaction.table_metadata, self._file(part)) for part in parts]
        removed = [self._files[name] for name in going]
        if new or removed:
            update = transaction.update_snapshot()
            with update.overwrite() if removed else update.fast_append() as files:
                for file in removed:
                    files.delete_data_file(file)
                for file in new:
                    files.append_data_file(file)
        transaction.commit_transaction()

    def _write_file(self, stored: pa.Table, path: str) -> None:
        if self._begun is None:
            self._begun = self._with_columns(stored.schema)
        self._catalog.write_data_file(self._begun.table_metadata, stored, path)

    def _with_columns(self, schema: pa.Schema) -> Any:
        """A transaction after which the table has these columns."""
        transaction = self._looked_at.transaction()
        if self._table().columns != self._columns_of(schema):
            self._catalog.replace_columns(transaction, schema)
        return transaction

    @contextmanager
    def locked(self) -> Iterator[None]:
        self._begun = None
        with super().locked():
            yield
