"""A relation: anything that can be read as rows.

`Relation` is the seam between what users name (a file, a folder, a Delta table, a DataFrame, a table of a store) and
the kernels that read it: a schema, a size, and a plan that cuts it into scans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from strandline.relations.scan import Scan


@dataclass(frozen=True)
class Bounds:
    """What statistics tell of one column in one part: both bounds are inclusive; None where unknown."""

    least: Any
    greatest: Any
    nulls: int | None


@dataclass(frozen=True)
class Part:
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

    def parts(self, columns: Sequence[str] | None = None) -> list[Part]:
        """The pieces, in file order; together they hold every row once."""
        ...
