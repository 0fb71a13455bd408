"""Parquet files: one relation of many files, one part for each row group, bounds from the footers' statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.engine import Spool
from strandline.errors import FormatError
from strandline.relations.formats.files import DataFile, hive_constants, reading
from strandline.relations.formats.footers import Footer, open_footers, parquet_file
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Bounds, Scan, Split
from strandline.relations.schema import check_names, one_schema, with_types
from strandline.relations.statistics import group_bounds
from strandline.values import is_variable_width

_ROWS_PER_BYTE = 8
"""A column has few values when a row group has so many rows for each byte of its dictionary."""


@dataclass(frozen=True)
class ParquetRelation:
    """Parquet files read as one relation; `spool` is held while its files are read."""

    name: str
    schema: pa.Schema
    footers: tuple[Footer, ...]
    spool: Spool | None = None

    @property
    def bytes(self) -> int:
        return sum(footer.file.bytes for footer in self.footers)

    @property
    def rows(self) -> int:
        return sum(footer.rows for footer in self.footers)

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        """One part for each row group that has rows; `columns`: whose bounds are wanted, None for all."""
        wanted = list(self.schema.names if columns is None else columns)
        return [part for footer in self.footers for part in self._parts(footer, wanted)]

    def _parts(self, footer: Footer, columns: list[str]) -> Iterator[Split]:
        metadata = footer.metadata
        whole = Scan(
            "parquet",
            footer.file.path,
            self.schema,
            constants=dict(footer.constants),
            spool=self.spool,
            mark=footer.file.mark,
        )
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        held = set(footer.schema.names)
        weight = max(sum(group.total_byte_size for group in groups), 1)
        for number, group in enumerate(groups):
            if group.num_rows == 0:
                continue
            size = footer.file.bytes * group.total_byte_size // weight
            scan = replace(whole, row_groups=(number,), rows=group.num_rows, bytes=size)
            bounds = group_bounds(group, footer.schema, self.schema, columns)
            constant = {name: _constant_bounds(scan, name) for name in columns if name in footer.constants}
            absent = {name: Bounds(None, None, group.num_rows) for name in columns if name not in held}
            yield Split(scan, group.num_rows, size, {**absent, **bounds, **constant})


def open_parquet(files: Sequence[DataFile], name: str, options: ReadOptions) -> ParquetRelation:
    """The relation of these files; their schemas must agree, unless `union_by_name` widens them."""
    opened = open_footers(files)
    body = one_schema({footer.file.path: footer.schema for footer in opened}, union_by_name=options.union_by_name)
    constants, hive = hive_constants(files, body.names, options)
    schema = pa.schema([*body, *hive])
    check_names(schema.names, name)
    schema = with_types(schema, options.arrow_types(), name)
    return ParquetRelation(name, schema, _with_constants(opened, constants))


def parquet_relation(
    name: str, schema: pa.Schema, files: Sequence[DataFile], constants: Sequence[Mapping[str, str | None]]
) -> ParquetRelation:
    """The relation of files whose schema is said elsewhere, in a table's log: absent columns are null."""
    return ParquetRelation(name, schema, _with_constants(open_footers(files), constants))


def _with_constants(footers: Sequence[Footer], constants: Sequence[Mapping[str, str | None]]) -> tuple[Footer, ...]:
    return tuple(replace(footer, constants=each) for footer, each in zip(footers, constants, strict=True))


def read_parquet(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns of the scan's row groups, as the file types them; absent ones are left out."""
    with reading(scan.path, "Parquet"):
        file = parquet_file(scan.path, scan.mark)
        held = dict.fromkeys(file.schema_arrow.names)
        present = [name for name in columns if name in held]
        # pyarrow takes a dot in a name for a step into a struct: such files are read whole.
        dotted = any("." in name for name in held)
        groups = list(scan.row_groups) if scan.row_groups is not None else None
        repeating = _repeating(file, present, range(file.num_row_groups) if groups is None else groups)
        if repeating:
            file = parquet_file(scan.path, scan.mark, dictionaries=repeating)
        _check_int96(file, scan.path, [name for name in held if dotted or name in present], groups)
        batches = file.iter_batches(
            batch_size=batch_rows, row_groups=groups, columns=None if dotted else present, use_threads=False
        )
        for batch in batches:
            yield batch.select(present) if dotted else batch


def _check_int96(file: pq.ParquetFile, path: str, names: Sequence[str], groups: list[int] | None) -> None:
    """Refuses instants of INT96 whose nanoseconds would be cut: read in both units, they differ by what is lost.

    Nanoseconds wrap around beyond 2262; so does the difference, which stays right.
    """
    leaves = [file.metadata.schema.column(place) for place in range(file.metadata.num_columns)]
    chosen = sorted({leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"} & set(names))
    if not chosen:
        return
    units = (
        parquet_file(path, int96_unit=unit).iter_batches(row_groups=groups, columns=chosen, use_threads=False)
        for unit in ("us", "ns")
    )
    for rough, exact in zip(*units, strict=True):
        for name in chosen:
            if any(_differ(*pair) for pair in zip(_instants(rough[name]), _instants(exact[name]), strict=True)):
                raise FormatError(
                    f"the column {name!r} is of type INT96 and holds nanoseconds, of which only microseconds are read",
                    doing=f"reading {path}",
                    hint="Write it as a timestamp of nanoseconds, or cut it to microseconds, and read that",
                )


def _instants(array: pa.Array) -> Iterator[pa.Array]:
    """The timestamps in a column, however deep."""
    if pa.types.is_timestamp(array.type):
        yield array
    elif pa.types.is_map(array.type):
        yield from (*_instants(array.keys), *_instants(array.items))
    elif pa.types.is_nested(array.type):
        inner = array.flatten()
        for child in inner if isinstance(inner, list) else [inner]:
            yield from _instants(child)


def _differ(rough: pa.Array, exact: pa.Array) -> bool:
    micros, nanos = (np.asarray(side.cast(pa.int64()).fill_null(0), dtype=np.int64) for side in (rough, exact))
    return bool(np.any(nanos.view(np.uint64) != micros.view(np.uint64) * np.uint64(1000)))


def _repeating(file: pq.ParquetFile, names: Sequence[str], groups: Iterable[int]) -> list[str]:
    """Columns of text with few values: decoded as dictionaries, then looked up, they take half of the time."""
    kinds = file.schema_arrow
    texts = {name for name in names if is_variable_width(kinds.field(name).type)}
    facts = [file.metadata.row_group(number) for number in groups] if texts else []
    for group in facts:
        for place in range(group.num_columns):
            chunk = group.column(place)
            name = chunk.path_in_schema
            if name in texts and not _has_few_values(chunk, group.num_rows):
                texts.discard(name)
    return sorted(texts) if facts else []


def _has_few_values(chunk: pq.ColumnChunkMetaData, rows: int) -> bool:
    start = chunk.dictionary_page_offset
    return start is not None and (chunk.data_page_offset - start) * _ROWS_PER_BYTE <= rows


def _constant_bounds(scan: Scan, name: str) -> Bounds:
    from strandline.relations.formats.files import constant_value

    value = constant_value(scan.constants[name], scan.schema.field(name)).as_py()
    return Bounds(value, value, 0 if value is not None else scan.rows)
