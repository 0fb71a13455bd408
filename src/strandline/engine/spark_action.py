"""One action on Spark: in a thread of its own, cancelled by Ctrl-C, and told of while the cluster gives it nothing.

An application whose cluster is full waits for as long as it takes, which may be right, but looks like one that hangs:
after `WAITING_SECONDS` without a task a warning says what is waited for. Over Connect that can't be told.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from strandline.errors import Cancelled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

WATCH_SECONDS = 0.2
WAITING_SECONDS = 30
"""How long no task of a stage has begun before that is told. What Spark says of it is as old as an executor's last
heartbeat, which comes every ten seconds: a task that has begun is known by then.
"""

R = TypeVar("R")


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


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
        notice = _WaitingNotice(self.spark, self.title)
        try:
            while not self._ended.wait(WATCH_SECONDS):
                notice.look()
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


class _WaitingNotice:
    """Tells, once, that no task of a classic session's cluster has begun for long."""

    def __init__(self, spark: SparkSession, title: str) -> None:
        self._spark = spark
        self._title = title
        self._looks = not is_connect(spark) and not spark.sparkContext.master.startswith("local")
        self._idle_since: float | None = None

    def look(self) -> None:
        if not self._looks:
            return
        tracker: Any = self._spark.sparkContext.statusTracker()
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
        if any(stage.numActiveTasks or stage.numCompletedTasks for stage in stages):
            self._looks = False
        elif not stages:  # between two stages, and while Spark plans
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since >= WAITING_SECONDS:
            self._looks = False
            logger.warning(
                "%s: %s has given this application no executor for a task yet. It goes on as soon as there is one "
                "(are all cores or all memory taken by others, or less than a worker has asked for?); Ctrl-C ends it",
                self._title,
                self._spark.sparkContext.master,
            )
