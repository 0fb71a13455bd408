"""The demo: three nights of a shop on Spark, step by step, with figures.

A shop's operational database is extracted, compared and loaded by a declared pipeline; a joined view is kept fresh in
DuckDB and SQLite; a price cut is supposed two levels deep while the base goes on changing, and merged with one
conflict; the store is dumped, destroyed and restored. Everything stays in its folder for exploring.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.dumps import restore
from strandline.engine import session
from strandline.errors import StrandlineError
from strandline.pipeline import Pipeline, RunOptions, RunResult, read_settings
from strandline.store import Store
from strandline.store import open as open_store

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


Say = Callable[[str], None]
ORDERS = 100_000
PIPELINE = """\
store = "shop"
snapshot = "night-{step}"

[sources.orders]
from = "extracts/orders-*.parquet"
pick = "latest"
key = "id"
detect = "signatures"

[sources.orders.guards]
changed = "30%"
required = ["product", "qty"]

[sources.products]
from = "sqlite:///shop.db#products"
key = "id"

[sources.customers]
from = "sqlite:///shop.db#customers"
key = "id"

[views.big_orders]
sql = \"\"\"
select o.id, c.name as customer, c.town, p.name as product, o.qty, o.state
from orders o join customers c on o.customer = c.id join products p on o.product = p.id
where o.qty >= 8 and p.price > 150
\"\"\"

[replicas.analysts]
of = "big_orders"
to = "duckdb:///analysts.duckdb#big_orders"

