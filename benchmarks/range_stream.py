"""Range modifications on a stream of updates: what refreshes send when updates by expression travel as statements.

A shop's table of items (200,000 rows, 100 categories) and an eagerly kept view of those that are not withdrawn, copied
to DuckDB, SQLite and PostgreSQL. Of 200 commits, three in four change one row; each fourth is one of the updates by
expression in `RANGES`. The copies are refreshed after every ten commits, and verified in the end. The same stream runs
twice, each in a store of its own. The second time, an update by expression shares its transaction with another verb
that changes nothing. The store then does not record the statement, so its rows are sent.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.refresh import Server

from strandline.store import Store, create

ROWS, CATEGORIES = 200_000, 100
COMMITS, BETWEEN_REFRESHES, EVERY = 200, 10, 4
VIEW = "select id, category, price, fee, qty, status, due from items where status <> 'withdrawn'"

RANGES = (
    ({"price": "price * 0.9"}, "category = {category}"),
    ({"status": "'sale'", "fee": "fee - 0.50"}, "category = {category} and status = 'listed'"),
    ({"qty": "qty + 10"}, "category = {category} and qty < 20"),
    ({"due": "due + 7"}, "id between {first} and {last}"),
    ({"status": "'withdrawn'"}, "category = {category} and qty = 0"),
)
"""A price cut, a sale, a restock and a delay move no row out of the view. The last one does: its rows are sent."""


@dataclass
class Stream:
    """What one run measured: for each kind of copy, what each refresh sent and how long it took."""

    messages: dict[str, list[int]] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def note(self, kind: str, messages: int, size: int, seconds: float) -> None:
        self.messages.setdefault(kind, []).append(messages)
        self.bytes.setdefault(kind, []).append(size)
        self.seconds.setdefault(kind, []).append(seconds)


def items(rows: int) -> pa.Table:
    chance = np.random.default_rng(11)
    cents = chance.integers(100, 100_000, rows)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "category": pa.array(chance.integers(0, CATEGORIES, rows).astype(np.int32)),
            "price": pa.array(cents / 100),
            "fee": pa.array(cents / 1000).cast(pa.decimal128(12, 2), safe=False),
            "qty": pa.array(chance.integers(0, 60, rows).astype(np.int32)),
            "status": pa.array(np.where(chance.random(rows) < 0.1, "withdrawn", "listed")),
            "due": pa.array(chance.integers(18_000, 21_000, rows).astype(np.int32)).cast(pa.date32()),
        }
    )


def measure(rows: int, *, statements: bool) -> Stream:
    """One run of the stream; without `statements`, updates by expression are sent as rows."""
    folder, server = Path(tempfile.mkdtemp(prefix="strandline-bench-")), Server(None)
    places = {
        "DuckDB": f"duckdb:///{folder}/copy.duckdb#items_duckdb",
        "SQLite": f"sqlite:///{folder}/copy.sqlite#items_sqlite",
        "PostgreSQL": f"{server.url}#public.items_postgres",
    }
    stream = Stream()
    try:
        with create(folder / "shop") as store:
            store.create_table("items", items(rows), key="id")
            view = store.view("offered", VIEW, maintain="eager")
            copies = {kind: view.replicate(url, runner="inline") for kind, url in places.items()}
            for number in range(COMMITS):
                _commit(store, rows, number, statements=statements)
                if (number + 1) % BETWEEN_REFRESHES == 0:
                    for kind, copy in copies.items():
                        done = copy.refresh("difference", runner="inline")
                        stream.note(kind, done.messages, done.bytes, done.seconds)
            for kind, copy in copies.items():
                if not copy.verify(runner="inline"):
                    raise SystemExit(f"the copy in {kind} is not what the view says")
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    return stream


def _commit(store: Store, rows: int, number: int, *, statements: bool) -> None:
    """One commit of the stream: of one row, or by expression."""
    chance = np.random.default_rng([12, number])
    if number % EVERY:
        store.table("items").update(
            where=f"id = {chance.integers(0, rows)}", values={"qty": int(chance.integers(0, 60))}
        )
        return
    set_, where = RANGES[number // EVERY % len(RANGES)]
    first = int(chance.integers(0, rows - rows // CATEGORIES))
    last = first + rows // CATEGORIES - 1
    where = where.format(category=chance.integers(0, CATEGORIES), first=first, last=last)
    with store.transaction() as transaction:
        transaction.update("items", set=set_, where=where)
        if not statements:
            transaction.delete("items", where="id = -1")


def show(rows: int) -> None:
    """Prints a row for each kind of copy and each way."""
    print("| rows | copy | updates by expression | messages | bytes | bytes of all | refresh (s) |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    sent: dict[str, Counter[str]] = {}
    for way, statements in (("as statements", True), ("as rows", False)):
        stream = measure(rows, statements=statements)
        for kind in stream.messages:
            total = sum(stream.bytes[kind])
            sent.setdefault(kind, Counter())[way] = total
            print(
                f"| {rows:,} | {kind} | {way} | {statistics.median(stream.messages[kind]):,.0f} | "
                f"{statistics.median(stream.bytes[kind]):,.0f} | {total:,} | "
                f"{statistics.median(stream.seconds[kind]):.3f} |",
                flush=True,
            )
    for kind, by_way in sent.items():
        print(f"{kind}: statements send {by_way['as statements'] / by_way['as rows']:.3f} × the bytes of rows")
