"""Ten thousand refreshes of sums, averages and deviations of floating point and decimals: does anything drift?

A table of 500 rows in 10 groups; each commit gives one row other values, of magnitudes from 1e-8 to 1e16 in floating
point, and with four digits behind the point as a decimal, to whose sums changes are added (in a view of its own). Each
of the two views is stored twice: its rows kept in every commit, and refreshed after every commit by the difference, so
that five thousand commits make ten thousand refreshes. All are compared, bit for bit, with the query computed from the
table, every thousand refreshes; in the end every row gets its first value again, and the first rows must be there
again. Beside them stand sums as they are kept by adding what comes and taking off what goes.
"""

from __future__ import annotations

import statistics
import struct
import sys
import time
from collections.abc import Iterable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from strandline.storage import MemoryStorage
from strandline.store import Store, View, create_on

ROWS, GROUPS = 500, 10
DECIMAL = pa.decimal128(30, 4)
DEFERRED = ("deferred", "exact_deferred")
SQL = "select g, sum(x) as total, avg(x) as mean, stddev(x) as spread, count(*) as n from t group by g"
EXACT = "select g, sum(d) as total, avg(d) as mean, max(d) as most, count(*) as n from t group by g"


def bits(rows: pa.Table) -> list[tuple[bytes, ...]]:
    """Rows with floating point as its bits."""
    return sorted(
        tuple(struct.pack("d", value) if isinstance(value, float) else str(value).encode() for value in row.values())
        for row in rows.to_pylist()
    )


def decimal_of(value: float) -> Decimal:
    return Decimal(value).quantize(Decimal("0.0001"))


def check(store: Store, views: Iterable[View]) -> int:
    """How many of the stored rows are not, bit for bit, those of the query."""
    truth = {name: bits(store.view(name).to_arrow()) for name in ("computed", "exact")}
    wrong = 0
    for view in views:
        expected = truth["exact" if view.name.startswith("exact") else "computed"]
        wrong += sum(a != b for a, b in zip(bits(view.to_arrow()), expected, strict=True))
    return wrong


def run(refreshes: int) -> None:
    chance = np.random.default_rng(5)
    first = chance.normal(size=ROWS) * 10.0 ** chance.integers(-8, 17, ROWS)
    with create_on(MemoryStorage()) as store:
        groups = np.arange(ROWS) % GROUPS
        decimals = pa.array([decimal_of(one) for one in first], DECIMAL)
        store.create_table("t", pa.table({"k": np.arange(ROWS), "g": groups, "x": first, "d": decimals}), key="k")
        store.view("computed", SQL)
        store.view("exact", EXACT)
        views = [store.view(name, SQL, stored=True, maintain=name) for name in ("eager", "deferred")]
        views += [store.view(f"exact_{one}", EXACT, stored=True, maintain=one) for one in ("eager", "deferred")]
        began, now, wrong = [bits(view.to_arrow()) for view in views], first.copy(), 0
        kept = np.array([now[groups == group].sum() for group in range(GROUPS)])
        seconds: dict[str, list[float]] = {"commit": [], "refresh": []}

        def put(key: int, value: float) -> None:
            kept[key % GROUPS] += value - now[key]
            now[key] = value
            started = time.process_time()
            values = {"x": value, "d": decimal_of(value)}
            store.table("t").update(where="k = :k", values=values, params={"k": key})
            committed = time.process_time()
            for view in (store.view(name) for name in DEFERRED):
                done = view.refresh()
                assert done.method in ("difference", "nothing"), done
            seconds["commit"].append(committed - started)
            seconds["refresh"].append((time.process_time() - committed) / len(DEFERRED))

        for number in range(refreshes // len(DEFERRED)):
            put(int(chance.integers(0, ROWS)), float(chance.normal() * 10.0 ** chance.integers(-8, 17)))
            done = (number + 1) * len(DEFERRED)
            if done % 1000 == 0:
                wrong += check(store, views)
                print(f"{done:>7,} refreshes: {wrong} rows differ", flush=True)
        sums = {row["g"]: row["total"] for row in store.view("computed").to_arrow().to_pylist()}
        drift = max(abs(kept[group] - sums[group]) / abs(sums[group]) for group in range(GROUPS))
        for key in np.flatnonzero(now != first).tolist():
            put(key, float(first[key]))
        again = [bits(view.to_arrow()) for view in views] == began
        left = max(abs(kept[group] - first[groups == group].sum()) for group in range(GROUPS))
    print(f"rows that differed from the query: {wrong}; the first rows are there again: {again}")
    print(f"sums kept by adding and taking off: wrong by up to {drift:.1e} of themselves, and by {left:.3g} in the end")
    spent = (f"{1000 * statistics.median(each):.1f} a {what}" for what, each in seconds.items())
    print(f"ms of processor, medians: {', '.join(spent)}")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
