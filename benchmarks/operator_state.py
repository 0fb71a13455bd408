"""What accumulators of groups cost where they are: computed by a new process, or kept in a table of the store.

    python -m benchmarks.operator_state FOLDER        FOLDER has lineitem.parquet of TPC-H

Three views of counts and sums over all lines: by order, by part, and by the return flag. For each, processes of their
own compute what is held of the groups from the lines, read it from a table of the store that holds just that, and
replace some 1,500 groups in that table by a commit, as every refresh would. Processor seconds, medians of three.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import strandline as sl

GROUPS = {"orders": "l_orderkey", "parts": "l_partkey", "flags": "l_returnflag"}
COLUMNS = ["l_orderkey", "l_linenumber", "l_partkey", "l_returnflag", "l_quantity"]
WORK = ("compute", "read", "write")
TOUCHED = 1500


def made(folder: Path, place: Path) -> None:
    """The lines, the views, and tables that hold what the views do."""
    with sl.create(place) as store:
        lines = pq.read_table(folder / "lineitem.parquet", columns=COLUMNS)
        store.create_table("lineitem", lines, key=COLUMNS[:2])
        for name, column in GROUPS.items():
            sql = f"select {column}, count(*) as n, sum(l_quantity) as q from lineitem group by {column}"
            store.create_table(f"held {name}", store.view(name, sql).to_arrow(), key=column)


def seconds(place: Path, what: str, name: str) -> float:
    """Processor seconds of one piece of work, in this process."""
    with sl.open(place) as store:
        held = store.table(f"held {name}")
        work: dict[str, Callable[[], Any]] = {"compute": store.view(name).to_arrow, "read": held.to_arrow}
        if what == "write":
            rows = held.to_arrow()
            some = rows.take(np.arange(0, len(rows), max(len(rows) // TOUCHED, 1)))
            held.upsert(some.slice(0, 1))
            work["write"] = partial(held.upsert, some)
        started = time.process_time()
        work[what]()
        return time.process_time() - started


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as place:
        made(folder, Path(place) / "store")
        for name in GROUPS:
            told = []
            for what in WORK:
                command = [sys.executable, "-m", "benchmarks.operator_state", f"{place}/store", what, name]
                spent = [float(subprocess.check_output(command, text=True)) for _ in range(3)]
                told.append(f"{what} {1000 * statistics.median(spent):.0f} ms")
            print(f"{name}: {', '.join(told)}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(seconds(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    else:
        main(Path(sys.argv[1]))
