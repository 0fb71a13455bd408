"""Iceberg tables: data files as Parquet where they hold exactly the table's rows and columns; tables with deletes,
renamed columns or other file formats are read by pyiceberg itself into the spool."""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from strandline.engine import Spool
from strandline.errors import FormatError, NotFound, extra
from strandline.relations.formats.files import DataFile, check_readable, reading
from strandline.relations.formats.footers import parquet_file
from strandline.relations.formats.parquet import ParquetRelation, parquet_relation
from strandline.relations.formats.spooled import SpooledRelation, spool_batches
from strandline.relations.read_options import ReadOptions
from strandline.relations.schema import check_names, relation_schema, with_types
from strandline.storage import is_object_url, list_objects, open_version
from strandline.values import with_inner_types

if TYPE_CHECKING:
    from strandline.relations.formats.iceberg_folder import IcebergFolderCatalog


def open_iceberg(path: str, name: str, options: ReadOptions, spool: Spool | None) -> ParquetRelation | SpooledRelation:
    """The table at snapshot `options.version`, or its current state; `path` is its folder or a metadata file."""
    return iceberg_relation(_load(path), name, options, spool)


def iceberg_catalog(folder: str, doing: str) -> IcebergFolderCatalog:
    """For writing the table of a local folder."""
    with extra("iceberg", doing):
        from strandline.relations.formats.iceberg_folder import IcebergFolderCatalog
    return IcebergFolderCatalog(folder)


def is_iceberg_table(source: Any) -> bool:
    """Whether it is a table of pyiceberg's, of whichever catalog; asks without importing it."""
    return any(kind.__name__ == "Table" and kind.__module__ == "pyiceberg.table" for kind in type(source).__mro__)


def iceberg_relation(
    table: Any, name: str, options: ReadOptions, spool: Spool | None
) -> ParquetRelation | SpooledRelation:
    """A table that pyiceberg has opened."""
    path = str(table.location())
    scan = table.scan(snapshot_id=_snapshot(table, name, options.state()))
    schema = _arrow_schema(scan.projection())
    check_names(schema.names, name)
    target = with_types(schema, options.arrow_types(), name)
    with reading(path, "Iceberg"):
        tasks = _tasks(scan, name)
        if all(_is_plain(task, scan.projection(), table) for task in tasks):
            files = [DataFile(_path(task), task.file.file_size_in_bytes) for task in tasks]
            check_readable(files)
            return parquet_relation(name, target, files, [{} for _ in files])
        return spool_batches(scan.to_arrow_batch_reader(), name, target, spool)


def _tasks(scan: Any, name: str) -> list[Any]:
    try:
        return sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
    except OSError:
        raise
    except Exception as error:  # whatever pyiceberg makes of such bytes: it decodes them unchecked
        if "equality delete" not in str(error):
            raise _unreadable(name, error) from None
        raise FormatError(
            f"pyiceberg can't read it: {error}",
            doing=f"reading the Iceberg table {name}",
            hint="Let the engine that writes the table rewrite its data files, so that no equality deletes are left",
        ) from None


def metadata_file(folder: str) -> str:
    """The newest metadata file of a table's folder: the one its hint names, else the one with the highest number."""
    if is_object_url(folder):
        return _metadata_object(folder)
    metadata = os.path.join(folder, "metadata")
    hint = os.path.join(metadata, "version-hint.text")
    if os.path.isfile(hint):
        with open(hint, encoding="utf-8", errors="replace") as file:
            named = file.read().strip()
        for candidate in _hinted(named):
            if candidate.endswith(".metadata.json") and os.path.isfile(os.path.join(metadata, candidate)):
                return os.path.join(metadata, _newest_after(candidate, metadata))
    entries = [entry for entry in os.scandir(metadata) if entry.name.endswith(".metadata.json")]
    if not entries:
        raise _no_metadata(folder)
    return max(entries, key=lambda entry: (metadata_number(entry.name), entry.stat().st_mtime_ns, entry.name)).path


def _newest_after(name: str, metadata: str) -> str:
    """A commit that was stopped before it wrote its hint counts: files of a folder's own catalog are numbered."""
    number = re.fullmatch(r"v(\d+)\.metadata\.json", name)
    following = f"v{int(number[1]) + 1}.metadata.json" if number else ""
    return _newest_after(following, metadata) if following and os.path.isfile(f"{metadata}/{following}") else name


def _metadata_object(url: str) -> str:
    """The same in an object store."""
    objects = {each.url.rpartition("/")[2]: each for each in list_objects(f"{url.rstrip('/')}/metadata/")}
    if "version-hint.text" in objects:
        with open_version(objects["version-hint.text"].url)[0] as file:
            for candidate in _hinted(file.read().decode(errors="replace").strip()):
                if candidate.endswith(".metadata.json") and candidate in objects:
                    return objects[candidate].url
    named = [name for name in objects if name.endswith(".metadata.json")]
    if not named:
        raise _no_metadata(url)
    return objects[max(named, key=lambda name: (metadata_number(name), str(objects[name].modified), name))].url


