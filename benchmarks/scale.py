"""What a differential of very large extracts has on the driver, in a task and in the shuffle, from measured constants.

    python -m benchmarks.scale                       a sample of 1 M rows x 8 columns is measured
    python -m benchmarks.scale --tasks 800 --task-memory 4

The constants are measured here, on a pair of extracts of `--rows` rows and on the footers of a file of many small row
groups; what stands in the table is computed from them, with the function that cuts a plan into pieces. It is linear
where the work is: measured at a million rows, computed for more. No extract of that size was compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.extracts import Extracts, make

from strandline.differential.options import DiffOptions
from strandline.differential.plan import DiffPlan, plan_diff
from strandline.engine import InlineRunner, encode
from strandline.relations import merged, open_relation, read_table
from strandline.relations.exchange import in_buckets
from strandline.values import key_hashes

GROUP_ROWS = 122_880
"""Rows of a row group, as DuckDB writes them by default; others write more."""

SIZES = (10**9, 10**10, 10**12)


@dataclass(frozen=True)
class Constants:
    """Bytes for each row, on storage, on the way, and hashed by its key; bytes and seconds for each row group."""

    stored: float
    shuffled: float
    hashed: float
    planned: float
    seconds: float
    described: float


class Tasks(InlineRunner):
    """A cluster in numbers: how many tasks run at once, and what each may use."""

    def __init__(self, tasks: int, memory: int) -> None:
        super().__init__(tasks)
        self._memory = memory

    @property
    def task_memory(self) -> int:
        return self._memory


def measured(rows: int, folder: Path) -> Constants:
    old, _ = make(Extracts(rows, order="shuffled"), folder)
    relation = open_relation(old)
    scans = [part.scan for part in relation.parts([])]
    group = read_table(scans[:1])
    batches = in_buckets(group, {"key": ["id"], "buckets": 64})
    shuffled = sum(len(batch.serialize().to_pybytes()) for _, batch in batches) / group.num_rows
    hashed = key_hashes(group.select(["id"])).nbytes / group.num_rows
    return Constants(relation.bytes / (relation.rows or 1), shuffled, hashed, *planning(folder))


def planning(folder: Path, groups: int = 20_000) -> tuple[float, float, float]:
    """For each row group: bytes that its plan takes in memory, seconds to plan it, bytes that describe it to a task."""
    path = folder / f"{groups}-groups.parquet"
    if not path.exists():
        pq.write_table(pa.table({"id": range(groups), "v": range(groups)}), path, row_group_size=1)
    started = time.perf_counter()
    open_relation(path).parts(["id"])
    seconds = time.perf_counter() - started
    tracemalloc.start()  # it sees what Python holds, and not what Arrow holds of the footer
    parts = open_relation(path).parts(["id"])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    run = merged(part.scan for part in parts)
    described = sum(len(encode(scan.to_json())) for scan in run)
    return held / len(parts), seconds / len(parts), described / len(parts)


def sheet(constants: Constants, plan: DiffPlan, rows: int, changed: float) -> dict[str, str]:
    """The lines of one column: two sides of `rows` rows each."""
    stored = round(2 * rows * constants.stored)
    groups = 2 * rows / GROUP_ROWS
    pieces = plan.pieces(stored)
    return {
        "both sides on storage": size(stored),
        "row groups": f"{groups:,.0f}",
        "driver: planning": f"{groups * constants.seconds:,.0f} s, {size(groups * constants.planned)}",
        "driver: work items, which travel to every task": size(groups * constants.described),
        f"driver: hashes of changed keys ({changed:.0%})": size(rows * changed * constants.hashed),
        "buckets": f"{pieces:,}",
        "a task: of both sides, as shuffled": size(2 * rows * constants.shuffled / pieces),
        "shuffle, in all": size(2 * rows * constants.shuffled),
        "shuffle blocks (tasks that send x buckets)": f"{2 * 2 * plan.runner.parallelism * pieces:,}",
    }


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--tasks", type=int, default=400, help="tasks that run at once")
    options.add_argument("--task-memory", type=int, default=4, help="GB that a task may use")
    options.add_argument("--changed", type=float, default=0.01)
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "strandline-benchmarks")
    chosen = options.parse_args()
    constants = measured(chosen.rows, chosen.folder)
    print(f"a row: {constants.stored:.0f} B on storage, {constants.shuffled:.0f} B in the shuffle; a row group:")
    print(
        f"{constants.seconds * 1e6:.0f} us and {constants.planned:.0f} B to plan, {constants.described:.0f} B to tell\n"
    )
    runner: Any = Tasks(chosen.tasks, chosen.task_memory * 10**9)
    small = pa.table({"id": [1]})
    plan = plan_diff(small, small.slice(0), ["id"], DiffOptions(), ("inline", None))
    plan = replace(plan, runner=runner, memory=runner.task_memory * runner.parallelism)
    columns = [sheet(constants, plan, rows, chosen.changed) for rows in SIZES]
    print("| 2 × rows | " + " | ".join(f"{rows:.0e}".replace("e+", "e") for rows in SIZES) + " |")
    print("|---|" + "---|" * len(SIZES))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")


if __name__ == "__main__":
    main()
