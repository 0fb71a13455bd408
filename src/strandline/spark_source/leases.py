"""Leases: this process keeps readable what DataFrames read, states of stores and change sets in a spool.

Spark reads late and in other processes, so what a DataFrame reads has to be kept by a process that lives as long as the
DataFrame may be used. That is the process that called `register`: a `LeaseServer` there listens on a local socket, and
Spark's planner asks it to pin a state (a snapshot above the floor that the process publishes in the store, invariant 7)
or to run a differential. When the server can't be reached (a Connect server on another machine), the planner's process
pins for itself, for as long as it lives; a later read gets `SnapshotExpired`, never wrong rows.

At most `MAX_LEASES` states and change sets are kept; the one that was asked for longest ago is given up first.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any

from strandline.changes import Changes, Header
from strandline.engine import scratch_folder
from strandline.errors import EngineError, InputError, StrandlineError
from strandline.pages import Objects, ReadView, State, parse_at, state_at
from strandline.spark_source.options import ReadRequest, StreamRequest
from strandline.spark_source.staged_write import StagedAttempt, WriteJob, commit_staged
from strandline.storage import Closeable, open_storage
from strandline.store import Store
from strandline.store import open as open_store
from strandline.whatif import commit_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_LEASES = 64


@dataclass(frozen=True)
class LeaseServerAddress:
    """Where a lease server listens; pickled with the registered class to Spark's planner."""

    path: str
    secret: bytes


@dataclass(frozen=True)
class PinnedState:
    """A state under lease, and where its store is. `scan` is the scan time of a what-if; None: the state's."""

    url: str
    state: State
    scan: int | None = None

    def to_text(self) -> str:
        return json.dumps([self.url, self.state.to_json(), self.scan])

    @staticmethod
    def from_text(text: str) -> PinnedState:
        url, state, scan = json.loads(text)
        return PinnedState(url, State.from_json(state), scan)


@dataclass(frozen=True)
class StoreProcess:
    """A store, and the number in its registry of the process that is responsible for a write."""

    url: str
    process: int


@dataclass(frozen=True)
class ChangeParts:
    """A change set in part files under lease."""

    header: Header
    paths: tuple[str, ...]


class _ChangesLease(Closeable):
    """Keeps a change set: its spool is deleted when nothing refers to it."""

    def __init__(self, changes: Changes) -> None:
        self.changes: Changes | None = changes

    def close(self) -> None:
        self.changes = None


class Leases:
    """What one process keeps readable. Safe for many threads."""

    def __init__(self, limit: int = MAX_LEASES) -> None:
        self.session: SparkSession | None = None
        self._limit = limit
        self._mutex = threading.RLock()
        self._stores: dict[str, Store] = {}
        self._leases: OrderedDict[object, Closeable] = OrderedDict()

    def store_process(self, path: str) -> StoreProcess:
        """Where a store is, and the number of this process there, which names the objects that a write stages."""
        store = self._open_version(path, None)
        return StoreProcess(store.url, store.pages.store.process)

    def commit(self, job: WriteJob, staged: Sequence[StagedAttempt]) -> None:
        """Commit what tasks have staged."""
        commit_staged(job, staged, self.session)

    def pin(self, request: ReadRequest) -> PinnedState:
        """Take a lease of the state that a request asks for."""
        store = self._open_version(request.path, request.version)
        when = parse_at(store.pages, request.as_of)
        scan = None if when is None else commit_of(store, when, f"reading {request.table}")
        snapshot = state_at(store.pages, parse_at(store.pages, request.at))
        pinned = PinnedState(store.url, snapshot.view.state, scan)
        self._add_lease((store.url, store.name, snapshot.commit, pinned.state.domains), snapshot)
        return pinned

    def pin_as_text(self, request: ReadRequest) -> str | None:
        """Pin the state that a request asks for, and return it as text; None when this process can't open the store.

        Of changes it is the later state that is pinned.
        """
        try:
            self._open_version(request.path, None)
        except StrandlineError:
            return None
        later = request if request.since is None else replace(request, at=request.until)
        return self.pin(later).to_text()

    def changes(self, request: ReadRequest) -> ChangeParts:
        """What changed in a table, computed now."""
        store = self._open_version(request.path, request.version)
        since, until = parse_at(store.pages, request.since), parse_at(store.pages, request.until)
        if request.pinned is None:
            return self._lease_changes(store.changes(request.table, since=since, until=until))
        state = PinnedState.from_text(request.pinned).state
        view = ReadView(state, Objects(store.storage))
        with store.state(since) as older:
            return self._lease_changes(store.difference(request.table, older, view))

    def stream_columns(self, request: StreamRequest) -> tuple[str, Any]:
        """Where a stream's store is, and the columns of its rows."""
        from strandline.spark_source.stream import stream_schema

        store = self._open_version(request.path, request.version)
        return store.url, stream_schema(store, request)

    def diff(self, old: str, new: str, options: Mapping[str, Any]) -> ChangeParts:
        """What changed between two extracts, computed now."""
        from strandline.differential import diff

        return self._lease_changes(diff(old, new, session=self.session, **options))

    def release(self) -> None:
        """Give up all leases, and close the stores."""
        with self._mutex:
            leases, stores = list(self._leases.values()), list(self._stores.values())
            self._leases.clear()
            self._stores.clear()
        for closable in (*leases, *stores):
            with suppress(StrandlineError):
                closable.close()

    def _open_version(self, path: str, version: str | None) -> Store:
        url = open_storage(path).url  # relative paths are resolved in this process, the user's
        with self._mutex:
            if url not in self._stores:
                self._stores[url] = open_store(url, session=self.session)
            store = self._stores[url]
        return store if version is None else store.version(version)

    def _lease_changes(self, changes: Changes) -> ChangeParts:
        paths = tuple(part.path for part in changes.parts)
        parts = ChangeParts(changes.header, paths)
        self._add_lease(object(), _ChangesLease(changes))
        return parts

    def _add_lease(self, name: object, lease: Closeable) -> None:
        with self._mutex:
            given_up = [self._leases.pop(name, None)]
            self._leases[name] = lease
            while len(self._leases) > self._limit:
                given_up.append(self._leases.popitem(last=False)[1])
        for older in given_up:
            if older is not None:
                older.close()


