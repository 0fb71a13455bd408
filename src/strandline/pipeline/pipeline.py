"""`Pipeline`: a declared nightly job over one store. One run takes one consistent step, or finds nothing to do.

The recipe of a run: finish the step that an earlier run left unfinished, if any; collect what the sources bring; commit
it all in one transaction, which is the step; finish it. A run that brings nothing new takes no step, but refreshes
copies that are behind and dumps what is due.

On one machine a lock allows one run at a time. Across machines the store decides: two runs that take the same step
insert the same journal row, and the second is refused at its commit. `watch` repeats runs at every multiple of a
period: a run that fails is reported and the next one comes in its time; a signal stops between runs, never within one.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any

from strandline.errors import InputError, InUse, NotFound, StrandlineError, did_you_mean
from strandline.pages import ProcessIdentity
from strandline.pipeline.alarms import tell
from strandline.pipeline.detection import RunOptions, SourceChanges
from strandline.pipeline.finish import finish_step, refresh_and_dump
from strandline.pipeline.journal import Journal, Step
from strandline.pipeline.page import RunPage, page_path, write_index, write_page, write_stopped_page, write_table_pages
from strandline.pipeline.pictures import lines_of
from strandline.pipeline.places import Secrets
from strandline.pipeline.plan import RunPlan, plan_run
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.status import PipelineStatus, pipeline_status
from strandline.pipeline.step import (
    PipelineContext,
    Stages,
    StepChanges,
    Watch,
    collect_changes,
    commit_step,
    sweep_signatures,
)
from strandline.storage import (
    MemoryStorage,
    file_exists,
    is_object_url,
    locked,
    read_file,
    remove_files,
    retried,
    write_file,
)
from strandline.store import Store, create_on
from strandline.store import create as create_store
from strandline.store import open as open_store

logger = logging.getLogger(__name__)
LONGEST_WAIT = 24 * 3600.0
"""Seconds for which a run waits for another one at most."""


@contextmanager
def run_lock(folder: str, *, wait: bool) -> Iterator[None]:
    """Holds the lock of a work folder; if another process has it, waits for its end or is an error.

    It is an flock, which the kernel releases however its process ends. That the file exists means nothing. Nothing
    locks a work folder at a URL: of two runs the store takes the first one's step, and the second begins anew.
    """
    if is_object_url(folder):
        yield
        return
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "lock")
    with ExitStack() as held:
        try:
            descriptor = held.enter_context(locked(path, wait=wait, limit=LONGEST_WAIT))
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
    with open(path, "rb") as file:
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
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; the signals' old handlers are put back at the end."""
    event = threading.Event()

    def set_event(number: int, frame: FrameType | None) -> None:
        event.set()

    before = {number: signal.signal(number, set_event) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ATTEMPTS = 5
"""How often a step is tried when others change its tables meanwhile."""
RUNS = "runs.jsonl"
RUNNING = "running.json"
"""There while a run is under way: without one, it means that the last run was killed."""
KILLED = "it was killed, or its machine failed"
INDEXED = 500
"""How many runs the index of reports has."""
HISTORY = 30
"""How many steps a page looks back."""


@dataclass(frozen=True)
class RunResult:
    """What one run did. `step` is the step that it took, None when nothing was new; `resumed` one that it finished."""

    pipeline: str
    started: float
    seconds: float
    step: Step | None = None
    resumed: Step | None = None
    last: Step | None = None
    sources: Mapping[str, SourceChanges] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    report: str | None = None
    untold: str = ""

    def to_json(self) -> dict[str, Any]:
        """The run as one JSON object."""
        return {
            "outcome": "step" if self.step else "nothing new",
            "pipeline": self.pipeline,
            "started": dt.datetime.fromtimestamp(self.started, dt.UTC).isoformat(),
            "seconds": round(self.seconds, 3),
            "step": self.step.number if self.step else None,
            "resumed": self.resumed.number if self.resumed else None,
            "resumed_sources": dict(self.resumed.sources) if self.resumed else {},
            "snapshot": self.step.snapshot if self.step else None,
            "sources": {name: source.to_json() for name, source in self.sources.items()},
            "stages": dict(self.stages),
            "replicas": dict(self.last.replicas) if self.last else {},
            "dumps": dict(self.last.dumps) if self.last else {},
            "behind": self.behind,
            "report": self.report,
        }

    @property
    def behind(self) -> dict[str, str]:
        """Views, copies and dumps that failed, with the reason."""
        if self.last is None:
            return {}
        results = {**self.last.views, **self.last.replicas, **self.last.dumps}
        return {name: str(result["error"]) for name, result in results.items() if result.get("error")}

    @property
    def outcome(self) -> str:
        """`behind` where a copy or dump is, else `step` or `nothing new`."""
        return "behind" if self.behind else "step" if self.step else "nothing new"


class Pipeline:
    """A pipeline and its store."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        options: RunOptions | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        watch: Watch = lambda point: None,
    ) -> None:
        self.settings = settings
        _check_accepted(settings, (options or RunOptions()).accept)
        self.secrets = Secrets(environment, settings.folder)
        self._options = options or RunOptions()
        self._clock = clock
        self._watch = watch

    def run(self, *, wait: bool = False) -> RunResult:
        """One run. A second one on the same work folder waits for the first, or is refused."""
        started = self._clock()
        with self._scrubbed(), run_lock(self.settings.work, wait=wait):
            self._begin(started)
            try:
                with self.opened(create_missing=True) as store:
                    result = self._run(store, started)
            except (Exception, KeyboardInterrupt) as error:
                silent = "it was interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
                text = self.secrets.scrub(str(error) or silent)
                self._stopped(started, text, type(error).__name__)
                raise
            step = None if result.step is None else result.step.number
            untold = tell(self.settings, self.secrets, {**result.to_json(), "outcome": result.outcome})
            alarms = {"untold": untold} if untold else {}
            self._end({"started": started, "step": step, "behind": result.behind, **alarms})
            write_index(self.settings.name, self.history(INDEXED), started, self._reports)
            return replace(result, untold=untold)

    def _stopped(self, started: float, error: str, kind: str) -> None:
        """What is left of a run that an error ended: its line in the history, its page, and who was told."""
        outcome = "stopped" if kind == "GuardTripped" else "failed"
        when = dt.datetime.fromtimestamp(started, dt.UTC).isoformat()
        record = {"outcome": outcome, "pipeline": self.settings.name, "started": when, "kind": kind, "error": error}
        untold = tell(self.settings, self.secrets, record)
        if untold:
            logger.warning("Not told: %s", untold)
        alarms = {"untold": untold} if untold else {}
        self._end({"started": started, "error": error, "kind": kind, **alarms})
        last = None
        with suppress(StrandlineError), self.opened() as store:
            last = Journal(store, self.settings.name).last()
        with suppress(OSError):
            write_stopped_page(self.settings.name, error, started, last, self._reports)
            write_index(self.settings.name, self.history(INDEXED), started, self._reports)

    def plan(self) -> RunPlan:
        """What a run would do now; does nothing. A store that is not there yet is planned for in memory."""
        with self._scrubbed():
            try:
                with self.opened() as store:
                    return plan_run(self._context(store), self._clock())
            except NotFound:
                with create_on(MemoryStorage()) as store:
                    return plan_run(self._context(store), self._clock())

    def status(self, count: int = 10) -> PipelineStatus:
        """How the pipeline stands."""
        with self._scrubbed(), self.opened() as store:
            return pipeline_status(self._context(store), self._clock(), count)

    @contextmanager
    def opened(self, *, create_missing: bool = False) -> Iterator[Store]:
        """The pipeline's store."""
        url = self.secrets.fill(self.settings.store, "opening the pipeline's store")
        session = self._options.session
        try:
            store = open_store(url, session=session)
        except NotFound:
            if not create_missing:
                raise
            store = create_store(url, session=session)
        with store:
            yield store

    def _context(self, store: Store) -> PipelineContext:
        return PipelineContext(self.settings, store, self.secrets, self._options)

    def history(self, count: int) -> list[dict[str, Any]]:
        """The outcomes of the last runs, failures included, oldest first."""
        lines = (read_file(self._work(RUNS)) or b"").splitlines()
        runs = [json.loads(line) for line in lines[-count:]]
        under_way = self._under_way()
        return [*runs, *([under_way] if under_way else [])][-count:]

    def _under_way(self) -> dict[str, Any] | None:
        """The run that has begun and not ended: under way, or killed, as far as this machine can tell."""
        begun = self._begun()
        if begun is None:
            return None
        known = begun.pop("process", None)
        if known is not None and ProcessIdentity(**known).has_ended(ProcessIdentity.of_this_process()):
            return {**begun, "error": KILLED, "kind": "Killed", "seconds": None}
        return {**begun, "seconds": None, "kind": "Running"}

    def _begun(self) -> dict[str, Any] | None:
        """What a run said when it began, where it did not say that it ended."""
        with suppress(ValueError):
            record: dict[str, Any] = json.loads(read_file(self._work(RUNNING)) or b"")
            return record
        return None

    def _run(self, store: Store, started: float) -> RunResult:
        context, stages = self._context(store), Stages(self._watch)
        last = Journal(store, self.settings.name).last()
        sweep_signatures(context, last)
        resumed = None
        if last is not None and not last.finished:
            resumed = last = finish_step(context, last, stages, self._clock())
            stages = Stages(self._watch)
        if last is not None and not file_exists(page_path(last, self._reports)):
            self._write_page_of_killed_run(store, last)
        changes, step = self._take_step(context, stages)
        if step is not None:
            last = finish_step(context, step, stages, self._clock())
        elif last is not None:
            last = self._refresh_earlier_step(context, last, stages)
        result = RunResult(
            pipeline=self.settings.name,
            started=started,
            seconds=self._clock() - started,
            step=last if step is not None else None,
            resumed=resumed,
            last=last,
            sources=changes.by_source,
            stages=stages.seconds,
        )
        return replace(result, report=self._write_page(store, result))

    def _write_page(self, store: Store, result: RunResult) -> str | None:
        """Writes the page of a run, and returns its path; there is none before the first step."""
        if result.last is None:
            return None
        history = Journal(store, self.settings.name).steps(HISTORY)
        stages = result.stages if result.step is not None else result.last.stages
        page = RunPage(
            step=result.last,
            history=history,
            lines=lines_of(store),
            started=result.started,
            seconds=result.seconds,
            new=result.step is not None,
            stages=stages,
        )
        path = write_page(page, self._reports)
        if result.step is not None:
            write_table_pages(result.step, result.sources, self._reports)
        return path

    def _write_page_of_killed_run(self, store: Store, step: Step) -> None:
        """The page of a step that was taken by a run that did not come to write it."""
        seconds = sum(step.stages.values())
        self._write_page(store, RunResult(step.pipeline, step.started, seconds, step, last=step, stages=step.stages))

    @property
    def _reports(self) -> str:
        return self._work("reports")

    def _work(self, name: str) -> str:
        return os.path.join(self.settings.work, name)

    def _refresh_earlier_step(self, context: PipelineContext, last: Step, stages: Stages) -> Step:
        """Refreshes copies and dumps of a step that happened earlier; the journal changes only if they did."""
        step = refresh_and_dump(context, last, stages, self._clock())
        if _results(step) != _results(last):
            Journal(context.store, self.settings.name).update(step)
        return step

    def _take_step(self, context: PipelineContext, stages: Stages) -> tuple[StepChanges, Step | None]:
        def take() -> tuple[StepChanges, Step | None]:
            last = Journal(context.store, self.settings.name).last()
            changes = collect_changes(context, last, stages, self._clock())
            return changes, commit_step(context, changes, last, stages, self._clock()) if changes.new else None

        return retried(take, ATTEMPTS)

    @contextmanager
    def _scrubbed(self) -> Iterator[None]:
        try:
            yield
        except StrandlineError as error:
            raise self.secrets.scrubbed(error) from None

    def _begin(self, started: float) -> None:
        """Says that a run is under way. One that was when its process was killed goes into the history now."""
        begun = self._begun()
        if begun is not None:
            self._append_to_history({"started": begun["started"], "error": KILLED, "kind": "Killed", "seconds": None})
        process = ProcessIdentity.of_this_process()
        record = {"started": started, "process": None if process is None else asdict(process)}
        write_file(self._work(RUNNING), json.dumps(record).encode())

    def _end(self, record: Mapping[str, Any]) -> None:
        seconds = round(self._clock() - float(record["started"]), 3)
        self._append_to_history({**record, "seconds": seconds})
        remove_files([self._work(RUNNING)])

    def _append_to_history(self, record: Mapping[str, Any]) -> None:
        path, line = self._work(RUNS), json.dumps(record).encode() + b"\n"
        if is_object_url(path):
            return write_file(path, (read_file(path) or b"") + line)
        with open(path, "ab") as file:
            file.write(line)
        return None


def _check_accepted(settings: PipelineSettings, accept: frozenset[str]) -> None:
    names = [source.name for source in settings.sources]
    for name in sorted(accept):
        if name not in names:
            hint = did_you_mean(name, names, most=1) or f"The sources are {', '.join(names)}"
            raise InputError(f"there is no source {name!r}", doing="accepting an extract", hint=hint)


def _results(step: Step) -> list[dict[str, Any]]:
    """The results of a step's views, copies and dumps, without times."""
    times = ("at", "checked", "failed_at", "failed_seconds")
    results = [*step.views.items(), *step.replicas.items(), *step.dumps.items()]
    return [
        {"name": name, **{key: value for key, value in result.items() if key not in times}} for name, result in results
    ]
