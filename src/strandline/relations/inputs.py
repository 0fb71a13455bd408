"""Opening what a user names as a relation."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from strandline.engine import Spool
from strandline.errors import InputError
from strandline.relations.database_relation import DatabaseRelation, is_database_url, open_database
from strandline.relations.databases import FOLDERS, parse_address
from strandline.relations.formats import (
    DataFile,
    ParquetRelation,
    SpooledRelation,
    catch_stream,
    delta_relation,
    ends_a_line,
    find_files,
    find_objects,
    format_of_file,
    format_of_folder,
    iceberg_relation,
    is_delta_table,
    is_iceberg_table,
    is_in_memory,
    is_spark_frame,
    is_spark_table,
    is_stream,
    local_path,
    missing,
    naming_stream,
    one_format,
    open_arrow,
    open_csv,
    open_excel,
    open_in_memory,
    open_json,
    open_parquet,
    open_spark_frame,
    open_spark_table,
    said_format,
    shown_stream,
    split_sheet,
)
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Relation, ScannedRelation, Split
from strandline.relations.schema import with_types
from strandline.relations.statistics import same_order
from strandline.storage import is_object_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_OPENERS: dict[str, Callable[[Sequence[DataFile], str, ReadOptions], ParquetRelation | ScannedRelation]] = {
    "parquet": open_parquet,
    "json": open_json,
    "arrow": open_arrow,
}
_SPOOLED: dict[str, Callable[[Sequence[DataFile], str, ReadOptions, Spool | None], SpooledRelation]] = {
    "csv": open_csv,
    "excel": open_excel,
}
"""What kernels can't read a piece of: its rows are put into the spool when it is opened."""


def open_relation(
    source: Any,
    *,
    format: str | None = None,
    session: SparkSession | None = None,
    options: ReadOptions | None = None,
    spool: Spool | None = None,
) -> Relation:
    """The relation that `source` means: a path, folder, glob or URL, `-` or a pipe, `spark:catalog.schema.table`, a
    database by its URL, a list of files, a table or frame in memory, a table of deltalake or pyiceberg, a Spark
    DataFrame, a relation, or what has one by its `relation()`: a table of a store, as it is now.

    `format` says what a path holds when name and content don't. `spool` is where rows are put that kernels could not
    read otherwise; without one the relation makes and holds its own. `session`: whose catalogs know `spark:…`.
    """
    options = options or ReadOptions()
    if is_spark_table(source):
        return open_spark_table(source, session, options, spool)
    if isinstance(source, str) and not source.strip():
        raise InputError("the name is empty", doing="opening a relation", hint="Name a file, a folder, a URL or -")
    if isinstance(source, (str, os.PathLike)):
        return _open_path(source, format, options, spool)
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        return _open_files(source, format, options, spool)
    if is_delta_table(source):
        name = f"the Delta table {source.table_uri} at version {source.version()}"
        return delta_relation(source, name, options, spool)
    if is_iceberg_table(source):
        return iceberg_relation(source, f"the Iceberg table {'.'.join(source.name())}", options, spool)
    if callable(getattr(source, "relation", None)):
        source = source.relation()  # what goes on changing gives itself at one state
    if is_relation(source):
        return retype(source, options.arrow_types())
    if is_spark_frame(source):
        return open_spark_frame(source, options, spool)
    if is_in_memory(source):
        return open_in_memory(source, options, spool)
    raise _unknown(source)


def _open_path(
    source: str | os.PathLike[str], format: str | None, options: ReadOptions, spool: Spool | None
) -> Relation:
    name = os.fspath(source)
    if is_database_url(name):
        return open_database(name, options, spool)
    if options.query is not None:
        raise InputError(
            f"a query is given for {name}, which is no database",
            doing="opening a relation",
            hint="Name a database, as postgresql://…, sqlite:///file or duckdb:///file",
        )
    scheme, mark, _ = name.partition("://")
    if mark and scheme in FOLDERS:
        return _open_path(parse_address(name).location, format or scheme, options, spool)
    if is_stream(name):
        return _open_stream(name, format, options, spool or Spool())
    path = _place(name)
    kind = said_format(format) if format else format_of_folder(path)
    if kind in ("delta", "iceberg"):
        return _open_table(kind, path, name, options, spool)
    files = _found(name, options)
    kind = kind or one_format(files, name)
    if kind == "iceberg":
        return _open_table(kind, path, name, options, spool)
    return _opened(files, kind, name, options, spool)


def _open_files(
    sources: Sequence[str | os.PathLike[str]], format: str | None, options: ReadOptions, spool: Spool | None
) -> Relation:
    """Several files, folders or globs as one relation, in the order given."""
    names = [os.fspath(source) for source in sources]
    odd = [name for name in names if is_database_url(name) or is_stream(name) or format_of_folder(_place(name))]
    if odd and len(names) > 1:
        raise InputError(
            f"{odd[0]} is no file, and stands in a list of files", doing="opening a relation", hint="Name it alone"
        )
    if len(names) == 1:
        return _open_path(names[0], format, options, spool)
    files = [file for name in names for file in _found(name, options)]
    shown = f"{names[0]} and {len(names) - 1} more"
    return _opened(files, said_format(format) if format else one_format(files, shown), shown, options, spool)


def _place(name: str) -> str:
    """The URL of an object, or the absolute path of a file."""
    return name if is_object_url(name) else local_path(name)


def _found(name: str, options: ReadOptions) -> list[DataFile]:
    path, sheet = split_sheet(name)
    find = find_objects if is_object_url(path) else find_files
    return [replace(file, sheet=sheet) for file in find(_place(path), hive=options.hive)]