class LeaseServer:
    """Answers Spark's planner: calls methods of this process's `Leases` that other processes ask for."""

    def __init__(self) -> None:
        self.leases = Leases()
        self._folder = scratch_folder()
        self.address = LeaseServerAddress(os.path.join(self._folder, "leases"), secrets.token_bytes(32))
        self._listener = Listener(self.address.path, family="AF_UNIX", backlog=16, authkey=self.address.secret)
        threading.Thread(target=self._listen, name="strandline-leases", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        self._listener.close()
        self.leases.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), name="strandline-leases", daemon=True).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(EOFError, OSError):
            name, arguments = connection.recv()
            answer: tuple[str, Any]
            try:
                answer = "done", METHODS[name](self.leases, *arguments)
            except StrandlineError as error:
                answer = "error", error.to_json()
            except Exception as error:
                answer = "error", EngineError(f"{type(error).__name__}: {error}", doing="answering Spark").to_json()
            connection.send(answer)


METHODS: dict[str, Callable[..., Any]] = {
    method.__name__: method
    for method in (
        Leases.store_process,
        Leases.commit,
        Leases.pin,
        Leases.changes,
        Leases.diff,
        Leases.stream_columns,
    )
}
"""What other processes may call."""

_local_leases = Leases()


def call_leases(address: LeaseServerAddress | None, method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of `Leases` in the process that registered the source, or else in this one."""
    try:
        if address is None:
            raise FileNotFoundError
        with Client(address.path, family="AF_UNIX", authkey=address.secret) as connection:
            connection.send((method.__name__, arguments))
            kind, answer = connection.recv()
    except (FileNotFoundError, ConnectionRefusedError):
        return method(_local_leases_for(method), *arguments)
    except (OSError, EOFError, AuthenticationError) as error:
        raise EngineError(f"the process that called register gave no answer: {error}", doing="asking it") from None
    if kind == "error":
        raise StrandlineError.from_json(answer)
    return answer


def _local_leases_for(method: Callable[..., Any]) -> Leases:
    """The leases of this process, when the server can't be reached. They serve for pins, but not for files in a spool,
    which would be gone with this process.
    """
    if method in (Leases.changes, Leases.diff):
        raise InputError(
            "the process that called register can't be reached from Spark's driver",
            doing="computing changes",
            hint="Call register on the driver's machine, or use store.changes(…).to_spark() or sl.diff(…).to_spark()",
        )
    return _local_leases
