"""The demo's shop: an operational database in SQLite, a day of trade, and its nightly extract."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SEED = 1996
PRODUCTS = 2_000
TOWNS = ("Aarhus", "Bergen", "Cork", "Dundee", "Esbjerg", "Falmouth")
GOODS = ("anchor", "buoy", "chain", "dinghy", "fender", "lantern", "oar", "rope", "sail", "winch")
STATES = ("open", "paid", "sent", "closed")
SLOW = 900
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("product", pa.int64()),
        ("qty", pa.int64()),
        ("state", pa.string()),
        ("note", pa.string()),
    ]
)


class OperationalDatabase:
    """Customers, products and orders, as the shop's people change them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chance = random.Random(SEED)
        self._orders = self._customers = self._nights = 0

    def open(self, orders: int) -> str:
        """Makes the database; how many rows it has, in words."""
        self._customers = max(orders // 10, 10)
        with closing(self._connect()) as shop, shop:
            shop.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, town TEXT)")
            shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price REAL, stock INTEGER)")
            shop.execute(
                "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, product INTEGER, qty INTEGER, "
                "state TEXT, note TEXT)"
            )
            customers = [(n, f"customer {n}", self._chance.choice(TOWNS)) for n in range(1, self._customers + 1)]
            shop.executemany("INSERT INTO customers VALUES (?, ?, ?)", customers)
            shop.executemany(
                "INSERT INTO products VALUES (?, ?, ?, ?)", [self._product(n) for n in range(1, PRODUCTS + 1)]
            )
            self._take_orders(shop, orders)
        return f"{orders:,} orders, {self._customers:,} customers and {PRODUCTS:,} products"

    def trade(self, day: int) -> None:
        """A day: some orders move on, some are cancelled, some come; stocks change; a few customers move."""
        with closing(self._connect()) as shop, shop:
            moving = [(n,) for n in range(1, self._orders + 1) if self._chance.random() < 0.015]
            shop.executemany(
                "UPDATE orders SET state = CASE state WHEN 'open' THEN 'paid' WHEN 'paid' THEN 'sent' "
                "ELSE 'closed' END WHERE id = ?",
                moving,
            )
            gone = [(n,) for n in range(1, self._orders + 1) if self._chance.random() < 0.003]
            shop.executemany("DELETE FROM orders WHERE id = ?", gone)
            self._take_orders(shop, max(self._orders // 200, 1))
            shop.execute("UPDATE products SET stock = max(stock - 1, 0) WHERE id % 40 = ? AND stock <= ?", (day, SLOW))
            shop.execute("UPDATE customers SET town = ? WHERE id % 500 = ?", (self._chance.choice(TOWNS), day))

    def raise_price_of_slow_seller(self) -> int:
        """The shop itself changes the price of the first slow seller; its number."""
        with closing(self._connect()) as shop, shop:
            number: int = shop.execute("SELECT min(id) FROM products WHERE stock > ?", (SLOW,)).fetchone()[0]
            shop.execute("UPDATE products SET price = price + 1 WHERE id = ?", (number,))
        return number

    def take_prices(self, rows: list[dict[str, Any]]) -> None:
        """Prices that were decided elsewhere."""
        with closing(self._connect()) as shop, shop:
            shop.executemany("UPDATE products SET price = :price WHERE id = :id AND price <> :price", rows)

    def extract(self, folder: Path) -> None:
        """The night's extract of all orders: one Parquet file, renamed when it is whole."""
        self._nights += 1
        folder.mkdir(exist_ok=True)
        with closing(self._connect()) as shop:
            columns = list(zip(*shop.execute("SELECT * FROM orders ORDER BY id").fetchall(), strict=True))
        table = pa.table(
            [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
        part = folder / f".orders-{self._nights}.part"
        pq.write_table(table, part, row_group_size=20_000)
        os.replace(part, folder / f"orders-{self._nights}.parquet")

    def _take_orders(self, shop: sqlite3.Connection, count: int) -> None:
        chance, first = self._chance, self._orders + 1
        rows = [
            (
                number,
                chance.randint(1, self._customers),
                chance.randint(1, PRODUCTS),
                chance.randint(1, 9),
                chance.choice(STATES),
                None if chance.random() < 0.7 else f"for {chance.choice(TOWNS)}",
            )
            for number in range(first, first + count)
        ]
        shop.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._orders += count

    def _product(self, number: int) -> tuple[int, str, float, int]:
        chance = self._chance
        return number, f"{chance.choice(GOODS)} {number}", round(chance.uniform(1, 200), 2), chance.randint(0, 1000)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)
