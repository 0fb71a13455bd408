"""From a URL to a copy."""

from __future__ import annotations

from strandline.relations import Address, parse_address
from strandline.replication.targets.target import Replica


def open_replica(url: str | Address, *, create: bool = True) -> Replica:
    """The copy at `url`; with `create` a file or folder that is not there yet is made."""
    address = parse_address(url) if isinstance(url, str) else url
    if address.kind == "parquet":
        from strandline.replication.targets.parquet import ParquetReplica

        return ParquetReplica(address, create=create)
    if address.kind == "store":
        from strandline.replication.targets.store import StoreReplica

        return StoreReplica(address, create=create)
    from strandline.replication.targets.sql import SqlReplica

    return SqlReplica(address, create=create)
