"""What a difference of a view costs, over four sizes of its base and four of the change: exponents, fitted.

    python -m benchmarks.view_scaling
    python -m benchmarks.view_scaling 100000 200000 400000 800000      other sizes of the base

For each size of the base a table in memory, with a group for every ten rows; each change updates as many rows with
consecutive keys. The difference is computed between the two states, by its processor time, the median of three after
one that has nothing to add to yet; `seconds ~ base^a · change^b` is fitted by least squares of logarithms.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import pyarrow as pa

from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.views import StoreState, TwoStates
from strandline.views.operator_delta import view_delta

BASES = (100_000, 300_000, 900_000, 2_700_000)
CHANGES = (10, 100, 1_000, 10_000)
VIEWS = {
    "rows": "select k, x from t where x > 5",
    "join": "select t.k, t.x, u.name from t join u on t.g = u.g where t.x > 5",
    "groups": "select g, count(*) as n, sum(x) as total from t group by g",
    "subquery": "select k from t where x > (select avg(y) from u where u.g = t.g)",
}


def made(store: Store, base: int) -> None:
    keys = np.arange(base)
    store.create_table("t", pa.table({"k": keys, "g": keys // 10, "x": keys % 97}), key="k")
    groups = np.arange(base // 10)
    names = pa.array([f"group {one}" for one in groups.tolist()])
    store.create_table("u", pa.table({"g": groups, "y": groups % 89, "name": names}), key="g")
    for name, sql in VIEWS.items():
        store.view(name, sql)


def seconds(store: Store, change: int, turn: int) -> dict[str, float]:
    """Processor seconds of the difference of each view, after one change."""
    spent = {}
    with store.snapshot() as then:
        store.table("t").update(where=f"k >= {turn * change} and k < {(turn + 1) * change}", set={"x": "(x + 1) % 97"})
        with store.state(then) as older, store.state() as newer:
            for name in VIEWS:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                started = time.process_time()
                view_delta(store.view(name).definition, sides)
                spent[name] = time.process_time() - started
    return spent


def main() -> None:
    bases = tuple(map(int, sys.argv[1:])) or BASES
    found: dict[str, list[tuple[int, int, float]]] = {name: [] for name in VIEWS}
    for base in bases:
        with create_on(MemoryStorage()) as store:
            made(store, base)
            for change in CHANGES:
                turns = [seconds(store, change, turn) for turn in range(4)][1:]
                for name in VIEWS:
                    found[name].append((base, change, statistics.median(one[name] for one in turns)))
    for name, measured in found.items():
        logs = np.log(np.array(measured, dtype=np.float64))
        fitted = np.linalg.lstsq(np.c_[np.ones(len(logs)), logs[:, :2]], logs[:, 2], rcond=None)[0]
        print(f"{name}: seconds ~ base^{fitted[1]:.2f} · change^{fitted[2]:.2f}")
        for base in bases:
            line = "  ".join(f"{1000 * spent:8.1f}" for size, _, spent in measured if size == base)
            print(f"  {base:>9,}: {line}  ms for changes of {', '.join(f'{one:,}' for one in CHANGES)}")


if __name__ == "__main__":
    main()
