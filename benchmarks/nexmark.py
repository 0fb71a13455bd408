"""Queries like Nexmark's as views: joins and windows of time over people, auctions and bids that keep coming.

    python -m benchmarks.nexmark                        200,000 bids, five turns
    python -m benchmarks.nexmark --bids 1000000 --repeat 3 --json figures.json

Of fifty events one is a person, three are auctions, and forty-six are bids, ten thousand events a second, as the
generator of Nexmark mixes them; hot sellers and auctions get half of all. A turn is a second of events more, and the
clock of the store goes on with them. Then each copy, in DuckDB, is refreshed by its difference and compared with its
view; DuckDB computes the same query from scratch over its own tables of the same rows, and keeps nothing. Shown are
processor seconds (all threads): medians of the turns after the first, which has nothing to add to yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from strandline.pages import Environment
from strandline.storage import LocalStorage
from strandline.store import Store, create_on

T = TypeVar("T")
START = 1_700_000_000_000_000
"""The first instant, in microseconds since 1970."""
APART = 100
"""Microseconds between two events."""
INSTANT = pa.timestamp("us", "UTC")
STATES = ("OR", "ID", "CA", "WA", "AZ")
QUERIES = {
    "1 in euros": "select id, auction, bidder, 0.908 * price as price, made from bid",
    "2 chosen auctions": "select id, auction, price from bid where auction % 123 = 0",
    "3 local sellers": "select p.name, p.state, a.id from auction a join person p on a.seller = p.id "
    "where a.category = 10 and p.state in ('OR', 'ID', 'CA')",
    "4 prices by category": "select category, avg(final) as price from (select a.id, category, max(price) as final "
    "from auction a join bid b on a.id = auction and b.made between a.made and expires group by all) group by 1",
    "5 hot auctions": "select auction, time_bucket(interval 1 second, made) as second, count(*) as bids from bid "
    "group by all having count(*) >= 100",
    "7 highest bid of a window": "select b.id, b.auction, b.price, w.second from bid b join (select "
    "time_bucket(interval 1 second, made) as second, max(price) as price from bid group by all) w "
    "on b.price = w.price and time_bucket(interval 1 second, b.made) = w.second",
    "8 new sellers": "select p.id, p.name, p.second from (select id, name, date_trunc('second', made) as second "
    "from person) p join (select distinct seller, date_trunc('second', made) as second from auction) a "
    "on p.id = a.seller and p.second = a.second",
    "of the last second": "select auction, count(*) as bids, max(price) as price from bid "
    "where made > now() - interval 1 second group by auction",
    "open auctions": "select id, seller, expires from auction where now() between made and expires",
}


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Processor seconds of a call, and what it gives."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def events(first: int, count: int, chance: np.random.Generator) -> dict[str, pa.Table]:
    """So many events from a number on, as rows of their tables."""
    numbers = np.arange(first, first + count)
    places = numbers % 50
    at = START + numbers * APART

    def instants(values: Any) -> pa.Array:
        return pa.array(values, pa.int64()).cast(INSTANT)

    people, auctions, bids = places < 1, (places >= 1) & (places < 4), places >= 4
    known = np.maximum(numbers // 50, 1)
    hot = chance.random(count) < 0.5
    sellers = np.where(hot, known // 100 * 100, (chance.random(count) * known).astype(np.int64)) * 50
    targets = np.where(hot, known // 100 * 100, (chance.random(count) * known).astype(np.int64)) * 50 + 1
    prices = (10 ** (chance.random(count) * 6)).astype(np.int64)
    some = numbers[people]
    return {
        "person": pa.table(
            {
                "id": some,
                "name": [f"p{n}" for n in some],
                "state": [STATES[n // 50 % len(STATES)] for n in some],
                "made": instants(at[people]),
            }
        ),
        "auction": pa.table(
            {
                "id": numbers[auctions],
                "seller": sellers[auctions],
                "category": 10 + numbers[auctions] % 5,
                "made": instants(at[auctions]),
                "expires": instants(at[auctions] + (chance.random(auctions.sum()) * 2e6).astype(np.int64)),
            }
        ),
        "bid": pa.table(
            {
                "id": numbers[bids],
                "auction": targets[bids],
                "bidder": sellers[bids],
                "price": prices[bids],
                "made": instants(at[bids]),
            }
        ),
    }


def by_duckdb(store: Store, names: dict[str, str], now: float) -> dict[str, float]:
    """Processor seconds of each query from scratch."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in ("person", "auction", "bid"):
            connection.register(f"rows of {name}", store.table(name).to_arrow())
            connection.execute(f'CREATE TABLE {name} AS FROM "rows of {name}"')
        fixed = {name: sql.replace("now()", f"to_timestamp({now})") for name, sql in names.items()}
        return {name: timed(partial(_all_rows, connection, sql))[0] for name, sql in fixed.items()}


def _all_rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()


def measured(bids: int, repeat: int, folder: Path) -> list[dict[str, Any]]:
    """The figures of each query."""
    chance, first, count = np.random.default_rng(7), 0, bids * 50 // 46
    clock = [0.0]
    with create_on(LocalStorage(folder / "store"), environment=Environment(now=lambda: clock[0])) as store:
        for name, rows in events(first, count, chance).items():
            store.create_table(name, rows, key="id")
        first += count
        clock[0] = (START + first * APART) / 1e6
        copies = {}
        for place, (name, sql) in enumerate(QUERIES.items()):
            view = store.view(f"q{place}", sql)
            copies[name] = view.replicate(f"duckdb:///{folder}/copies.duckdb#q{place}")
        figures: dict[str, list[tuple[float, float, int]]] = {name: [] for name in QUERIES}
        for _ in range(repeat + 1):
            with store.transaction() as change:
                for name, rows in events(first, 10_000, chance).items():
                    change.insert(name, rows)
            first += 10_000
            clock[0] = (START + first * APART) / 1e6
            refreshed = {name: timed(copy.refresh) for name, copy in copies.items()}
            anew = by_duckdb(store, QUERIES, clock[0])
            for name, (seconds, done) in refreshed.items():
                if done.unequal or done.method not in ("difference", "nothing"):
                    raise AssertionError(f"{name}: {done}")
                figures[name].append((seconds, anew[name], done.messages))
        for name, copy in copies.items():
            if not copy.verify():
                raise AssertionError(f"{name}: the copy is not the view")
    return [
        {
            "query": name,
            "first": each[0][0],
            "refresh": statistics.median(one[0] for one in each[1:]),
            "anew": statistics.median(one[1] for one in each[1:]),
            "messages": int(statistics.median(one[2] for one in each[1:])),
        }
        for name, each in figures.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bids", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(given.bids, given.repeat, Path(folder))
    print("| query | first refresh | refresh | DuckDB anew | messages |\n|---|---|---|---|---|")
    for one in figures:
        times = f"{one['first']:.2f} s | {one['refresh']:.2f} s | {one['anew']:.3f} s"
        print(f"| {one['query']} | {times} | {one['messages']} |")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
