"""A table at a state as files that DuckDB reads itself: it decodes only what a query needs, on all processors.

Base pages are Parquet files. Rows that overlays replace or delete are left out by page and number, and the rows that
overlays hold are put beside them. That is possible in a store of local files, for a table whose columns were never
changed, and for types that DuckDB makes the same of, whether it reads them from Parquet or from Arrow. DuckDB knows
nothing of our checksums: each page is verified when this process first hands it over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.engine import DuckdbConnection, thread_sandbox
from strandline.pages import Entry
from strandline.storage import LocalStorage
from strandline.tables.page import live_base
from strandline.tables.predicates import ALL
from strandline.tables.scan import TableReader
from strandline.tables.schema import DELETED, ROW
from strandline.values import is_byte_string, no_rows, quoted

LEAST_BYTES = 4 << 20
"""Smaller tables are decoded here and kept: opening files would take longer than reading them."""
_FILE = "filename"
"""The column in which DuckDB tells a row's file; a table with such a column is not read so."""


@dataclass(frozen=True)
class PageFiles:
    """Chosen columns of a table: the folder of the store, files without overlays, files with, the rows of these that
    count no more (by file and number), and the rows of the overlays.
    """

    folder: str
    columns: tuple[str, ...]
    plain: tuple[str, ...]
    overlaid: tuple[str, ...]
    replaced: pa.Table
    amended: pa.Table

    @contextmanager
    def registered(self, connection: DuckdbConnection, name: str) -> Iterator[None]:
        """Inside the block it is a relation of a connection that may read the folder."""
        own = {part: f"{name} {part}" for part in ("plain", "overlaid", "replaced", "amended")}
        files = {part: paths for part, paths in (("plain", self.plain), ("overlaid", self.overlaid)) if paths}
        with connection.seeing({own["replaced"]: self.replaced, own["amended"]: self.amended}):
            try:
                for part, paths in files.items():
                    connection.give_files(own[part], paths, named=part == "overlaid")
                connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS {self._select(own)}")
                yield
            finally:
                for view in (name, *(own[part] for part in files)):
                    connection.execute(f"DROP VIEW IF EXISTS {quoted(view)}")

    def _select(self, names: Mapping[str, str]) -> str:
        """All its rows, of the views and tables by these names."""
        chosen = ", ".join(quoted(column) for column in self.columns)
        own = {part: quoted(name) for part, name in names.items()}
        # One arm where one is enough: DuckDB plans joins of unions worse.
        needed = len(self.amended) or not (self.plain or self.overlaid)
        selects = [f"SELECT {chosen} FROM {own['amended']}"] if needed else []
        if self.plain:
            selects.append(f"SELECT {chosen} FROM {own['plain']}")
        if self.overlaid:
            selects.append(
                f"SELECT {chosen} FROM {own['overlaid']} AS page WHERE NOT EXISTS "
                f"(SELECT 1 FROM {own['replaced']} AS r WHERE r.{ROW} = page.{ROW} AND r.{_FILE} = page.{_FILE})"
            )
        return " UNION ALL ".join(selects)


def query_over(sql: str, files: Mapping[str, PageFiles], tables: Mapping[str, pa.Table]) -> pa.Table:
    """The result of a query over tables, and over files of one store that DuckDB reads itself."""
    connection = thread_sandbox(next((one.folder for one in files.values()), None))
    with ExitStack() as held:
        for name, one in files.items():
            held.enter_context(one.registered(connection, name))
        return connection.query(sql, tables)


def files_of_table(reader: TableReader, columns: Sequence[str]) -> PageFiles | None:
    """A table's pages for DuckDB, verified; None where it has to be read through Arrow."""
    storage = reader.view.objects.storage
    if not isinstance(storage, LocalStorage) or reader.bytes < LEAST_BYTES or not _is_readable(reader, columns):
        return None
    entries = list(reader.entries(ALL))
    paths = {entry.number: str(storage.path(live_base(entry).name)) for entry in entries}
    if any(sign in path for path in paths.values() for sign in "*?["):
        return None
    reader.verify(entries)
    overlaid = [entry for entry in entries if entry.overlay is not None]
    plain = tuple(paths[entry.number] for entry in entries if entry.overlay is None)
    replaced, amended = _overlays(reader, overlaid, [paths[entry.number] for entry in overlaid], columns)
    return PageFiles(
        storage.url, tuple(columns), plain, tuple(paths[entry.number] for entry in overlaid), replaced, amended
    )


def _is_readable(reader: TableReader, columns: Sequence[str]) -> bool:
    """Whether pages hold the columns as the table has them now, in types that mean the same to DuckDB."""
    schema = reader.schema
    named = any(name.lower() == _FILE for name in schema.names)
    return schema.version == 0 and not named and all(_means_the_same(schema.column(name).type) for name in columns)


def _means_the_same(kind: pa.DataType) -> bool:
    return bool(
        pt.is_integer(kind)
        or pt.is_float32(kind)
        or pt.is_float64(kind)
        or pt.is_boolean(kind)
        or pt.is_date32(kind)
        or pt.is_decimal128(kind)
        or kind == pa.timestamp("us")
        or (is_byte_string(kind) and not pt.is_fixed_size_binary(kind))
    )


def _overlays(
    reader: TableReader, entries: Sequence[Entry], paths: Sequence[str], columns: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """The rows of pages that overlays replace or delete, and the rows that these put in their places."""
    files, numbers = [], [np.empty(0, dtype=np.int64)]
    schema = pa.schema([reader.schema.row_schema.field(name) for name in columns])
    live = [no_rows(schema)]
    for entry, path in zip(entries, paths, strict=True):
        overlay = reader.overlay(entry)
        files.append(pa.repeat(pa.scalar(path), len(overlay.table)))
        numbers.append(overlay.rows)
        kept = overlay.table.filter(pa.array(~overlay.deleted)).drop_columns([DELETED])
        live.append(pa.Table.from_arrays(kept.select(list(columns)).columns, schema=schema))
    replaced = pa.table({_FILE: pa.chunked_array(files, pa.string()), ROW: np.concatenate(numbers)})
    return replaced, pa.concat_tables(live).combine_chunks()
