"""A relation: anything that can be read as rows.

`Relation` is the seam between what users name (a file, a folder, a Delta table, a DataFrame, a table of a store) and
the kernels that read it: a schema, a size, and a plan that cuts it into scans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from strandline.engine import Spool
from strandline.relations.scan import Scan


@dataclass(frozen=True)
class Bounds:
    """What statistics tell of one column in one part.

    Every value that is neither null nor NaN lies between `least` and `greatest`, both inclusive; they need not occur,
    since writers shorten long strings. None where unknown, and where there is no such value.
    """

    least: Any
    greatest: Any
    nulls: int | None


@dataclass(frozen=True)
class Split:
    """A piece of a relation that is read as a whole: a file, or one row group of a Parquet file."""

    scan: Scan
    rows: int
    bytes: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)


class Relation(Protocol):
    """Something with rows. Reading its schema, size and parts costs no pass over the rows."""

    @property
    def name(self) -> str:
        """What a user would call it, for messages: a path, a table's name."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def bytes(self) -> int:
        """Size on storage, as read; decides between runners."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows, where that is known without reading them."""
        ...

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        """The pieces, in file order; together they hold every row once.

        `columns`: whose bounds are wanted; None: of all columns, as far as they cost no pass over the rows.
        """
        ...


@dataclass(frozen=True)
class ScannedRelation:
    """A relation of whole files: one part for each scan, whose rows are counted; no bounds.

    `spool` is held so that scratch files live as long as the relation that reads them. `untyped` are columns without
    any value, or of empty lists alone: nobody knows of what type they are.
    """

    name: str
    schema: pa.Schema
    scans: tuple[Scan, ...]
    spool: Spool | None = None
    untyped: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)

    @property
    def rows(self) -> int:
        return sum(scan.rows or 0 for scan in self.scans)

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        return [Split(scan, scan.rows or 0, scan.bytes) for scan in self.scans]
