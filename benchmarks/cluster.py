"""How rows meet on Spark: through local files, by Spark's shuffle with nothing shared, and from DataFrames.

    python -m benchmarks.cluster                     5 M rows x 8 columns in no order, on local[2]
    python -m benchmarks.cluster --rows 1000000 --master spark://head:7077

One warm-up, then `--repeat` timed runs in one session, of which the best counts. "nothing shared" runs as on a cluster
whose workers see no folder of the driver: rows by the shuffle, results through Spark. The last line is Spark's own full
outer join of the same DataFrames, changed rows counted. Ratios are to the exchange through files.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.extracts import Extracts, make
from benchmarks.measure import measure

import strandline as sl
from strandline.engine import SparkRunner

Work = Callable[[], str]


def by_algorithm(spark: Any, old: Any, new: Any, *, shared: bool) -> Work:
    """Our differential, on workers that see the spool or are made to believe that they don't."""

    def work() -> str:
        sees = SparkRunner.shares
        SparkRunner.shares = lambda *_: shared  # type: ignore[method-assign]
        try:
            found = sl.diff(old, new, key="id", algorithm="hash", runner="spark", session=spark)
            return str(found.summary())
        finally:
            SparkRunner.shares = sees  # type: ignore[method-assign]

    return work


def by_join(spark: Any, old: str, new: str) -> Work:
    """Spark's own full outer join, and how many rows differ."""
    left, right = spark.read.parquet(old), spark.read.parquet(new)
    names = [name for name in right.columns if name != "id"]
    renamed = left.toDF(*(f"old_{name}" for name in left.columns))
    differ = " or ".join(f"not (`old_{name}` <=> `{name}`)" for name in names)
    joined = renamed.join(right, renamed["old_id"] == right["id"], "full_outer")
    changed = joined.where(f"old_id is null or id is null or {differ}")
    return lambda: f"{changed.count():,} changed"


def contenders(spark: Any, old: str, new: str) -> dict[str, Work]:
    frames = spark.read.parquet(old), spark.read.parquet(new)
    return {
        "files, through local files": by_algorithm(spark, old, new, shared=True),
        "files, nothing shared": by_algorithm(spark, old, new, shared=False),
        "DataFrames, spool seen": by_algorithm(spark, *frames, shared=True),
        "DataFrames, nothing shared": by_algorithm(spark, *frames, shared=False),
        "Spark's full outer join": by_join(spark, old, new),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--master", default="local[2]")
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "strandline-benchmarks")
    chosen = options.parse_args()
    old, new = make(Extracts(chosen.rows, shuffled=True), chosen.folder)
    spark = sl.session(chosen.master)
    first = None
    for name, work in contenders(spark, old, new).items():
        measured = measure(work, chosen.repeat)
        first = first or measured.best
        ratio = measured.best / first
        print(f"{name:28} {measured.best:7.2f} – {measured.worst:.2f} s  {ratio:5.2f} ×  {measured.answer}", flush=True)


if __name__ == "__main__":
    main()
