"""The runner on Spark: one work item per task, on a classic session or over Connect.

`spark.range(0, n, 1, n).mapInArrow` gives exactly one item to each task. What a kernel returns travels back as one
row of JSON; Spark keeps the row of the winning attempt alone. The job runs in a thread of its own so that this one
can show progress and answer Ctrl-C by cancelling the job's tag.
"""

from __future__ import annotations

import json
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from strandline.engine.duckdb_connections import MIB, machine_memory
from strandline.engine.progress import Progress
from strandline.engine.spark_session import is_connect, prepare, session
from strandline.engine.spool import Spool
from strandline.engine.work import (
    Attempt,
    Kernel,
    Outcome,
    WorkItem,
    encode,
    find_kernel,
    kernel_name,
    outcome_of,
    run_attempt,
)
from strandline.errors import Cancelled, EngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WATCH_SECONDS = 0.2
R = TypeVar("R")


class SparkRunner:
    """Runs kernels as the tasks of one Spark job."""

    name = "spark"

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = prepare(spark) if spark is not None else session()

    @property
    def parallelism(self) -> int:
        if is_connect(self.spark):
            return int(self.spark.conf.get("spark.default.parallelism", str(os.cpu_count() or 1)))
        return max(int(self.spark.sparkContext.defaultParallelism), 1)

    def run(self, kernel: Kernel, items: Sequence[WorkItem], spool: Spool, title: str) -> list[Outcome]:
        if not items:
            return []
        with Progress(title, len(items)) as progress:
            task = _Task(kernel_name(kernel), list(items), spool.path, self._task_memory(), progress.shown)
            frame = self.spark.range(0, len(items), 1, len(items)).mapInArrow(task, "record string")
            records = [json.loads(row["record"]) for row in self._collect(frame, title, progress, spool)]
        outcomes = sorted((outcome_of(record) for record in records), key=lambda outcome: outcome.item)
        if [outcome.item for outcome in outcomes] != list(range(len(items))):
            raise EngineError(f"{len(outcomes)} of {len(items)} tasks answered", doing=title)
        return outcomes

    def _collect(self, frame: DataFrame, title: str, progress: Progress, spool: Spool) -> list[Any]:
        action: SparkAction[list[Any]] = SparkAction(self.spark, frame.collect, title)
        for _ in action.watched():
            if progress.shown:
                _show_done(progress, spool)
        try:
            return action.result()
        except Exception as error:
            raise _readable(error, title) from None

    def _task_memory(self) -> int:
        """What one task may use: a share of half the machine, as a worker on this machine would have it."""
        return max(machine_memory() // 2 // (os.cpu_count() or 1), 256 * MIB)


class _Task:
    """What travels to the workers: pickled by reference to this package, which the session has shipped."""

    def __init__(self, kernel: str, items: list[WorkItem], spool: str, memory: int, watched: bool) -> None:
        self.kernel = kernel
        self.items = items
        self.spool = spool
        self.memory = memory
        self.watched = watched

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        function = find_kernel(self.kernel)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                attempt = Attempt(self.spool, number, self.memory)
                record = run_attempt(function, self.items[number], attempt)
                if self.watched and "error" not in record:
                    Path(attempt.path("done.json")).write_text(encode({k: record[k] for k in ("rows", "bytes")}))
                yield pa.RecordBatch.from_pydict({"record": [encode(record)]})


class SparkAction(Generic[R]):
    """One action on Spark in a thread of its own, under a tag by which its jobs are cancelled at Ctrl-C."""

    def __init__(self, spark: SparkSession, action: Callable[[], R], title: str) -> None:
        self.spark = spark
        self.title = title
        self.tag = f"strandline-{uuid.uuid4().hex[:12]}"
        self._action = action
        self._results: list[R] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()

    def run(self) -> R:
        """What the action returns; `Cancelled` at Ctrl-C, or its own error."""
        for _ in self.watched():
            pass
        return self.result()

    def watched(self) -> Iterator[None]:
        """Runs the action, and comes back every moment until it has ended."""
        threading.Thread(target=self._work, name=self.tag, daemon=True).start()
        try:
            while not self._ended.wait(WATCH_SECONDS):
                yield
        except KeyboardInterrupt:
            self.cancel()
            self._ended.wait(30)
            raise Cancelled("stopped by the user; the Spark job was cancelled", doing=self.title) from None

    def result(self) -> R:
        """What an ended action returned, or its error."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _work(self) -> None:
        try:
            if is_connect(self.spark):
                self.spark.addTag(self.tag)
            else:
                self.spark.sparkContext.addJobTag(self.tag)
            self._results.append(self._action())
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def cancel(self) -> None:
        if is_connect(self.spark):
            self.spark.interruptTag(self.tag)
        else:
            self.spark.sparkContext.cancelJobsWithTag(self.tag)


def _show_done(progress: Progress, spool: Spool) -> None:
    """Counts the marks that finished attempts left in the spool; a lost attempt's mark counts once too often."""
    seen: dict[str, tuple[int, int]] = {}
    for mark in Path(spool.path).glob("*/done.json"):
        try:
            work = json.loads(mark.read_text())
        except (OSError, ValueError):
            continue
        seen[mark.parent.name.split("-")[0]] = (work["rows"], work["bytes"])
    progress.show(len(seen), sum(rows for rows, _ in seen.values()), sum(size for _, size in seen.values()))


def _readable(error: Exception, title: str) -> EngineError:
    """Spark's own failure as one of our errors: its last line that says something, not its stack trace."""
    reasons = re.findall(r"^\s*(?:Caused by: )?([\w.]*(?:Error|Exception): .+)$", str(error), re.MULTILINE)
    python = [line for line in reasons if not line.startswith(("org.", "java.", "py4j."))]
    why = (python or reasons or [str(error).strip() or type(error).__name__])[-1].splitlines()[0][:400]
    return EngineError(
        f"a Spark task failed: {why}",
        doing=title,
        hint="This is the machine rather than the data: look at memory, disk space and the workers, then try again",
    )
