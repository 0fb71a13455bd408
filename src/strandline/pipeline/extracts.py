"""Extracts: what a source holds now, opened as a relation, with an identity that tells whether it was seen before.

The identity of files is the path, size and time of each, and how they are read; a table of a database or of Spark has
none, since only reading shows whether it changed. Tables of one database are read in one transaction, so that they are
one state of it.

Text holds no types, and what is guessed from the values of one night (an empty column, codes that happen to be
numbers, a file without a row) may differ from the night before though nothing drifted. So where the guess differs from
the table's type, that is tried; the guess stays where a value does not fit it, and that is drift.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.engine import Spool
from strandline.errors import Cancelled, GuardTripped, NotFound, StrandlineError
from strandline.pipeline.places import Secrets
from strandline.pipeline.settings import ReadSettings, SourceSettings
from strandline.relations import (
    Address,
    Database,
    DatabaseRelation,
    ReadOptions,
    Relation,
    Split,
    SpooledRelation,
    connect,
    find_objects,
    flowing_frame,
    glob_root,
    hidden,
    is_database_url,
    is_spark_table,
    leads_back,
    objects_at,
    open_relation,
    relation_over,
    split_sheet,
    spool_batches,
    typed_batch,
)
from strandline.replication import BASE_DIALECTS, BaseTable, describe
from strandline.storage import is_object_url, object_version
from strandline.tables import TableSchema
from strandline.values import common_type, plain_type, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Extract:
    """What a source holds. `shown` names it without secrets; `taken` is when it was made, where that is known."""

    source: SourceSettings
    relation: Relation
    shown: str
    identity: str | None = None
    taken: float | None = None
    path: str | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.relation.schema


def open_extracts(
    sources: Sequence[SourceSettings], secrets: Secrets, session: SparkSession | None
) -> dict[str, Extract]:
    """The extracts of all sources, by the sources' names; those of one database in one state of it."""
    with ExitStack() as open_:
        databases: dict[str, Database] = {}
        by_name = {}
        for source in sources:
            if not is_database_url(secrets.fill(source.location, f"opening the source {source.name!r}")):
                by_name[source.name] = open_extract(source, secrets, session)
                continue
            address = address_of(source, secrets)
            if address.location not in databases:
                database = open_.enter_context(connect(address, create=False))
                open_.enter_context(database.reading())
                databases[address.location] = database
            by_name[source.name] = _of_table(source, databases[address.location], address)
        return by_name


def open_extract(source: SourceSettings, secrets: Secrets, session: SparkSession | None) -> Extract:
    """The extract of one source: files, a table of a database, or one that Spark knows."""
    doing = f"extracting the source {source.name!r}"
    path = secrets.fill(source.location, doing)
    if is_database_url(path):
        address = address_of(source, secrets)
        with connect(address, create=False) as database:
            return _of_table(source, database, address)
    if is_spark_table(path):
        return Extract(source, open_relation(path, session=session, options=_options(source)), secrets.scrub(path))
    path = _pick_path(source, path)
    identity, taken = _identity(source, path)
    return Extract(source, _opened(source, path), secrets.scrub(path), identity, taken, path)


def with_types(extract: Extract, types: Mapping[str, pa.DataType]) -> Extract:
    """The extract of files with some columns read as these types; an error where a value is none of its type."""
    if extract.path is None:
        return extract
    return replace(extract, relation=_opened(extract.source, extract.path, types))


def _opened(source: SourceSettings, path: str, types: Mapping[str, pa.DataType] | None = None) -> Relation:
    return open_relation(path, format=source.reading.format, options=_options(source, types))


def _options(source: SourceSettings, types: Mapping[str, pa.DataType] | None = None) -> ReadOptions:
    options = source.reading.options
    return replace(options, types={**(types or {}), **options.types})


def describe_extract(source: SourceSettings, secrets: Secrets, session: SparkSession | None) -> Extract:
    """What a plan needs to know of an extract; of a table its columns and how many rows it has, but no row of it."""
    place = secrets.fill(source.location, f"opening the source {source.name!r}")
    if is_spark_table(place):
        relation = open_relation(place, session=session, options=_options(source))
        frame = flowing_frame(relation)
        rows = relation.rows or 0 if frame is None else int(frame.count())
        shown = secrets.scrub(place)
        return Extract(source, _Described(shown, relation.schema, rows), shown)
    if not is_database_url(place):
        return open_extract(source, secrets, session)
    address = address_of(source, secrets)
    with connect(address, create=False) as database:
        described = _described(source, database, address)
        rows = int(database.execute(f"SELECT count(*) FROM {described.sql}")[0][0])
        return Extract(source, _Described(address.shown, described.schema, rows), address.shown)


def check_unchanged(extract: Extract) -> None:
    """Refuses files that changed while they were read: the rows may be of two states of them."""
    if extract.path is not None and _identity(extract.source, extract.path)[0] != extract.identity:
        raise GuardTripped(
            f"{extract.shown} changed while it was read",
            doing=f"extracting the source {extract.source.name!r}",
            hint="Write extracts under another name and rename them when they are whole; then run again",
        )


@dataclass(frozen=True)
class _Described:
    """A relation that knows its size and has no parts to read."""

    name: str
    schema: pa.Schema
    rows: int

    @property
    def bytes(self) -> int:
        return self.rows * 16 * len(self.schema)

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        raise AssertionError("a plan reads no rows")


def address_of(source: SourceSettings, secrets: Secrets) -> Address:
    """The address of a source's table; of its database, where it is a query."""
    return secrets.address(source.location, f"opening the source {source.name!r}", source.reading.options.query)


