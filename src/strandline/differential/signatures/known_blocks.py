"""Blocks: row groups that are byte for byte what they were need not be read again (section 3.2, block compression).

When a row group of a Parquet file is signed, its *shape* (rows and the sizes of its column chunks, which the footer
tells) and the *digest* of its bytes are kept with the range of its keys. Next time, a row group of the same shape
has its bytes digested; if they agree, its rows are the saved ones, and it is not decoded. The digest has 160 bits;
like signatures it guards against accident, not against an adversary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.differential.comparison import Side, read_side
from strandline.differential.signatures.signature_file import (
    NUMBER,
    SignatureSegment,
    SignatureSpec,
    between,
    column_names,
    concat_segments,
    numbers_of,
    open_segment,
    signature_names,
    sort_segment,
)
from strandline.relations import Scan, parquet_file
from strandline.storage import JsonRecord, open_version
from strandline.values import no_rows

READ_BYTES = 1 << 22


@dataclass(frozen=True)
class KnownBlock(JsonRecord):
    """A row group that was signed. `least` and `greatest` are the numbers of its keys, both inclusive."""

    shape: str
    digest: str
    rows: int
    least: int
    greatest: int


@dataclass(frozen=True)
class MarkedRows:
    """Scans read with their marks: decoded rows, the blocks that these are now, and the blocks that were known.

    `known_rows` are the saved signatures of the known blocks.
    """

    tables: list[pa.Table]
    fresh: tuple[KnownBlock, ...] = ()
    known: tuple[KnownBlock, ...] = ()
    known_rows: tuple[pa.Table, ...] = ()


def read_marked(
    side: Side, spec: SignatureSpec, saved: Sequence[Mapping[str, Any]], segments: Sequence[SignatureSegment]
) -> MarkedRows:
    """Reads a side row group by row group, leaving out those whose bytes are known."""
    blocks = {(block.shape, block.digest): block for block in (KnownBlock(**record) for record in saved)}
    tables, fresh, known, known_rows = [no_rows(side.schema)], [], [], []
    for scan in side.scans:
        mark = _mark(scan, side.columns)
        block = blocks.get(mark) if mark else None
        rows = _saved_rows(block, segments, spec) if block else None
        if block is not None and rows is not None:
            known.append(block)
            known_rows.append(rows)
            continue
        table = read_side(side.with_scans([scan]))
        tables.append(table)
        if mark and table.num_rows:
            numbers = numbers_of(table, spec)
            fresh.append(KnownBlock(*mark, table.num_rows, int(numbers.min()), int(numbers.max())))
    return MarkedRows(tables, tuple(fresh), tuple(known), tuple(known_rows))


def with_known_rows(signed: pa.Table, marked: MarkedRows, spec: SignatureSpec) -> pa.Table:
    """A segment of the decoded rows and of those that did not need to be."""
    if not marked.known_rows:
        return signed
    rows = [table.select([name for name in table.column_names if name in _kept(spec)]) for table in marked.known_rows]
    return sort_segment(concat_segments([signed, *rows], spec))


def _kept(spec: SignatureSpec) -> set[str]:
    keys = {f"k{place}" for place in range(len(spec.key))}
    return {NUMBER, *signature_names(spec), *column_names(spec).values(), *keys}


def _mark(scan: Scan, columns: Sequence[str]) -> tuple[str, str] | None:
    """Shape and digest of the one row group that a scan reads; None where there is nothing to mark."""
    if scan.format != "parquet" or scan.row_groups is None or len(scan.row_groups) != 1 or scan.constants:
        return None
    group = parquet_file(scan.path, scan.mark).metadata.row_group(scan.row_groups[0])
    chunks = [group.column(place) for place in range(group.num_columns)]
    sizes = [chunk.total_compressed_size for chunk in chunks]
    layouts = [f"{c.path_in_schema}{c.physical_type}{c.compression}{c.encodings}" for c in chunks]
    shape = f"{group.num_rows}{sizes}{layouts}{list(columns)}{scan.schema}"
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    digest = hashlib.sha1(usedforsecurity=False)
    with open_version(scan.path, scan.mark)[0] as file:
        for start, size in zip(starts, sizes, strict=True):
            file.seek(start)
            for offset in range(0, size, READ_BYTES):
                digest.update(file.read(min(READ_BYTES, size - offset)))
    return hashlib.sha1(shape.encode(), usedforsecurity=False).hexdigest(), digest.hexdigest()


def _saved_rows(block: KnownBlock, segments: Sequence[SignatureSegment], spec: SignatureSpec) -> pa.Table | None:
    """The saved signatures of a block's rows; None if its range of numbers holds other rows too."""
    pieces = [
        between(open_segment(segment), block.least, block.greatest)[1]
        for segment in segments
        if segment.rows and segment.least <= block.greatest and segment.greatest >= block.least
    ]
    saved = concat_segments(pieces, spec) if pieces else None
    return saved if saved is not None and saved.num_rows == block.rows else None