[replicas.branch_office]
of = "big_orders"
to = "sqlite:///branch-office.db#big_orders"
"""


@dataclass
class Story:
    """The shop, and the figures printed so far."""

    say: Say
    home: Path
    shop: OperationalDatabase
    runner: str = "spark"
    figures: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def step(self, title: str) -> None:
        self.number += 1
        self.say(f"\n{self.number}. {title}")

    def tell(self, words: str) -> None:
        self.say(f"   {words}")

    @property
    def store(self) -> Path:
        return self.home / "shop"


def run_demo(say: Say, folder: str | None, runner: str) -> dict[str, Any]:
    """Runs the demo in a new folder, which it leaves behind, and returns the figures that it printed."""
    started = time.perf_counter()
    home = Path(folder or tempfile.mkdtemp(prefix="strandline-demo-")).absolute()
    if home.exists() and any(home.iterdir()):
        raise StrandlineError(f"{home} is not empty", doing="starting the demo", hint="Name a new folder")
    home.mkdir(parents=True, exist_ok=True)
    (home / "shop.toml").write_text(PIPELINE, "utf-8")
    story = Story(say, home, OperationalDatabase(home / "shop.db"), runner)
    say(f"A shop, in {home}")
    for act in (_open, _first_night, _second_night, _suppose, _third_night, _merge, _dumps, _disaster, _check):
        act(story)
    story.figures["seconds"] = round(time.perf_counter() - started, 1)
    _farewell(story)
    return {"folder": str(home), **story.figures}


def _open(story: Story) -> None:
    on_spark = story.runner == "spark"
    story.step("Spark starts, and the shop opens." if on_spark else "The shop opens.")
    started = time.perf_counter()
    if on_spark:
        session()
    made = story.shop.open(ORDERS)
    story.tell(f"Its database has {made}{'; Spark is up' if on_spark else ''}. {_took(started)}")


def _first_night(story: Story) -> None:
    story.step("Night 1: the first extract is loaded, in one transaction for all tables.")
    ran = _night(story)
    rows = sum(source.counts.inserted for source in ran.sources.values())
    story.tell(f"{rows:,} rows in {len(ran.sources)} tables; snapshot {_snapshot(ran)}. {ran.seconds:.1f} s.")
    _tell_copies(story, ran)
    with open_store(story.store) as store:
        made = store.dump(story.home / "backups", level=0)
    story.tell(f"Dumped, level 0: {made.bytes / 1e6:.1f} MB in {made.pages} pages.")
    story.figures["level_0_bytes"] = made.bytes


def _second_night(story: Story) -> None:
    story.step("A day of trade, and night 2: what changed?")
    story.shop.trade(1)
    ran = _night(story)
    _tell_changes(story, ran)
    _tell_copies(story, ran)


def _suppose(story: Story) -> None:
    story.step("What if prices were cut? Two levels deep, on a base that goes on changing.")
    with open_store(story.store) as store:
        cut = store.table("products").what_if("cut")
        count = cut.update(where="stock > 900", set={"price": "round(price * 0.9, 2)"})
        deeper = cut.what_if("deeper")
        more = deeper.update(where="stock > 980", set={"price": "round(price * 0.8, 2)"})
        sums = [
            sum(each.to_arrow(columns=["price"])["price"].to_pylist())
            for each in (store.table("products"), cut, deeper)
        ]
    story.tell(f"cut: 10 % off {count} slow sellers; deeper, on top of it: 20 % off {more} of them.")
    story.tell("All prices together: " + " → ".join(f"{total:,.0f}" for total in sums) + "; the table is as it was.")
    story.figures["supposed"] = count + more


def _third_night(story: Story) -> None:
    story.step("Another day: the shop itself raises the price of one of these. Night 3.")
    story.shop.trade(2)
    story.figures["raised"] = story.shop.raise_price_of_slow_seller()
    ran = _night(story)
    _tell_changes(story, ran)
    _tell_copies(story, ran)


def _merge(story: Story) -> None:
    story.step("The price cut is decided: deeper into cut, cut into the table.")
    with open_store(story.store) as store:
        deeper, cut = store.what_if("deeper"), store.what_if("cut")
        inner = deeper.merge().summary()
        deeper.drop()
        conflicts = cut.conflicts()
        done = cut.merge(resolve="theirs").summary()
        rows = store.table("products").to_arrow(columns=["id", "price"])
        story.shop.take_prices(rows.to_pylist())
    story.tell(
        f"{inner.updated} changes into cut; {len(conflicts)} conflict with the shop's own new price: theirs stands."
    )
    story.tell(f"{done.updated} prices changed in one transaction, and told to the shop's database.")
    story.figures |= {"conflicts": len(conflicts), "merged": done.updated}


def _dumps(story: Story) -> None:
    story.step("The merged prices reach the copies, and a dump of level 1 holds what changed since level 0.")
    ran = _run(story)
    _tell_copies(story, ran)
    with open_store(story.store) as store:
        made = store.dump(story.home / "backups", level=1)
    full = story.figures["level_0_bytes"]
    story.tell(f"Level 1: {made.bytes / 1e6:.1f} MB; level 0 had {full / 1e6:.1f} MB.")
    story.figures["level_1_bytes"] = made.bytes


def _disaster(story: Story) -> None:
    story.step("A disaster: the store is gone. It is restored from its dumps.")
    started = time.perf_counter()
    with open_store(story.store) as store:
        before = _contents(store)
        snapshots = [record.name for record in store.snapshots()]
    shutil.rmtree(story.store)
    restore(story.home / "backups", story.store)
    with open_store(story.store) as store:
        if _contents(store) != before or [record.name for record in store.snapshots()] != snapshots:
            raise StrandlineError("the restored store differs", doing="the demo's own check")
    story.tell(f"Tables and the snapshots {', '.join(snapshots)} are back, row by row. {_took(started)}")


def _check(story: Story) -> None:
    story.step("check: every invariant, every checksum; and every copy against its view.")
    with open_store(story.store) as store:
        report = store.check()
        equal = all(copy.verify().equal for copy in store.copies())
    if not report.ok or not equal:
        raise StrandlineError("something is wrong", doing="checking the store", hint="See strandline check")
    story.tell(f"All is well: {report.objects:,} objects, {report.bytes / 1e6:.1f} MB; both copies equal the view.")
    story.figures["checked_objects"] = report.objects


def _farewell(story: Story) -> None:
    here = os.path.relpath(story.home)
    here = str(story.home) if here.startswith("..") else here
    story.say(f"\nThat took {story.figures['seconds']:.0f} s. Look around in {here}:")
    story.say(f"  strandline status {here}/shop.toml")
    story.say(f"  strandline changes {here}/shop orders --since night-2 --limit 5")
    story.say(f"  strandline log {here}/shop")
    story.say(f"The report of the last run: {story.figures['report']}")


def _night(story: Story) -> RunResult:
    story.shop.extract(story.home / "extracts")
    return _run(story)


def _run(story: Story) -> RunResult:
    ran = Pipeline(read_settings(story.home / "shop.toml"), options=RunOptions(story.runner)).run()
    if ran.behind:
        raise StrandlineError(str(ran.behind), doing="refreshing the demo's copies")
    story.figures["report"] = ran.report
    return ran


def _tell_changes(story: Story, ran: RunResult) -> None:
    for source in ran.sources.values():
        counts = source.counts
        if counts.rows:
            touched = [name for name, count in (counts.columns or {}).items() if count]
            columns = f" ({', '.join(touched)})" if touched else ""
            words = f"+{counts.inserted:,} ~{counts.updated:,}{columns} −{counts.deleted:,}"
            story.tell(f"{source.source.name}: {words}, by {source.how}.")
    story.tell(f"One step, snapshot {_snapshot(ran)}. {ran.seconds:.1f} s.")


def _tell_copies(story: Story, ran: RunResult) -> None:
    for name, copy in (ran.last.replicas if ran.last else {}).items():
        sent, full = int(copy["bytes"]), int(copy["full_bytes"])
        share = f", {sent / full:.0%} of a full copy's {full / 1e3:.0f} kB" if copy["method"] != "first" else ""
        story.tell(
            f"{name} ({copy['to'].partition(':')[0]}): {copy['messages']:,} messages, {sent / 1e3:.0f} kB{share}."
        )
        story.figures[f"{name}_bytes"], story.figures[f"{name}_full_bytes"] = sent, full


def _contents(store: Store) -> dict[str, Any]:
    return {name: store.table(name).to_arrow() for name in store.tables()}


def _snapshot(ran: RunResult) -> str:
    return ran.step.snapshot if ran.step else "none"


def _took(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s."