def table_relation(table: BaseTable, spool: Spool | None = None) -> Relation:
    """All rows of a database's table, put into the spool, in Arrow's types."""
    columns = table.columns
    readings = ", ".join(column.reading.format(quoted(column.name)) for column in columns)
    stored = pa.schema([(column.name, column.stored) for column in columns])
    batches = table.database.batches(f"SELECT {readings} FROM {table.sql}", stored)
    wanted = table.schema
    typed = (typed_batch(batch, wanted, table.address) for batch in batches)
    return spool_batches(typed, table.address.shown, wanted, spool)


def _of_table(source: SourceSettings, database: Database, address: Address) -> Extract:
    described = _described(source, database, address)
    rows = table_relation(described) if isinstance(described, BaseTable) else described.fetch()
    return Extract(source, rows, address.shown)


def _described(source: SourceSettings, database: Database, address: Address) -> BaseTable | DatabaseRelation:
    """The table: one that can be a base, or else a table of another database, a query, what is read in other types."""
    options = source.reading.options
    if database.dialect in BASE_DIALECTS and not options.query and not options.types:
        return describe(database, address)
    return relation_over(database, address, ReadOptions(types=options.types, query=options.query), reading=True)


def _pick_path(source: SourceSettings, path: str) -> str:
    """The path to read: of a glob with `pick = "latest"` the newest match, later names first where times are equal."""
    if source.pick != "latest":
        return path
    path, sheet = split_sheet(path)
    latest = _latest_object(source, path) if is_object_url(path) else _latest_file(source, path)
    return f"{latest}#{sheet}" if sheet else latest


def _latest_file(source: SourceSettings, path: str) -> str:
    pattern = os.path.join(path, "*") if os.path.isdir(path) else path
    root = glob_root(pattern)
    found = [path] if os.path.isfile(path) else glob.glob(pattern, recursive=True)
    matches = [match for match in found if not any(map(hidden, os.path.relpath(match, root).split(os.sep)))]
    if not matches:
        raise _no_match(source)
    return max(matches, key=lambda match: (_newest(match), match))


def _no_match(source: SourceSettings) -> NotFound:
    return NotFound(
        "there is no file that matches",
        doing=f"picking the latest of {source.location}",
        hint="See what the folder holds, or write the pattern anew",
    )


def _latest_object(source: SourceSettings, url: str) -> str:
    """The same in an object store, where a prefix holds files and no folders."""
    try:
        files = find_objects(url, hive=False)
    except NotFound:
        raise _no_match(source) from None
    return max(files, key=lambda file: (object_version(file.path).modified, file.path)).path


def _newest(path: str) -> float:
    return max((os.stat(file).st_mtime for file in _files(path)), default=os.stat(path).st_mtime)


def _identity(source: SourceSettings, path: str) -> tuple[str, float | None]:
    """A digest of the path, size and time of every file, the logs of tables included, and of how they are read; and
    the newest time."""
    path, sheet = split_sheet(path)
    facts, newest = _facts_of_objects(path) if is_object_url(path) else _facts_of_files(path)
    read_as = repr((source.reading, sheet)) if sheet or source.reading != ReadSettings() else ""
    return hashlib.sha256(f"{facts!r}{read_as}".encode()).hexdigest()[:32], newest


def _facts_of_files(path: str) -> tuple[Sequence[object], float | None]:
    facts = []
    for file in _files(path):
        status = os.stat(file)
        facts.append((file, status.st_size, status.st_mtime_ns))
    return sorted(facts), max((fact[2] / 1e9 for fact in facts), default=None)


def _facts_of_objects(url: str) -> tuple[Sequence[object], float | None]:
    objects = objects_at(url)
    facts = [(one.url, one.bytes, one.mark) for one in objects]
    return facts, max((one.modified.timestamp() for one in objects if one.modified), default=None)


def _files(path: str) -> list[str]:
    """Every file that a reader may come to, and more: as readers do, it follows links."""
    tops = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    files = []
    for top in tops:
        if not os.path.isdir(top):
            files.append(top)
            continue
        for folder, folders, names in os.walk(top, followlinks=True):
            folders[:] = [name for name in folders if not leads_back(folder, name)]
            files += [os.path.join(folder, name) for name in names]
    return list(dict.fromkeys(files))


def typed_as_the_table(extract: Extract, record: TableSchema | None) -> Extract:
    """The extract, its columns of the table's types where all values have them. Only text is looked at again."""
    if record is None or extract.path is None or not isinstance(extract.relation, SpooledRelation):
        return extract
    types = _types_guessed_otherwise(extract, record)
    if not types:
        return extract
    try:
        return with_types(extract, types)
    except Cancelled:
        raise
    except StrandlineError:
        pass  # which of the columns do not fit
    fitting = {name: kind for name, kind in types.items() if _fits(extract, name, kind)}
    return with_types(extract, fitting) if fitting else extract


def _types_guessed_otherwise(extract: Extract, record: TableSchema) -> dict[str, pa.DataType]:
    types = {}
    for field in extract.schema:
        if field.name in record.names and field.name not in extract.source.reading.options.types:
            kind = record.arrow_schema.field(field.name).type
            if plain_type(field.type) != plain_type(kind) and common_type(kind, field.type) != kind:
                types[field.name] = kind
    return types


def _fits(extract: Extract, name: str, kind: pa.DataType) -> bool:
    try:
        with_types(extract, {name: kind})
    except Cancelled:
        raise
    except StrandlineError:
        return False
    return True
