"""One run at a time on this machine: an flock, which the kernel releases when its process ends, however it ends.

The file's existence means nothing. Across machines the store decides: two runs that take the same step insert the
same journal row, and the second is refused at its commit.

One run after another on a schedule: at every multiple of a period, until it is told to stop.

A run that fails is told and the next one comes in its time. A signal stops between runs; a run under way is finished.

`Pipeline`: a declared nightly job over one store. One run takes one consistent step, or finds nothing to do.

The recipe of a run: finish the step that an earlier run left unfinished, if any; gather what the sources bring; apply
it all in one transaction, whose commit is the step; finish it. A run that brings nothing new takes no step, but
refreshes copies that are behind and dumps what is due.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from strandline.errors import InUse, NotFound, StrandlineError
from strandline.pipeline.detection import RunMeans, SourceChanges
from strandline.pipeline.finish import finish, refresh_and_dump
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.page import RunPage, write_page
from strandline.pipeline.pictures import lines_of
from strandline.pipeline.places import Secrets
from strandline.pipeline.plan import RunPlan, plan
from strandline.pipeline.settings import Settings
from strandline.pipeline.status import PipelineStatus, pipeline_status
from strandline.pipeline.step import Bench, Gathered, Stages, Watch, apply, gather
from strandline.storage import MemoryStorage, locked, retried
from strandline.store import Store, create, create_on, open


@contextmanager
def one_run(folder: str, *, wait: bool) -> Iterator[None]:
    """Holds the lock of a work folder; if another process has it, waits for its end or is an error."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "lock")
    with ExitStack() as held:
        try:
            descriptor = held.enter_context(locked(path, wait=wait))
        except BlockingIOError:
            raise InUse(
                f"process {_holder(path)} runs this pipeline",
                doing=f"locking {folder}",
                hint="Wait for it with --wait, or look at it with strandline status",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield


def _holder(path: str) -> str:
    with builtins.open(path, "rb") as file:
        return file.read(20).decode("ascii", "replace").strip() or "unknown"


def watch(run: Callable[[], None], period: float, stop: threading.Event, clock: Callable[[], float]) -> None:
    """Runs at once, then at every multiple of `period` by the clock, until `stop` is set."""
    while not stop.is_set():
        run()
        stop.wait(until_next(clock(), period))


def until_next(now: float, period: float) -> float:
    """Seconds to the next multiple of the period; a whole period if one begins just now.

    >>> until_next(100.0, 60.0), until_next(120.0, 60.0)
    (20.0, 60.0)
    """
    return period - now % period


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; the signals' old handlers are put back at the end."""
    event = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        event.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ATTEMPTS = 5
"""How often a step is taken anew when others change its tables meanwhile."""
RUNS = "runs.jsonl"
HISTORY = 30
"""How many steps a page looks back."""


@dataclass(frozen=True)
class Ran:
    """What one run did. `step` is the step that it took, None when nothing was new; `resumed` one that it finished."""

    pipeline: str
    started: float
    seconds: float
    step: Step | None = None
    resumed: Step | None = None
    last: Step | None = None
    found: Mapping[str, SourceChanges] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    report: str | None = None

    @property
    def behind(self) -> dict[str, str]:
        """Views, copies and dumps that failed, with the reason."""
        if self.last is None:
            return {}
        results = {**self.last.views, **self.last.replicas, **self.last.dumps}
        return {name: str(result["error"]) for name, result in results.items() if result.get("error")}


class Pipeline:
    """A pipeline and its store."""

    def __init__(
        self,
        settings: Settings,
        *,
        means: RunMeans | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        watch: Watch = lambda point: None,
    ) -> None:
        self.settings = settings
        self.secrets = Secrets(environment, settings.folder)
        self._means = means or RunMeans()
        self._clock = clock
        self._watch = watch

    def run(self, *, wait: bool = False) -> Ran:
        """One run. A second one on the same work folder waits for the first, or is refused."""
        started = self._clock()
        with self._scrubbed(), one_run(self.settings.work, wait=wait):
            try:
                with self.opened(make=True) as store:
                    ran = self._run(store, started)
            except StrandlineError as error:
                self._note({"started": started, "error": self.secrets.scrub(str(error)), "kind": type(error).__name__})
                raise
            self._note(
                {"started": started, "step": None if ran.step is None else ran.step.number, "behind": ran.behind}
            )
            return ran

    def plan(self) -> RunPlan:
        """What a run would do now; does nothing. A store that is not there yet is planned for in memory."""
        with self._scrubbed():
            try:
                with self.opened() as store:
                    return plan(self.bench(store), self._clock())
            except NotFound:
                with create_on(MemoryStorage()) as store:
                    return plan(self.bench(store), self._clock())

    def status(self, count: int = 10) -> PipelineStatus:
        """How the pipeline stands."""
        with self._scrubbed(), self.opened() as store:
            return pipeline_status(self.bench(store), self._clock(), count)

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[Store]:
        """The pipeline's store, made if it is not there and `make` says so."""
        url = self.secrets.fill(self.settings.store, "opening the pipeline's store")
        session = self._means.session
        try:
            store = open(url, session=session)
        except NotFound:
            if not make:
                raise
            store = create(url, session=session)
        with store:
            yield store

    def bench(self, store: Store) -> Bench:
        return Bench(self.settings, store, self.secrets, self._means)

    def notes(self, count: int) -> list[dict[str, Any]]:
        """What the last runs came to, failures included, oldest first."""
        try:
            with builtins.open(os.path.join(self.settings.work, RUNS)) as file:
                return [json.loads(line) for line in file.readlines()[-count:]]
        except FileNotFoundError:
            return []

    def _run(self, store: Store, started: float) -> Ran:
        bench, stages = self.bench(store), Stages(self._watch)
        last = Journal(store, self.settings.name).last()
        resumed = None
        if last is not None and not last.finished:
            resumed = last = finish(bench, last, stages, self._clock())
            stages = Stages(self._watch)
        gathered, step = self._taken(bench, stages)
        if step is not None:
            last = finish(bench, step, stages, self._clock())
        elif last is not None:
            last = self._again(bench, last, stages)
        ran = Ran(
            pipeline=self.settings.name,
            started=started,
            seconds=self._clock() - started,
            step=last if step is not None else None,
            resumed=resumed,
            last=last,
            found=gathered.found,
            stages=stages.seconds,
        )
        return replace(ran, report=self._reported(store, ran))

    def _reported(self, store: Store, ran: Ran) -> str | None:
        """The page of a run; there is none before the first step."""
        if ran.last is None:
            return None
        history = Journal(store, self.settings.name).steps(HISTORY)
        stages = ran.stages if ran.step is not None else ran.last.stages
        page = RunPage(ran.last, history, lines_of(store), ran.started, ran.seconds, ran.step is not None, stages)
        return write_page(page, os.path.join(self.settings.work, "reports"))

    def _again(self, bench: Bench, last: Step, stages: Stages) -> Step:
        """Copies and dumps of a step that happened earlier; the journal changes only if they did."""
        now = refresh_and_dump(bench, last, stages, self._clock())
        if _done(now) != _done(last):
            Journal(bench.store, self.settings.name).update(now)
        return now

    def _taken(self, bench: Bench, stages: Stages) -> tuple[Gathered, Step | None]:
        def take() -> tuple[Gathered, Step | None]:
            last = Journal(bench.store, self.settings.name).last()
            gathered = gather(bench, last, stages, self._clock())
            return gathered, apply(bench, gathered, last, stages, self._clock()) if gathered.new else None

        return retried(take, ATTEMPTS)

    @contextmanager
    def _scrubbed(self) -> Iterator[None]:
        try:
            yield
        except StrandlineError as error:
            raise self.secrets.scrubbed(error) from None

    def _note(self, record: Mapping[str, Any]) -> None:
        line = json.dumps({**record, "seconds": round(self._clock() - float(record["started"]), 3)})
        with builtins.open(os.path.join(self.settings.work, RUNS), "a") as file:
            file.write(line + "\n")


def _done(step: Step) -> list[dict[str, Any]]:
    """What was done for a step, the times left out."""
    times = ("at", "checked", "failed_at", "failed_seconds")
    results = [*step.views.items(), *step.replicas.items(), *step.dumps.items()]
    return [{"name": name, **{key: one for key, one in result.items() if key not in times}} for name, result in results]
