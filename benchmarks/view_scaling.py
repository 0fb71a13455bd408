"""What a difference of a view costs, over four sizes of its base and four of the change: exponents, fitted.

    python -m benchmarks.view_scaling
    python -m benchmarks.view_scaling --bases 30000 300000 --only groups "top n"

For each size of the base two tables in memory with the same rows, ten for each group: `t`, whose key is a number, and
`l`, whose key begins with the group, so that keys lead to the rows of one. Each change updates as many rows with
consecutive keys in both. The difference is computed between the two states, by its processor time: the median of three,
and the first, which has nothing in memory to add to yet. `seconds ~ base^a · change^b` is fitted by least squares of
logarithms.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.views import StoreState, TwoStates
from strandline.views.operator_delta import view_delta

BASES = (30_000, 100_000, 300_000, 1_000_000)
CHANGES = (10, 100, 1_000, 10_000)
VIEWS = {
    "rows": "select k, x from t where x > 5",
    "join": "select t.k, t.x, u.name from t join u on t.g = u.g where t.x > 5",
    "groups": "select g, count(*) as n, sum(x) as total from t group by g",
    "groups, by key": "select g, count(*) as n, sum(x) as total from l group by g",
    "extremes": "select g, min(x) as least, max(x) as most from t group by g",
    "extremes, by key": "select g, min(x) as least, max(x) as most from l group by g",
    "count distinct": "select g, count(distinct x) as n from t group by g",
    "count distinct, by key": "select g, count(distinct x) as n from l group by g",
    "median": "select g, median(x) as middle from t group by g",
    "median, by key": "select g, median(x) as middle from l group by g",
    "distinct": "select distinct g, x % 5 as y from t",
    "outer join": "select t.k, t.x, u.name from t left join u on t.g = u.g and t.x > 5",
    "outer join, of the second": "select u.g, t.x from u left join t on t.g = u.g and t.x > 5",
    "outer join, of the second, by key": "select u.g, l.x from u left join l on l.g = u.g and l.x > 5",
    "exists": "select g, name from u where exists (select 1 from t where t.g = u.g and t.x > 95)",
    "exists, by key": "select g, name from u where exists (select 1 from l where l.g = u.g and l.x > 95)",
    "not in": "select g, name from u where g not in (select g from t where x > 95)",
    "a correlated average": "select k from t where x > (select avg(y) from u where u.g = t.g)",
    "window": "select g, k, row_number() over (partition by g order by x, k) as place from t",
    "window, by key": "select g, k, row_number() over (partition by g order by x, k) as place from l",
    "except": "select g, x from t except select g, y from u",
    "top n": "select k, x from t order by x desc, k limit 10",
}


def made(store: Store, base: int, only: Collection[str]) -> None:
    keys = np.arange(base)
    rows = pa.table({"k": keys, "g": keys // 10, "x": keys * 7919 % 997 % 97})
    store.create_table("t", rows, key="k")
    store.create_table("l", rows, key=["g", "k"])
    groups = np.arange(base // 10)
    names = pa.array([f"group {one}" for one in groups.tolist()])
    store.create_table("u", pa.table({"g": groups, "y": groups % 89, "name": names}), key="g")
    for name in only:
        store.view(name, VIEWS[name])


def seconds(store: Store, change: int, turn: int, only: Collection[str]) -> dict[str, float]:
    """Processor seconds of the difference of each view, after one change."""
    spent = {}
    with store.snapshot() as then:
        for table in ("t", "l"):
            where = f"k >= {turn * change} and k < {(turn + 1) * change}"
            store.table(table).update(where=where, set={"x": "(x + 1) % 97"})
        with store.state(then) as older, store.state() as newer:
            for name in only:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                started = time.process_time()
                view_delta(store.view(name).definition, sides)
                spent[name] = time.process_time() - started
    return spent


def fitted(measured: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
    """The exponents of the base and of the change."""
    logs = np.log(np.array(measured, dtype=np.float64))
    found = np.linalg.lstsq(np.c_[np.ones(len(logs)), logs[:, :2]], logs[:, 2], rcond=None)[0]
    return float(found[1]), float(found[2])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bases", type=int, nargs="+", default=BASES)
    arguments.add_argument("--only", nargs="+", default=list(VIEWS), choices=VIEWS)
    given = arguments.parse_args()
    later: dict[str, list[tuple[int, int, float]]] = {name: [] for name in given.only}
    first: dict[str, dict[int, float]] = {name: {} for name in given.only}
    for base in given.bases:
        with create_on(MemoryStorage()) as store:
            made(store, base, given.only)
            for change in CHANGES:
                turns = [seconds(store, change, turn, given.only) for turn in range(4)]
                for name in given.only:
                    first[name].setdefault(base, turns[0][name])
                    middle = statistics.median(one[name] for one in turns[1:])
                    later[name].append((base, change, middle))
    for name, measured in later.items():
        of_base, of_change = fitted(measured)
        began = " ".join(f"{1000 * spent:.0f}" for spent in first[name].values())
        print(f"{name}: seconds ~ base^{of_base:.2f} · change^{of_change:.2f}; first {began} ms")
        for base in given.bases:
            line = "  ".join(f"{1000 * spent:8.1f}" for size, _, spent in measured if size == base)
            print(f"  {base:>9,}: {line}  ms for changes of {', '.join(f'{one:,}' for one in CHANGES)}")


if __name__ == "__main__":
    main()
