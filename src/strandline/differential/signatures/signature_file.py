"""Segments of signatures: ⟨K, b⟩ or ⟨K, b, p⟩ of some rows of a relation, sorted, in one Arrow file (section 3.2).

The columns of a segment: `number` (int64, ascending: the key itself where it is one integer, and otherwise the key's
signature), `low` and, above 64 bits, `high` (the row's signature), the key columns under the names `k0`, `k1`, …
where the number does not tell the key, per-column signatures `c0`, `c1`, … if asked for, and `file` and `row` (the
pointer: which scan, which row of it) in segments with pointers. The columns of a relation stand in it by their places,
never by their names. Arrow files are mapped into memory: what is not looked at is not read.

Numbers and signatures depend on values alone, so those of a column that changed its width, unit, scale or encoding
still meet.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.differential.comparators import Comparator, parse_comparator
from strandline.errors import FormatError
from strandline.storage import JsonRecord, file_size, is_object_url, open_version
from strandline.values import (
    DEFAULT_SEED,
    Numbers,
    Scheme,
    column_row_signatures,
    comparable,
    kind_of,
    plain,
    row_signatures,
    signature,
)

NULL_KEY = -(1 << 63)
_ANY_INTEGER = pa.decimal128(20, 0)
"""Integer keys beside their numbers: any of 64 bits, with a sign or without."""
NUMBER, LOW, HIGH, FILE, ROW = "number", "low", "high", "file", "row"


def rename_fields(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """A schema whose columns have new names where `names` gives one."""
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])


@dataclass(frozen=True)
class SignatureSpec(JsonRecord):
    """How the segments of one relation are made: the key and its types, the scheme, what is kept beside it."""

    key: tuple[str, ...]
    key_schema: pa.Schema
    scheme: Scheme
    column_signatures: bool = False
    pointers: bool = False

    @property
    def number_is_key(self) -> bool:
        """One integer as the key is its own number; null and what int64 can't hold share the numbers of others."""
        return self.key_kinds == ("integer",)

    @property
    def key_kinds(self) -> tuple[str, ...]:
        """The types of the key, as far as signatures see them."""
        return tuple(kind_of(field.type) for field in self.key_schema)

    def key_differences(self, other: SignatureSpec) -> list[str]:
        """The key columns whose values can't be compared with those of `other`, by their types."""
        return [
            f"key column {name}: {mine} was saved, {theirs} is asked for"
            for name, mine, theirs in zip(self.key, self.key_kinds, other.key_kinds, strict=True)
            if mine != theirs
        ]

    def renamed(self, names: Mapping[str, str]) -> SignatureSpec:
        """The same spec under other column names."""
        scheme = replace(
            self.scheme,
            columns=tuple(names.get(name, name) for name in self.scheme.columns),
            normalisation=tuple((names.get(name, name), rule) for name, rule in self.scheme.normalisation),
        )
        key = tuple(names.get(name, name) for name in self.key)
        return replace(self, key=key, key_schema=rename_fields(self.key_schema, names), scheme=scheme)


@dataclass(frozen=True)
class SignatureSegment(JsonRecord):
    """A segment's file, and what is known of it without opening it. Both bounds are inclusive."""

    path: str
    rows: int
    bytes: int
    checksum: int
    least: int
    greatest: int


def sign(table: pa.Table, spec: SignatureSpec, file: int | None = None) -> pa.Table:
    """The segment of a table's rows, sorted by number."""
    numbers = numbers_of(table, spec)
    columns: dict[str, Any] = {NUMBER: numbers, **_signatures(table, spec)}
    if not spec.number_is_key:
        keys = plain(table.select(spec.key))
        columns |= {f"k{place}": column for place, column in enumerate(keys.columns)}
    else:
        key = comparable(table.column(spec.key[0]))
        if bool((numbers == NULL_KEY).any()) or (pt.is_uint64(key.type) and bool((numbers < 0).any())):
            columns["k0"] = key.cast(_ANY_INTEGER)
    if spec.pointers:
        columns[FILE] = np.full(table.num_rows, file or 0, dtype=np.int32)
        columns[ROW] = np.arange(table.num_rows, dtype=np.int64)
    return sort_segment(pa.table(columns))


def numbers_of(table: pa.Table, spec: SignatureSpec) -> Numbers:
    """The number of each row's key."""
    if not spec.number_is_key:
        return signature([table.column(name) for name in spec.key], DEFAULT_SEED).view(np.int64)
    column = comparable(table.column(spec.key[0]))
    numbers = np.asarray(column.fill_null(0) if column.null_count else column)
    numbers = numbers.view(np.int64) if pt.is_uint64(column.type) else numbers.astype(np.int64, copy=False)
    return np.where(np.asarray(column.is_null()), NULL_KEY, numbers) if column.null_count else numbers


def sort_segment(segment: pa.Table) -> pa.Table:
    """The segment in ascending order of number; itself if it stands so."""
    numbers = segment_numbers(segment)
    if len(numbers) < 2 or bool(np.all(numbers[1:] >= numbers[:-1])):
        return segment
    return segment.take(pa.array(np.argsort(numbers, kind="stable")))