def _hinted(named: str) -> tuple[str, ...]:
    """The names of the file that a hint may mean."""
    return named, f"v{named}.metadata.json", f"{named}.metadata.json"


def _no_metadata(folder: str) -> NotFound:
    return NotFound("its folder metadata/ holds no metadata file", doing=f"reading the Iceberg table {folder}")


def _load(path: str) -> Any:
    with extra("iceberg", f"reading the Iceberg table {path}"):
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import StaticTable

    with reading(path, "Iceberg"):
        is_folder = not path.endswith(".metadata.json") if is_object_url(path) else os.path.isdir(path)
        location = metadata_file(path) if is_folder else path
        try:
            return StaticTable.from_metadata(location, _settings())
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> FormatError:
    return FormatError(
        f"its metadata can't be read: {' '.join(str(error).split())[:300]}",
        doing=f"reading the Iceberg table {path}",
        hint="Name the table's folder or one of its .metadata.json files",
    )


def _settings() -> dict[str, str]:
    """What pyiceberg does not take from the environment by itself."""
    names = {
        "s3.endpoint": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"),
        "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "s3.access-key-id": ("AWS_ACCESS_KEY_ID",),
        "s3.secret-access-key": ("AWS_SECRET_ACCESS_KEY",),
        "s3.session-token": ("AWS_SESSION_TOKEN",),
    }
    values_of = {name: [os.environ[key] for key in keys if os.environ.get(key)] for name, keys in names.items()}
    return {name: values[0] for name, values in values_of.items() if values}


def _snapshot(table: Any, name: str, version: int | dt.datetime | None) -> int | None:
    if isinstance(version, dt.datetime):
        return _snapshot_at(table, name, version)
    if version is None or table.snapshot_by_id(version) is not None:
        return version
    known = ", ".join(str(snapshot.snapshot_id) for snapshot in table.metadata.snapshots[-5:])
    raise NotFound(
        f"there is no snapshot {version}", doing=f"reading the Iceberg table {name}", hint=f"Its last are {known}"
    )


def _snapshot_at(table: Any, name: str, when: dt.datetime) -> int:
    snapshot = table.snapshot_as_of_timestamp(int(when.timestamp() * 1000))
    if snapshot is None:
        raise NotFound(
            f"at {when.isoformat()} there was no snapshot",
            doing=f"reading the Iceberg table {name}",
            hint="Give a later time, or a snapshot's id",
        )
    return int(snapshot.snapshot_id)


def _is_plain(task: Any, projection: Any, table: Any) -> bool:
    """Whether a data file, read as Parquet by column names, gives exactly the table's rows and columns."""
    from pyiceberg.manifest import FileFormat

    if task.delete_files or task.file.file_format != FileFormat.PARQUET:
        return False
    if not (os.path.isabs(_path(task)) or is_object_url(_path(task))):
        return False
    with reading(_path(task), "Parquet"):
        held = _field_ids(parquet_file(_path(task)).schema_arrow)
    return held is not None and all(_same_field(held, field, table) for field in projection.fields)


def _path(task: Any) -> str:
    """A data file's path: Iceberg writes locations, not URLs, so nothing in them is escaped."""
    return re.sub(r"^file:(//(?=/))?", "", str(task.file.file_path))


def _field_ids(schema: pa.Schema) -> Any:
    """The file's schema as Iceberg's, with field ids; None if the file has none."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    try:
        return pyarrow_to_schema(schema)
    except (ValueError, TypeError):
        return None


def _same_field(held: Any, field: Any, table: Any) -> bool:
    by_name = {some.name: some for some in held.fields}
    by_id = {some.field_id: some for some in held.fields}
    if field.field_id not in by_id:
        # Absent means null, unless the value stands in the partition or in a default, or the name is another column's.
        in_partition = any(part.source_id == field.field_id for spec in table.specs().values() for part in spec.fields)
        return field.name not in by_name and field.initial_default is None and not in_partition
    held_field = by_id[field.field_id]
    return bool(
        held_field.name == field.name and (held_field.field_type == field.field_type or _both_plain(held_field, field))
    )


def _both_plain(one: Any, other: Any) -> bool:
    """Promoted scalars (int to long, …) are cast when read."""
    return bool(one.field_type.is_primitive and other.field_type.is_primitive)


def _arrow_schema(schema: Any) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    plain = relation_schema(schema_to_pyarrow(schema, include_field_ids=False))
    return pa.schema([pa.field(field.name, _small(field.type)) for field in plain])


def _small(kind: pa.DataType) -> pa.DataType:
    """Iceberg knows no large types; what pyiceberg calls large is its own choice."""
    if pat.is_large_string(kind):
        return pa.string()
    if pat.is_large_binary(kind):
        return pa.binary()
    if pat.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    return with_inner_types(kind, _small)


def metadata_number(name: str) -> int:
    """N of `vN.metadata.json`, or of the names that catalogs give; -1 without one."""
    number = re.match(r"v?(\d+)", name)
    return int(number[1]) if number else -1
