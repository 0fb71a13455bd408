"""Copies as Delta tables. A message, and the position that it leads to, are one commit of the log.

The manifest stands in the commit's information, and beside it the number of the commit as the version of an
application's transaction, which the log always keeps: a table whose log has lost our last commit is known to be ours.
A commit is never rebased: if the table has another version than the one that was read, it is refused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from strandline.errors import Conflict, Damaged, StateError, StorageError
from strandline.replication.targets.lake_folder import RECORD, LakeFolder, LakeTable
from strandline.replication.targets.parquet_folder import FolderPart
from strandline.storage import flush

APPLICATION = "strandline"
LOG = "_delta_log"


class DeltaFolder(LakeFolder):
    """A Delta table as a copy."""

    kind = "delta"
    shown_kind = "Delta"
    _looked_at: DeltaTable

    def _newest(self) -> str | None:
        log = os.path.join(self.path, LOG)
        commits = [name for name in os.listdir(log) if name.endswith(".json")] if os.path.isdir(log) else []
        return os.path.join(log, max(commits)) if commits else None

    def _look(self) -> LakeTable:
        table = self._looked_at = self._open()
        actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "num_records"]).to_pylist()
        files = {one["path"]: self._rows(one["path"], one["num_records"]) for one in actions}
        deleting: list[str] = []
        if "deletionVectors" in (table.protocol().reader_features or ()):
            deleting = pa.table(table.deletion_vectors()).column("filepath").to_pylist()
        names = frozenset(os.path.basename(path) for path in deleting)
        return LakeTable(self._record(table), files, _described(table.schema()), names)

    def _record(self, table: DeltaTable) -> str | None:
        if table.transaction_version(APPLICATION) is None:
            return None
        for limit in (1, 20, None):
            for entry in table.history(limit):
                if RECORD in entry:
                    return str(entry[RECORD])
        raise StateError(
            "the log no longer holds what the copy recorded about itself",
            doing=f"opening the copy in {self.path}",
            hint="Remove the folder and replicate again",
        )

    def _rows(self, path: str, counted: int | None) -> int:
        return pq.read_metadata(self._file(FolderPart(path, 0))).num_rows if counted is None else counted

    def _columns_of(self, schema: pa.Schema) -> list[tuple[str, str]]:
        return _described(Schema.from_arrow(schema))

    def _of_log(self) -> tuple[str, ...]:
        return (LOG,)

    def _file(self, part: FolderPart) -> str:
        return os.path.join(self.path, unquote(part.name).removeprefix("file://"))

    def _commit(self, record: str, schema: pa.Schema, parts: Iterable[FolderPart], going: Iterable[str]) -> None:
        now = int(time.time() * 1000)
        adds = [
            AddAction(
                part.name,
                os.path.getsize(self._file(part)),
                {},
                now,
                data_change=True,
                stats=json.dumps({"numRecords": part.rows}),
            )
            for part in parts
        ]
        seen = None if self._seen is None else self._seen[0][0]
        try:
            if self._newest() is None:
                DeltaTable.create(self.path, Schema.from_arrow(schema), commit_properties=_with(record, 0))
            else:
                table = self._looked_at
                properties = _with(record, (table.transaction_version(APPLICATION) or 0) + 1)
                if _described(table.schema()) == self._columns_of(schema):
                    removes = [RemoveAction(name, data_change=True, deletion_timestamp=now) for name in going]
                    table.create_write_transaction([*adds, *removes], "append", schema, commit_properties=properties)
                else:  # other columns: all files are new, and the others go
                    table.create_write_transaction(adds, "overwrite", schema, commit_properties=properties)
        except DeltaError as error:
            if isinstance(error, CommitFailedError) and self._newest() != seen:
                raise Conflict("the table was written to meanwhile", doing=f"writing to {self.path}") from None
            raise StorageError(str(error).splitlines()[0], doing=f"writing to {self.path}") from None
        flush(self._newest() or self.path)

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.path)
        except DeltaError as error:
            raise Damaged(
                f"its log can't be read: {' '.join(str(error).split())[:300]}",
                doing=f"opening the copy in {self.path}",
                hint="Remove the folder and replicate again",
            ) from None


def _with(record: str, number: int) -> CommitProperties:
    return CommitProperties({RECORD: record}, max_commit_retries=0, app_transactions=[Transaction(APPLICATION, number)])


def _described(schema: Schema) -> list[tuple[str, str]]:
    return sorted((field.name, str(field.type.to_json())) for field in schema.fields)
