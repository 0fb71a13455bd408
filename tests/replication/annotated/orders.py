"""The base of most tests of copies, and what users find at its copies."""

from __future__ import annotations

from typing import Any

from tests.replication.annotated.conftest import Source

from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import connect
from strandline.replication.annotated_base import Base, base
from strandline.values import quoted

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, price DOUBLE PRECISION)"
INSERT = "INSERT INTO orders (id, name, price) VALUES "
TARGETS = ["duckdb", "sqlite", "parquet"]


def orders(source: Source, rows: int = 20, algorithm: str = "marked") -> Base:
    source.run(ORDERS)
    source.run(INSERT + ", ".join(f"({i}, 'n{i}', {i % 10})" for i in range(1, rows + 1)))
    return base(source.url, source.table("orders"), algorithm=algorithm)


def rows_at(url: str) -> list[tuple[Any, ...]]:
    """What a user finds at a target."""
    address = parse_address(url)
    if address.kind == "parquet":
        import pyarrow.dataset as ds

        return sorted(
            tuple(row.values()) for row in ds.dataset(address.location, format="parquet").to_table().to_pylist()
        )
    if address.kind == "store":
        import strandline as sl

        with sl.open(address.location) as store:
            return sorted(tuple(row.values()) for row in store.table(address.table).to_arrow().to_pylist())
    with connect(address) as database:
        return sorted(tuple(row) for row in database.execute(f"SELECT * FROM {quoted(address.schema, address.table)}"))


def query(source: Source, where: str = "1 = 1", columns: str = "id, name, price") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in source.run(f"SELECT {columns} FROM orders WHERE {where}"))
