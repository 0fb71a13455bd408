"""From a URL to a copy."""

from __future__ import annotations

from strandline.replicas.databases import Address, parse_address
from strandline.replicas.replica import Replica


def open_replica(url: str | Address, *, create: bool = True) -> Replica:
    """The copy at `url`; with `create` a file or folder that is not there yet is made."""
    address = parse_address(url) if isinstance(url, str) else url
    if address.kind == "parquet":
        from strandline.replicas.parquet_replica import ParquetReplica

        return ParquetReplica(address, create=create)
    if address.kind == "store":
        from strandline.replicas.store_replica import StoreReplica

        return StoreReplica(address, create=create)
    from strandline.replicas.sql_replica import SqlReplica

    return SqlReplica(address, create=create)
