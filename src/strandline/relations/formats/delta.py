"""Delta tables: the log's files as Parquet; tables that need more are read by deltalake itself into the spool."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pat

from strandline.engine import Spool
from strandline.errors import FormatError, NotFound, extra
from strandline.relations.formats.files import DataFile, check_readable, local_path, reading
from strandline.relations.formats.parquet import ParquetRelation, parquet_relation
from strandline.relations.formats.spooled import SpooledRelation, spool_batches
from strandline.relations.read_options import ReadOptions
from strandline.relations.schema import check_names, relation_schema, with_types
from strandline.storage import is_object_url

# Reader features that don't change how a data file is read.
_PLAIN_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}


def open_delta(path: str, name: str, options: ReadOptions, spool: Spool | None) -> ParquetRelation | SpooledRelation:
    """The table at `options.version`, or its latest version."""
    return delta_relation(_load(path, options.state()), name, options, spool)


def delta_relation(
    table: Any, name: str, options: ReadOptions, spool: Spool | None
) -> ParquetRelation | SpooledRelation:
    """A table that deltalake has opened, at its version."""
    path = local_path(table.table_uri) if not _is_remote(table) else str(table.table_uri)
    with reading(path, "Delta"):
        schema = relation_schema(pa.schema(table.schema().to_arrow()))
    check_names(schema.names, name)
    target = with_types(schema, options.arrow_types(), name)
    partitioned = table.metadata().partition_columns
    if _is_remote(table) or _needs_deltalake(table, schema, partitioned):
        with reading(path, "Delta"), _by_deltalake(path):
            return spool_batches(pa.RecordBatchReader.from_stream(table.scan()), name, target, spool)
    files = _files(table, path, partitioned)
    check_readable(files)
    return parquet_relation(name, target, files, [file.hive for file in files])


@contextmanager
def _by_deltalake(path: str) -> Iterator[None]:
    """Turns what deltalake refuses, such as a feature of tables that it lacks, into our error."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        raise FormatError(
            f"deltalake can't read it: {' '.join(str(error).split())[:300]}",
            doing=f"reading the Delta table {path}",
            hint="Read it by the engine that writes it, or have it written without the feature that is named",
        ) from None


def is_delta_table(source: Any) -> bool:
    """Whether it is an object of deltalake's; asks without importing it."""
    return type(source).__name__ == "DeltaTable" and type(source).__module__.partition(".")[0] == "deltalake"


def _is_remote(table: Any) -> bool:
    scheme, separator, _ = str(table.table_uri).partition("://")
    return bool(separator) and scheme != "file"


def _load(path: str, version: int | dt.datetime | None) -> Any:
    with extra("delta", f"reading the Delta table {path}"):
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(path, version=version if isinstance(version, int) else None)
        if isinstance(version, dt.datetime):
            _check_time(table, version, path)
            table.load_as_version(version)
        return table
    except (DeltaError, OverflowError) as error:
        if isinstance(version, int):
            latest = _load(path, None).version()
            if not 0 <= version <= latest:
                raise NotFound(
                    f"there is no version {version}",
                    doing=f"reading the Delta table {path}",
                    hint=f"The latest is {latest}",
                ) from None
        raise FormatError(
            f"its log can't be read: {' '.join(str(error).split())[:300]}",
            doing=f"reading the Delta table {path}",
            hint="Check the table with the tool that writes it; old versions may have been vacuumed",
        ) from None


def _check_time(table: Any, when: dt.datetime, path: str) -> None:
    """A time before the first version that is kept has no state; deltalake would give the first."""
    kept = [entry["timestamp"] for entry in table.history() if "timestamp" in entry]
    first = dt.datetime.fromtimestamp(min(kept) / 1000, dt.UTC) if kept else None
    if first is not None and when < first:
        raise NotFound(
            f"at {when.isoformat()} there was no version",
            doing=f"reading the Delta table {path}",
            hint=f"The first is of {first.isoformat()}",
        )


def _needs_deltalake(table: Any, schema: pa.Schema, partitioned: Sequence[str]) -> bool:
    """Whether files hold rows or names that only the log can tell apart: deletion vectors, mapped columns, …"""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if features - _PLAIN_FEATURES:
        return True
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return True
    if any(not _as_text_possible(schema.field(column).type) for column in partitioned):
        return True
    if "deletionVectors" not in features:
        return False
    return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))


def _files(table: Any, path: str, partitioned: Sequence[str]) -> list[DataFile]:
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = [
        DataFile(
            _file_path(path, action["path"]),
            action["size_bytes"],
            {column: _as_text(action[f"partition.{column}"]) for column in partitioned},
        )
        for action in actions
    ]
    return sorted(files, key=lambda file: file.path)


def _file_path(table_path: str, logged: str) -> str:
    """The log holds paths as URLs, relative to the table unless the table was cloned."""
    if is_object_url(logged):
        return logged
    return local_path(logged) if "://" in logged else f"{table_path.rstrip('/')}/{unquote(logged)}"


def _as_text_possible(kind: pa.DataType) -> bool:
    return not (pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_nested(kind))


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, (dt.date, dt.datetime)) else str(value)