def _opened(files: list[DataFile], kind: str, name: str, options: ReadOptions, spool: Spool | None) -> Relation:
    if options.version is not None:
        raise InputError(
            "only Delta and Iceberg tables have versions", doing=f"reading {name}", hint="Leave the version out"
        )
    if kind not in ("parquet", "arrow"):  # of these a file without a byte is damaged; text may have such parts
        files = [file for file in files if file.bytes] or files
    if kind in _SPOOLED:
        return _SPOOLED[kind](files, name, options, spool)
    return _OPENERS[kind](files, name, options)


def _open_stream(path: str, format: str | None, options: ReadOptions, spool: Spool) -> Relation:
    """What came through a pipe, from its file in the spool, which the relation holds."""
    caught = catch_stream(path, spool)
    name = shown_stream(path)
    with naming_stream(path, caught):
        kind = said_format(format) if format else format_of_file(caught)
        if kind in ("delta", "iceberg"):
            raise InputError(f"a {kind} table is a folder", doing=f"reading {name}", hint="Name the folder")
        if kind == "csv" and not ends_a_line(caught):
            logger.warning("%s ends within a line: see whether the command that writes to it came to its end", name)
        files = [DataFile(caught, os.path.getsize(caught))]
        if kind in _SPOOLED:
            relation = _SPOOLED[kind](files, name, options, spool)
            os.remove(caught)  # its rows are in the spool by now
            return relation
        return replace(_OPENERS[kind](files, name, options), spool=spool)


def _open_table(kind: str, path: str, name: str, options: ReadOptions, spool: Spool | None) -> Relation:
    if not is_object_url(path) and not os.path.exists(path):
        raise missing(path)
    if kind == "delta":
        from strandline.relations.formats import open_delta as open_table
    else:
        from strandline.relations.formats import open_iceberg as open_table
    opened = open_table(path, name, options, spool)
    return opened if options.version is None else replace(opened, name=f"{name} {_state_words(kind, options)}")


def _state_words(kind: str, options: ReadOptions) -> str:
    """Which state of a table is read, as it was asked for."""
    if isinstance(options.state(), int):
        return f"at {'version' if kind == 'delta' else 'snapshot'} {options.version}"
    return f"as of {options.version}"


def is_relation(source: Any) -> bool:
    """Whether `source` has what a `Relation` has."""
    return callable(getattr(source, "parts", None)) and isinstance(getattr(source, "schema", None), pa.Schema)


def _unknown(source: Any) -> InputError:
    kind = type(source)
    return InputError(
        f"a {kind.__module__}.{kind.__qualname__} is nothing that can be read",
        doing="opening a relation",
        hint="Give a path, a pyarrow, pandas, Polars or Spark table, or a relation",
    )


@dataclass(frozen=True)
class RetypedRelation:
    """`base` with some columns cast when they are read, and `empty` ones that hold nothing; bounds stay where the cast
    keeps order.
    """

    base: Relation
    schema: pa.Schema
    empty: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def bytes(self) -> int:
        return self.base.bytes

    @property
    def rows(self) -> int | None:
        return self.base.rows

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        held = None if columns is None else [name for name in columns if name not in self.empty]
        kept = {
            name
            for name in self.schema.names
            if name not in self.empty and same_order(self.base.schema.field(name).type, self.schema.field(name).type)
        }
        return [
            replace(
                part,
                scan=replace(
                    part.scan, schema=self.schema, constants={**part.scan.constants, **dict.fromkeys(self.empty)}
                ),
                bounds={name: bounds for name, bounds in part.bounds.items() if name in kept},
            )
            for part in self.base.parts(held)
        ]


def retype(relation: Relation, types: Mapping[str, pa.DataType]) -> Relation:
    """The relation with `types` for some of its columns; a value that a type can't hold is an error when it is read."""
    schema = with_types(relation.schema, types, relation.name)
    if schema == relation.schema:
        return relation
    if isinstance(relation, DatabaseRelation):
        return relation.retyped(schema)
    return _with_schema(relation, schema)


def typed_where_open(relation: Relation, schema: pa.Schema) -> Relation:
    """The relation with the types of `schema` for its columns without any value, as far as those take them."""
    known = set(schema.names)
    names = [name for name in untyped_columns(relation) if name in known]
    types = {name: schema.field(name).type for name in names}
    return retype(relation, {n: t for n, t in types.items() if takes_type(relation.schema.field(n).type, t)})


def untyped_columns(relation: Relation) -> Sequence[str]:
    """Columns without any value, in text or sheets: their types are not known."""
    return relation.untyped if isinstance(relation, (DatabaseRelation, ScannedRelation)) else ()


def takes_type(unknown: pa.DataType, other: pa.DataType) -> bool:
    """Whether what holds no value fits a type: empty lists are lists."""
    while pat.is_list(unknown):
        if not pat.is_list(other):
            return False
        unknown, other = unknown.value_type, other.value_type
    return True


def with_empty(relation: Relation, columns: Mapping[str, pa.DataType]) -> Relation:
    """The relation with nothing but nulls in some columns, which it need not have."""
    names = dict.fromkeys([*relation.schema.names, *columns])
    types = [columns[name] if name in columns else relation.schema.field(name).type for name in names]
    schema = pa.schema(list(zip(names, types, strict=True)))
    return replace(_with_schema(relation, schema), empty=tuple(columns))


def _with_schema(relation: Relation, schema: pa.Schema) -> RetypedRelation:
    if isinstance(relation, RetypedRelation):
        return replace(relation, schema=schema)
    return RetypedRelation(relation, schema)
