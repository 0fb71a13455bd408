"""The runner on Spark: one work item per task, on a classic session or over Connect.

`spark.range(0, n, 1, n).mapInArrow` gives exactly one item to each task. What a kernel returns travels back as one
row of JSON; Spark keeps the row of the winning attempt alone. `run_partitions` runs a kernel on what Spark's shuffle
brought together instead. The job runs in a thread of its own so that this one can show progress and answer Ctrl-C by
cancelling the job's tag.

On a local master the workers see the driver's disk. On any other they see a spool that was named, which is tried once
for each session; without one, results travel back (`delivery`), and items that speak of files in the driver's spool
are run by the driver itself.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.engine.delivery import (
    DELIVERED,
    Delivery,
    take_files,
    take_objects,
    take_records,
    worker_folder,
)
from strandline.engine.duckdb_connections import MIB
from strandline.engine.progress import Progress
from strandline.engine.runner import InlineRunner
from strandline.engine.spark_action import SparkAction, is_connect
from strandline.engine.spark_session import (
    SPOOL_SETTING,
    active_cluster,
    is_on_this_machine,
    prepare,
    session,
    session_name,
    spark_error,
    where,
    worker_memory,
)
from strandline.engine.spool import SPOOL_VARIABLE, Spool, is_reached, run_prefix, speaks_of_spools, sweep
from strandline.engine.work import Kernel, Outcome, WorkItem, encode, find_kernel, kernel_name, outcome_of
from strandline.errors import EngineError, InputError, NotFound, StrandlineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Unpack = Callable[[Iterator[Any], str], Iterator[tuple[int, WorkItem]]]
"""Makes numbered work items of the rows of one partition; may use a folder on the worker's disk. It is pickled."""

_seen: dict[tuple[str, str], bool] = {}
"""Whether the workers of a session see a folder of this machine, by the session's name and the folder."""

_reached: dict[tuple[str, str], str] = {}
"""Why a session's workers and this machine can't share a storage, by the session's name and the URL; "" if they can."""


class SparkRunner:
    """Runs kernels as the tasks of one Spark job. `shared` says whether workers see spools, if that is known."""

    name = "spark"

    def __init__(self, spark: SparkSession | None = None, *, shared: bool | None = None) -> None:
        self.spark = prepare(spark) if spark is not None else session()
        self._shared = shared

    @property
    def parallelism(self) -> int:
        if is_connect(self.spark):
            return int(self.spark.conf.get("spark.default.parallelism", str(os.cpu_count() or 1)))
        return max(int(self.spark.sparkContext.defaultParallelism), 1)

    @property
    def task_memory(self) -> int:
        """What one task may use, as the worker said that was asked when the session was prepared."""
        return max(worker_memory(self.spark), 64 * MIB)

    @property
    def on_one_machine(self) -> bool:
        return is_on_this_machine(where(self.spark))

    def shares(self, spool: Spool) -> bool:
        """Whether the workers see a spool: on a local master all of them, elsewhere one that was named."""
        if self._shared is not None:
            return self._shared
        if where(self.spark).startswith("local"):
            return True
        if spool.named is None:
            return False
        key = (session_name(self.spark), spool.named)
        if key not in _seen:
            _seen[key] = _is_seen(self.spark, spool.path)
        if not _seen[key]:
            raise InputError(
                f"the workers of {where(self.spark)} can't write to {spool.named} so that this machine can read it",
                doing="trying the folder for intermediate results",
                hint=f"Set {SPOOL_VARIABLE} to storage that this machine and every worker see; "
                "or unset it: results then travel through Spark",
            )
        return True

    def run(self, kernel: Kernel, items: Sequence[WorkItem], spool: Spool, title: str) -> list[Outcome]:
        if not items:
            return []
        shared = self.shares(spool)
        if not shared and any(speaks_of_spools(encode(item)) for item in items):
            return InlineRunner().run(kernel, items, spool, title)
        with Progress(title, len(items)) as progress:
            delivery = self._delivery(spool, watched=progress.shown)
            task = _ItemTask(kernel_name(kernel), list(items), delivery)
            frame = self.spark.range(0, len(items), 1, len(items)).mapInArrow(task, DELIVERED)
            records = self._records(frame, (delivery, spool), title, progress)
        outcomes = self._outcomes(records)
        if [outcome.item for outcome in outcomes] != list(range(len(items))):
            raise EngineError(f"{len(outcomes)} of {len(items)} tasks answered", doing=title)
        return outcomes

    def run_partitions(
        self, kernel: Kernel, frame: DataFrame, unpack: Unpack, spool: Spool, title: str
    ) -> list[Outcome]:
        """Runs a kernel on the items that `unpack` makes of a frame's partitions, in the order of their numbers."""
        with Progress(title, 1) as progress:
            delivery = self._delivery(spool, watched=False)
            made = frame.mapInArrow(_PartitionTask(kernel_name(kernel), unpack, delivery), DELIVERED)
            records = self._records(made, (delivery, spool), title, progress)
        return self._outcomes(records)

    def _outcomes(self, records: list[dict[str, Any]]) -> list[Outcome]:
        """The outcomes in the order of their items; what a worker did not find may well be here."""
        try:
            return sorted(map(outcome_of, records), key=lambda outcome: outcome.item)
        except NotFound as error:
            if where(self.spark).startswith("local"):
                raise
            doing = f"{error.doing}, on a worker of {where(self.spark)}"
            hint = "Give a URL, or a path that every worker can open: workers don't see this machine's disk"
            raise NotFound(error.why, doing=doing, hint=hint) from None

    def _delivery(self, spool: Spool, *, watched: bool) -> Delivery:
        if self.shares(spool):
            return Delivery(spool.path, self.task_memory, watched)
        remote = self._remote(spool)
        return Delivery(None, self.task_memory, watched, None if remote is None else run_prefix(remote))

    def _remote(self, spool: Spool) -> str | None:
        """The object store that results travel through, if one was named; it is tried once for each session."""
        remote: str | None = spool.remote or self.spark.conf.get(SPOOL_SETTING, None)
        if remote is None:
            return None
        key = (session_name(self.spark), remote)
        if key not in _reached:
            _reached[key] = is_reached(self.spark, remote)
            if not _reached[key]:
                sweep(remote)
        if _reached[key]:
            raise InputError(
                _reached[key],
                doing=f"trying {remote} for intermediate results",
                hint=f"Set {SPOOL_VARIABLE} or {SPOOL_SETTING} to what this machine and every worker can write, with "
                "credentials in the environment of both; or unset it: results then travel through Spark",
            )
        return remote

    def _records(
        self, frame: DataFrame, to: tuple[Delivery, Spool], title: str, progress: Progress
    ) -> list[dict[str, Any]]:
        """The records of a job's attempts, once what they speak of can be read here."""
        delivery, spool = to

        def take() -> list[dict[str, Any]]:
            if delivery.spool is not None:
                return take_records(frame)
            if delivery.remote is not None:
                return take_objects(frame, spool, delivery.remote, title)
            return take_files(frame, spool, title)

        action: SparkAction[list[dict[str, Any]]] = SparkAction(self.spark, take, title)
        for _ in action.watched():
            if progress.shown:
                _show_done(progress, spool)
        try:
            return action.result()
        except StrandlineError:
            raise
        except Exception as error:
            raise spark_error(error, title, "a Spark task failed") from None


