"""The seam: what every kind of copy promises, and from a URL to a copy. One conformance suite holds all kinds to it.

To add a kind of copy: a class with these methods in a file of its own here, its kind of address in `parse_address`, a
line in `open_target`, and its name among the kinds of the conformance suite. Numbering, fencing, checksums and
positions are pure functions of `copy_state`, which every kind asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from strandline.errors import InputError, extra
from strandline.relations import FOLDERS, Address, parse_address
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition
from strandline.replication.message import Message
from strandline.replication.targets.range_checksums import RangeChecksums

if TYPE_CHECKING:
    from strandline.replication.targets.parquet_folder import ParquetFolder


class CopyTarget(Protocol):
    """A copy at a remote site. Every method that writes does so in one transaction of the target."""

    @property
    def shown(self) -> str:
        """Where it is, without secrets."""
        ...

    def state(self) -> CopyState | None:
        """What the copy says of itself; None when there is none yet."""
        ...

    def create(self, definition: CopyDefinition) -> CopyState:
        """Makes the copy, empty; does nothing if it is there with this very definition. Refuses a target that holds
        something else, and columns that this kind can't hold exactly, before anything is written."""
        ...

    def evolve(self, definition: CopyDefinition) -> str:
        """Gives a keyed copy the columns of another definition of the same key and source; rows keep what `Evolution`
        says, and the position is no longer one to start from. Says why, if this target can't, and then does nothing."""
        ...

    def claim(self) -> CopyState:
        """Begins a new epoch, which fences off every earlier sender."""
        ...

    def apply(self, message: Message) -> CopyState:
        """Takes the next message, with its position, whole or not at all; one that was taken already does nothing."""
        ...

    def rows(self) -> Iterator[pa.RecordBatch]:
        """What the copy holds, in the definition's stored schema."""
        ...

    def damage(self) -> Sequence[str]:
        """What of the copy is gone, altered, doubled or not ours, before its rows are compared."""
        ...

    def mend(self) -> None:
        """Leaves out what can't be read, what stands there twice and what others put there, so that the rest can be
        compared. State and position stay: the caller then sends what is missing."""
        ...

    def checksums(self) -> RangeChecksums | None:
        """The copy's checksums by range, where its own system computes them; None where rows must be read."""
        ...

    def count(self) -> int:
        """How many rows users see."""
        ...

    def drop(self) -> None:
        """Removes the copy and all that belongs to it."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> CopyTarget: ...

    def __exit__(self, *_: object) -> None: ...


def open_target(url: str | Address, *, create: bool = True) -> CopyTarget:
    """The copy at `url`; with `create` a file or folder that is not there yet is made."""
    address = parse_address(url) if isinstance(url, str) else url
    if address.kind in FOLDERS:
        from strandline.replication.targets.parquet import ParquetTarget

        return ParquetTarget(address, _folder_of(address), create=create)
    if address.kind == "store":
        from strandline.replication.targets.store import StoreTarget

        return StoreTarget(address, create=create)
    if address.kind == "adbc":
        raise InputError(
            "databases of other drivers are only read",
            doing=f"opening {address.shown}",
            hint="Copy to one of sqlite://, duckdb://, postgresql://, parquet://, delta://, iceberg:// and strandline://",
        )
    from strandline.replication.targets.sql import SqlTarget

    return SqlTarget(address, create=create)


def _folder_of(address: Address) -> ParquetFolder:
    if address.kind == "parquet":
        from strandline.replication.targets.parquet_folder import ParquetFolder

        return ParquetFolder(address.location)
    with extra(address.kind, f"opening {address.shown}"):
        if address.kind == "delta":
            from strandline.replication.targets.delta_folder import DeltaFolder

            return DeltaFolder(address.location)
        from strandline.replication.targets.iceberg_folder import IcebergFolder

        return IcebergFolder(address.location)