def segment_keys(segment: pa.Table, spec: SignatureSpec) -> pa.Table:
    """The key columns of a segment's rows, in the relation's own names; an integer key in a type that holds it."""
    if "k0" in segment.column_names:
        return pa.table({name: segment.column(f"k{place}") for place, name in enumerate(spec.key)})
    return pa.table({spec.key[0]: segment.column(NUMBER)})


def segment_numbers(segment: pa.Table) -> Numbers:
    """The numbers of a segment, as they lie in its file."""
    column = segment.column(NUMBER)
    return np.asarray(column.chunk(0) if column.num_chunks == 1 else column, dtype=np.int64)


def numbers_tell_keys(segment: pa.Table, spec: SignatureSpec) -> bool:
    """Whether equal numbers mean equal keys. Where a number can stand for two keys, the key is kept beside it."""
    return spec.number_is_key and "k0" not in segment.column_names


def concat_segments(segments: Sequence[pa.Table], spec: SignatureSpec) -> pa.Table:
    """Segments one after the other, unsorted; if one keeps its keys beside the numbers, all do."""
    if any("k0" in segment.column_names for segment in segments):
        segments = [_with_keys(segment, spec) for segment in segments]
    return pa.concat_tables(segments)


def _with_keys(segment: pa.Table, spec: SignatureSpec) -> pa.Table:
    if "k0" in segment.column_names:
        keys = segment.select([f"k{place}" for place in range(len(spec.key))])
    else:
        keys = pa.table({"k0": segment.column(NUMBER).cast(_ANY_INTEGER)})
    others = segment.select([name for name in segment.column_names if not name.startswith("k")])
    for name in keys.column_names:
        others = others.append_column(name, keys.column(name))
    return others


def write_segment(segment: pa.Table, path: str) -> SignatureSegment:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, segment.schema) as writer:
        writer.write_table(segment.combine_chunks())  # in one piece, a row is found without reading the others
    numbers = segment.column(NUMBER)
    return SignatureSegment(
        path=path,
        rows=segment.num_rows,
        bytes=os.path.getsize(path),
        checksum=_checksum(path),
        least=numbers[0].as_py() if segment.num_rows else 0,
        greatest=numbers[-1].as_py() if segment.num_rows else 0,
    )


def open_segment(segment: SignatureSegment) -> pa.Table:
    """The segment mapped into memory, or read from its URL, once its checksum is found right."""
    try:
        if not _is_whole(segment.path, segment.bytes, segment.checksum):
            raise FormatError(
                "the file is not what was written: its checksum differs",
                doing=f"reading saved signatures {segment.path}",
                hint="Compute the signatures anew from the old extract",
            )
        return pa.ipc.open_file(_mapped(segment.path)).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise FormatError(
            f"the file can't be read: {error}",
            doing=f"reading saved signatures {segment.path}",
            hint="Compute the signatures anew from the old extract",
        ) from error


def _mapped(path: str) -> pa.NativeFile:
    if not is_object_url(path):
        return pa.memory_map(path)
    with open_version(path)[0] as file:
        return pa.BufferReader(file.read())


def between(segment: pa.Table, least: int, greatest: int) -> tuple[int, pa.Table]:
    """The rows whose number lies between both bounds (inclusive), and where they begin."""
    numbers = segment_numbers(segment)
    first = int(np.searchsorted(numbers, least, side="left"))
    last = int(np.searchsorted(numbers, greatest, side="right"))
    return first, segment.slice(first, last - first)


def signature_names(spec: SignatureSpec) -> tuple[str, ...]:
    if not spec.scheme.columns:
        return ()
    return (LOW, HIGH) if spec.scheme.words == 2 else (LOW,)


def column_names(spec: SignatureSpec) -> dict[str, str]:
    """For each signed column of the relation, the segment's column that holds its own signature."""
    return {name: f"c{place}" for place, name in enumerate(spec.scheme.columns)} if spec.column_signatures else {}


def normalise(table: pa.Table, scheme: Scheme) -> pa.Table:
    """The table with the scheme's normalising comparators applied, as signatures see it."""
    for name, rule in scheme.normalisation:
        comparator: Comparator = parse_comparator(rule)
        place = table.schema.get_field_index(name)
        if place >= 0:  # a key's rule is among them, and keys come folded
            table = table.set_column(place, name, comparator.normalised(table.column(place)))
    return table


def _signatures(table: pa.Table, spec: SignatureSpec) -> dict[str, Any]:
    if not spec.scheme.columns:
        return {}
    normalised = normalise(table, spec.scheme)
    words = row_signatures(normalised, spec.scheme)
    columns: dict[str, Any] = {LOW: words} if words.ndim == 1 else {LOW: words[:, 0].copy(), HIGH: words[:, 1].copy()}
    if spec.column_signatures:
        each = column_row_signatures(normalised, spec.scheme)
        for name, column in column_names(spec).items():
            columns[column] = each[name] if each[name].ndim == 1 else each[name][:, 0].copy()
    return columns


@functools.lru_cache(maxsize=4096)
def _is_whole(path: str, size: int, checksum: int) -> bool:
    """Whether a file is as it was written; asked once in a process, for a worker may look into it many times."""
    return file_size(path) == size and _checksum(path) == checksum


def _checksum(path: str) -> int:
    """A CRC of the file: it finds damage, not forgery, and costs less than reading."""
    checksum = 0
    with open_version(path)[0] as file:
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
    return checksum
