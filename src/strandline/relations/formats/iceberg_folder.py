"""Iceberg tables whose catalog is their own folder: to create `metadata/vN.metadata.json` is to commit state N.

`version-hint.text` follows the commit and may lag behind. A commit is refused if the table is no longer what it was
when it was loaded: the caller then loads it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate, update_table_metadata
from pyiceberg.typedef import Record

from strandline.errors import AlreadyExists, Conflict
from strandline.relations.formats.iceberg import metadata_file, metadata_number
from strandline.storage import LocalStorage, flush, replacing

_TIDY = {"write.metadata.delete-after-commit.enabled": "true"}


class IcebergFolderCatalog(NoopCatalog):  # type: ignore[misc]
    """Commits to the one table of a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__("folder")
        self.folder = os.path.abspath(folder)

    def create(self, schema: pa.Schema, properties: Mapping[str, str] | None = None) -> Table:
        """The folder's table, new and without rows."""
        metadata = new_table_metadata(
            schema=_numbered(schema),
            partition_spec=UNPARTITIONED_PARTITION_SPEC,
            sort_order=UNSORTED_SORT_ORDER,
            location=_location(self.folder),
            properties={**_TIDY, **(properties or {})},
        )
        for inside in ("metadata", "data"):
            os.makedirs(os.path.join(self.folder, inside), exist_ok=True)
        self._write(metadata, 1)
        return self.load_table()

    def load_table(self, identifier: Any = ()) -> Table:
        location = metadata_file(self.folder)
        io = load_file_io({}, location)
        return Table(("folder", "table"), FromInputFile.table_metadata(io.new_input(location)), location, io, self)

    def commit_table(self, table: Table, requirements: Sequence[Any], updates: Sequence[Any]) -> CommitTableResponse:
        for requirement in requirements:
            requirement.validate(table.metadata)
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                self._flush_manifests(table, update.snapshot)
        metadata = update_table_metadata(table.metadata, tuple(updates), metadata_location=table.metadata_location)
        location = self._write(metadata, metadata_number(os.path.basename(table.metadata_location)) + 1)
        return CommitTableResponse(metadata=metadata, metadata_location=location)

    def _write(self, metadata: TableMetadata, number: int) -> str:
        """State `number`, durable; refused if there is one."""
        name = f"metadata/v{number}.metadata.json"
        try:
            LocalStorage(self.folder).put_if_absent(name, metadata.model_dump_json().encode())
        except AlreadyExists:
            raise Conflict("the table was written to meanwhile", doing=f"writing to {self.folder}") from None
        with replacing(os.path.join(self.folder, "metadata", "version-hint.text")) as file:
            file.write(str(number).encode())
        return os.path.join(self.folder, name)

    def _flush_manifests(self, table: Table, snapshot: Any) -> None:
        added = [one for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id]
        for location in (snapshot.manifest_list, *(one.manifest_path for one in added)):
            flush(re.sub(r"^file://", "", location))

    @staticmethod
    def replace_columns(transaction: Transaction, schema: pa.Schema) -> None:
        """Gives the table these columns; one whose type differs is another column of that name."""
        held = {field.name: field.field_type for field in transaction.table_metadata.schema().fields}
        new = {field.name: field.field_type for field in _numbered(schema).fields}
        kept = {name for name in held if name in new and _plain(held[name]) == _plain(new[name])}
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in held:
                if name not in kept:
                    update.delete_column((name,))
        with transaction.update_schema() as update:
            for name, kind in new.items():
                if name not in kept:
                    update.add_column((name,), kind)
        with transaction.update_schema() as update:
            before = None
            for name in new:
                update.move_after((name,), (before,)) if before else update.move_first((name,))
                before = name

    @staticmethod
    def described(schema: Schema | pa.Schema) -> list[tuple[str, str]]:
        """The columns in any order, each with its type as Iceberg names it."""
        held = schema if isinstance(schema, Schema) else _numbered(schema)
        return sorted((field.name, _plain(field.field_type)) for field in held.fields)

    @staticmethod
    def write_data_file(metadata: TableMetadata, rows: pa.Table, path: str) -> None:
        """Rows as a data file of the table, with its field ids."""
        schema = schema_to_pyarrow(metadata.schema())
        pq.write_table(rows.select(schema.names).cast(schema), path, compression="zstd", compression_level=1)

    @staticmethod
    def data_file(metadata: TableMetadata, path: str) -> DataFile:
        """A file that `write_data_file` wrote, as a manifest lists it."""
        schema, footer = metadata.schema(), pq.read_metadata(path)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=_location(path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=os.path.getsize(path),
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _location(path: str) -> str:
    """A path as Iceberg writes locations: nothing is escaped, so one that would end a URL's path has no scheme."""
    path = os.path.abspath(path)
    return path if set(path) & set("#?") else f"file://{path}"


def _numbered(schema: pa.Schema) -> Schema:
    """Columns of Arrow as columns of Iceberg, numbered."""
    numbers = iter(range(1, 1 << 30))

    def field(one: pa.Field) -> pa.Field:
        number = next(numbers)
        return pa.field(one.name, inner(one.type), metadata={"PARQUET:field_id": str(number)})

    def inner(kind: pa.DataType) -> pa.DataType:
        if pt.is_struct(kind):
            return pa.struct([field(one) for one in kind])
        if pt.is_map(kind):
            key = field(pa.field("key", kind.key_type)).with_nullable(False)
            return pa.map_(key, field(pa.field("value", kind.item_type)))
        if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
            return pa.list_(field(pa.field("element", kind.value_type)))
        return kind

    try:
        return pyarrow_to_schema(pa.schema([field(one) for one in schema]))
    except UnsupportedPyArrowTypeException as error:
        raise ValueError(str(error)) from None


def _plain(kind: Any) -> str:
    """A type without the numbers of its fields."""
    return re.sub(r"\d+: ", "", str(kind))