def cluster_runner() -> SparkRunner | None:
    """The runner of the session that runs, if that is on a cluster; none is started."""
    active = active_cluster()
    return None if active is None else SparkRunner(active)


def _is_seen(spark: SparkSession, folder: str) -> bool:
    """Whether what a worker writes into a folder of this machine can be read here."""
    name = os.path.join(folder, f"seen-{uuid.uuid4().hex}")

    # A nested function travels by value, so that it needs nothing of this module.
    def leave(batches: Any) -> Iterator[Any]:
        for batch in batches:
            try:
                Path(name).write_text(name)
            except OSError:
                return
            yield batch

    rows = spark.range(0, 1, 1, 1).mapInArrow(leave, "id bigint").collect()
    try:
        return bool(rows) and Path(name).read_text() == name
    except OSError:
        return False
    finally:
        Path(name).unlink(missing_ok=True)


class _ItemTask:
    """What travels to the workers: pickled by reference to this package, which the session has shipped."""

    def __init__(self, kernel: str, items: list[WorkItem], delivery: Delivery) -> None:
        self.kernel = kernel
        self.items = items
        self.delivery = delivery

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        function = find_kernel(self.kernel)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.delivery.run(function, self.items[number], number)
        set_modules_aside()


class _PartitionTask:
    """The same for items that are made of a partition's rows."""

    def __init__(self, kernel: str, unpack: Unpack, delivery: Delivery) -> None:
        self.kernel = kernel
        self.unpack = unpack
        self.delivery = delivery

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        function = find_kernel(self.kernel)
        with worker_folder() as folder:
            try:
                for number, item in self.unpack(batches, folder):
                    yield from self.delivery.run(function, item, number)
            except StrandlineError as error:
                yield from self.delivery.refuse(error)
        set_modules_aside()


_set_aside = {"modules": 0}


def set_modules_aside() -> None:
    """Spares a worker the search of what it has imported: PySpark collects garbage after each task, which takes thirty
    milliseconds once pyarrow, DuckDB and this package are there, and finds none.
    """
    if len(sys.modules) > _set_aside["modules"]:
        gc.collect()
        gc.freeze()
        _set_aside["modules"] = len(sys.modules)


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
