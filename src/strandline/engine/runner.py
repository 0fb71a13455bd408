"""Runners: one protocol, two ways to run kernels over work items.

`InlineRunner` runs them in this process: small work does not wait for a JVM. `SparkRunner` (in `spark_runner`) runs
one item per Spark task. `auto` takes Spark from `INLINE_LIMIT` bytes of input on where a cluster's session
runs or a master is named; a JVM for this machine's own processors costs more than it gives.

`parallel` is for work inside this process that is no kernel: Arrow's work runs beside Python's, on all processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from strandline.engine.duckdb_connections import machine_memory
from strandline.engine.progress import Progress
from strandline.engine.spark_session import spark_at_hand
from strandline.engine.spool import Spool
from strandline.engine.work import Attempt, Kernel, Outcome, WorkItem, outcome_of, run_attempt
from strandline.errors import Cancelled, InputError
from strandline.storage import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


INLINE_LIMIT = 64 << 20
RUNNERS = ("auto", "spark", "inline")


class Runner(Protocol):
    """Runs a kernel over work items and gives their outcomes in the items' order."""

    name: str

    @property
    def parallelism(self) -> int:
        """How many items run at once: plans aim at a small multiple of it."""
        ...

    @property
    def task_memory(self) -> int:
        """Bytes that one item may use where it runs."""
        ...

    @property
    def on_one_machine(self) -> bool:
        """Whether items have no processors but this machine's: one that runs alone may then take all of them."""
        ...

    def run(self, kernel: Kernel, items: Sequence[WorkItem], spool: Spool, title: str) -> list[Outcome]: ...


class InlineRunner:
    """Runs kernels in this process, on as many threads as there are processors."""

    name = "inline"

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    @property
    def parallelism(self) -> int:
        return self._threads

    @property
    def task_memory(self) -> int:
        return machine_memory() // 2 // self._threads

    @property
    def on_one_machine(self) -> bool:
        return True

    def run(self, kernel: Kernel, items: Sequence[WorkItem], spool: Spool, title: str) -> list[Outcome]:
        threads = min(self._threads, len(items)) or 1
        memory = machine_memory() // 2 // threads
        records: dict[int, dict[str, Any]] = {}
        workers: Workers[dict[str, Any]] = Workers(threads)
        try:
            with Progress(title, len(items)) as progress, workers:
                for number, item in enumerate(items):
                    attempt = Attempt(spool.path, number, memory)
                    workers.submit(partial(run_attempt, kernel, item, attempt))
                for task in workers.finished():
                    record = task.result()
                    outcome = outcome_of(record)
                    records[outcome.item] = record
                    progress.advance(1, outcome.rows, outcome.bytes)
        except KeyboardInterrupt:
            raise Cancelled("stopped by the user", doing=title) from None
        return [outcome_of(records[number]) for number in range(len(items))]


def check_runner(runner: str) -> None:
    """Refuses names that no runner has."""
    if runner not in RUNNERS:
        raise InputError(f"unknown runner {runner!r}", hint=f"Choose one of {', '.join(RUNNERS)}")


def runs_on_spark(runner: str, input_bytes: int) -> bool:
    """Whether `auto` takes Spark for so many bytes of input: above the limit, where Spark is at hand."""
    return runner == "spark" or (runner == "auto" and input_bytes >= INLINE_LIMIT and spark_at_hand())


def choose_runner(runner: str, input_bytes: int, session: SparkSession | None = None) -> Runner:
    """The runner asked for, or for `auto` the one that fits `input_bytes` of input."""
    check_runner(runner)
    if runner == "inline" or (session is None and not runs_on_spark(runner, input_bytes)):
        return InlineRunner()
    from strandline.engine.spark_runner import SparkRunner

    return SparkRunner(session)


T = TypeVar("T")
R = TypeVar("R")


def parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results in order, computed on as many threads as there are processors."""
    work: Sequence[T] = list(items)
    if len(work) < 2:
        return [function(item) for item in work]
    workers: Workers[R] = Workers(min(len(work), os.cpu_count() or 1))
    try:
        with workers:
            tasks = [workers.submit(partial(function, item)) for item in work]
            return [task.result() for task in tasks]
    except KeyboardInterrupt:
        raise Cancelled("stopped by the user", doing="working on several threads") from None
