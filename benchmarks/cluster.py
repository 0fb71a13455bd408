"""How rows meet on Spark: through local files, by Spark's shuffle with nothing shared, from S3 and from DataFrames.

    python -m benchmarks.cluster                     2 x 2 M rows x 8 columns in no order, on local[2]
    python -m benchmarks.cluster --ordered           the same in the order of the key
    python -m benchmarks.cluster --s3                also from objects of an S3 on this machine (moto)
    python -m benchmarks.cluster --rows 20000000 --repeat 3 --master spark://head:7077

One warm-up, then `--repeat` timed runs in one session, of which the best counts; of processor time (this process, the
JVM and Python's workers) the median, which tells more beside other work. "held" is what a local master does with files
in no order; "nothing shared" runs as on a cluster whose workers see no folder of the driver: rows by the shuffle,
results through Spark. Spark's own full outer join of the same DataFrames, changed rows counted, and spark-extension
where it is installed, are beside it. Ratios are to the first line. Bytes shuffled and spilled are Spark's own, of one
run, from its event log; what goes through files is not among them. How the time falls with more processors: run it with
--master 'local[1]' and 'local[2]', or with
executors of their own: 'local-cluster[1,1,2048]' and 'local-cluster[2,1,2048]'.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.extracts import Extracts, make
from benchmarks.measure import measure

import strandline as sl
from strandline.differential.plan import DiffPlan
from strandline.engine import SparkRunner
from strandline.storage import copy_file

Work = Callable[[], str]


def by_algorithm(spark: Any, old: Any, new: Any, *, shared: bool, algorithm: str, held: bool = False) -> Work:
    """Our differential, on workers that see the spool or are made to believe that they don't; rows meet between work
    items unless they may be `held` by one, as they are on a local master.
    """

    def work() -> str:
        with mock.patch.object(SparkRunner, "shares", return_value=shared):
            apart = contextlib.nullcontext() if held else mock.patch.object(DiffPlan, "held_whole", False)
            with apart:
                found = sl.diff(old, new, key="id", algorithm=algorithm, runner="spark", session=spark)
                return str(found.summary())

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


def by_spark_extension(spark: Any, old: str, new: str) -> Work:
    """spark-extension's `diff`, changed rows counted."""
    from gresearch.spark.diff import Differ, DiffOptions

    def work() -> str:
        found = Differ(DiffOptions()).diff(spark.read.parquet(old), spark.read.parquet(new), "id")
        changed = found.where("diff <> 'N'").count()
        return f"{changed:,} changed"

    return work


def contenders(spark: Any, old: str, new: str, *, ordered: bool) -> dict[str, Work]:
    frames = spark.read.parquet(old), spark.read.parquet(new)
    on_files = "merge" if ordered else "hash"
    found = {
        "files, spool seen": by_algorithm(spark, old, new, shared=True, algorithm=on_files),
        "files, held by one item": by_algorithm(spark, old, new, shared=True, algorithm=on_files, held=True),
        "files, nothing shared": by_algorithm(spark, old, new, shared=False, algorithm=on_files),
        "DataFrames, spool seen": by_algorithm(spark, *frames, shared=True, algorithm="hash"),
        "DataFrames, nothing shared": by_algorithm(spark, *frames, shared=False, algorithm="hash"),
        "Spark's full outer join": by_join(spark, old, new),
    }
    if importlib.util.find_spec("gresearch") is not None:
        found["spark-extension"] = by_spark_extension(spark, old, new)
    return found


def on_s3(spark: Any, old: str, new: str, *, ordered: bool) -> dict[str, Work]:
    urls = []
    for path in (old, new):
        urls.append(f"s3://{os.environ['BUCKET']}/{Path(path).name}")
        copy_file(path, urls[-1])
    algorithm = "merge" if ordered else "hash"
    return {"objects on S3": by_algorithm(spark, urls[0], urls[1], shared=True, algorithm=algorithm)}


class EventLog:
    """What Spark tells of its tasks, summed up since it was last asked."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._told = (0, 0)

    def more(self) -> tuple[int, int]:
        """Bytes that were written for shuffles, and bytes that were spilled to disk."""
        shuffled = spilled = 0
        for path in self._folder.rglob("*"):
            for line in path.read_text().splitlines() if path.is_file() else ():
                with contextlib.suppress(ValueError):  # the last line may be half written
                    metrics = json.loads(line).get("Task Metrics") or {}
                    shuffled += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
                    spilled += metrics.get("Disk Bytes Spilled", 0)
        before, self._told = self._told, (shuffled, spilled)
        return shuffled - before[0], spilled - before[1]


def start(master: str, log: str) -> Any:
    """A session that keeps an event log, and has spark-extension's jar if that is installed."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{log}",
        "spark.eventLog.compress": "false",
    }
    if importlib.util.find_spec("gresearch") is not None:
        import gresearch.spark

        jars = Path(gresearch.spark.__file__).parents[2].rglob("spark-extension*.jar")
        settings["spark.jars"] = ",".join(map(str, jars))
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{given} pyspark-shell"
    return sl.session(master)


def compare(spark: Any, works: dict[str, Work], repeat: int, log: EventLog) -> None:
    first = None
    log.more()
    for name, work in works.items():
        measured = measure(work, repeat)
        first = first or measured
        shuffled, spilled = (size / (repeat + 1) / 1e6 for size in log.more())
        times = f"{measured.best:7.2f} – {measured.worst:.2f} s {measured.best / first.best:5.2f} ×"
        used = f"{measured.processor:7.2f} s {measured.processor / first.processor:5.2f} × of processors"
        moved = f"{shuffled:8.1f} MB shuffled  {spilled:6.1f} spilled"
        print(f"{name:28} {times} {used} {moved}  {measured.answer}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--master", default="local[2]")
    options.add_argument("--ordered", action="store_true")
    options.add_argument("--s3", action="store_true")
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "strandline-benchmarks")
    chosen = options.parse_args()
    old, new = make(Extracts(chosen.rows, order="clustered" if chosen.ordered else "shuffled"), chosen.folder)
    with contextlib.ExitStack() as held:
        if chosen.s3:
            from tests.storage import s3

            os.environ["BUCKET"] = held.enter_context(s3.bucket())
        log = held.enter_context(tempfile.TemporaryDirectory())
        spark = start(chosen.master, log)
        works = contenders(spark, old, new, ordered=chosen.ordered)
        works |= on_s3(spark, old, new, ordered=chosen.ordered) if chosen.s3 else {}
        compare(spark, works, chosen.repeat, EventLog(log))
        if "spark-extension" not in works:
            print("spark-extension is not installed (pip install pyspark-extension)")
        spark.stop()


if __name__ == "__main__":
    main()
