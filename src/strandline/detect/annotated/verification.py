"""Whether a copy equals its query, row by row; and the differential that makes it so where it does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.detect.annotated.catalog import CopyRecord
from strandline.detect.annotated.fixing import Site, read_rows
from strandline.detect.annotated.names import ADDRESS
from strandline.detect.annotated.program import ALL
from strandline.relations.signature import row_signatures, scheme_of
from strandline.replicas import Definition, Replica
from strandline.replicas.definition import ABOVE, UPTO


@dataclass(frozen=True)
class Verification:
    """How the copy compares with the query over the base as it is now. `addresses` names some of the differing."""

    rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    addresses: tuple[int, ...] = ()

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def __bool__(self) -> bool:
        return self.equal


@dataclass(frozen=True)
class Comparison:
    """The addresses at which base and copy differ, and what the base has there."""

    verification: Verification
    ranges: pa.Table
    rows: pa.Table


def compare(site: Site, copy: CopyRecord, replica: Replica, definition: Definition) -> Comparison:
    """Both sides by address and row signature (128 bits)."""
    record = site.record()
    wanted = read_rows(site, copy.columns, site.copy_program(record, copy).texts[ALL])
    held = pa.Table.from_batches(replica.rows(), schema=definition.stored)
    left = _signed(wanted, ADDRESS, definition)
    right = _signed(held, definition.identity[0], definition)
    missing = sorted(left.keys() - right.keys())
    extra = sorted(right.keys() - left.keys())
    different = sorted(address for address in left.keys() & right.keys() if left[address] != right[address])
    found = Verification(
        len(wanted), len(missing), len(extra), len(different), tuple(sorted([*missing, *extra, *different])[:10])
    )
    gone = np.array(sorted([*extra, *different]), dtype=np.int64)
    ranges = pa.table({ABOVE: pa.array(gone - 1), UPTO: pa.array(gone)})
    coming = pa.array([*missing, *different], pa.int64())
    rows = wanted.filter(pa.compute.is_in(wanted.column(ADDRESS), coming)).select(definition.rows_schema.names)
    return Comparison(found, ranges, rows)


def _signed(table: pa.Table, address: str, definition: Definition) -> dict[int, tuple[int, int]]:
    words = row_signatures(table, scheme_of(definition.schema, bits=128)).tolist()
    return dict(zip(table.column(address).to_pylist(), map(tuple, words), strict=True))
