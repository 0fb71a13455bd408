"""An Iceberg catalog that remembers tables in this process, so that tests can write real tables without a database."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record


class FolderCatalog(MetastoreCatalog, NoopCatalog):  # type: ignore[misc]
    """Creates tables under `warehouse` and lets pyiceberg commit to them."""

    def __init__(self, warehouse: str) -> None:
        super().__init__("folder", warehouse=warehouse)
        self.warehouse = warehouse
        self.tables: dict[Any, Table] = {}

    def create_table(self, identifier: Any, schema: pa.Schema, **options: Any) -> Table:
        location = f"file://{self.warehouse}/{identifier[-1]}"
        staged = self._create_staged_table(identifier, schema, location, **options)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        return self._remember(staged)

    def load_table(self, identifier: Any) -> Table:
        return self.tables[tuple(identifier)]

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        staged = self._update_and_stage_table(table, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._remember(staged)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _remember(self, staged: Any) -> Table:
        name = tuple(staged.name())
        self.tables[name] = Table(name, staged.metadata, staged.metadata_location, staged.io, self)
        return self.tables[name]


class _DeleteManifestWriter(ManifestWriterV2):  # type: ignore[misc]
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def commit_deletes(table: Table, delete_file: str, content: DataFileContent, equality_ids: list[int] | None) -> None:
    """Commits a delete file, as engines do that merge on read; pyiceberg itself only rewrites."""
    head = table.current_snapshot()
    snapshot_id, sequence = head.snapshot_id + 1, head.sequence_number + 1
    size = table.io.new_input(delete_file).__len__()
    entry = DataFile.from_args(
        content=content,
        file_path=delete_file,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
        equality_ids=equality_ids,
    )
    folder = f"{table.location()}/metadata"
    manifest = table.io.new_output(f"{folder}/deletes-{snapshot_id}.avro")
    with _DeleteManifestWriter(table.spec(), table.schema(), manifest, snapshot_id, "deflate") as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, sequence_number=None, data_file=entry))
    listed = f"{folder}/snap-{snapshot_id}.avro"
    with write_manifest_list(
        2, table.io.new_output(listed), snapshot_id, head.snapshot_id, sequence, "deflate"
    ) as lines:
        lines.add_manifests([*head.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence,
        timestamp_ms=head.timestamp_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    reference = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), reference))
