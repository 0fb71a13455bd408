"""Keeping alive what DataFrames read: states of stores, and change sets in a spool.

Spark reads late and in other processes, so whoever makes a DataFrame needs somebody who lives as long as it may be
used. That is the process that called `register`: a `Keeper` there listens on a local socket, and Spark's planner asks
it to pin a state (a snapshot above the floor that the process publishes in the store, invariant 7) or to run a
differential. When the keeper can't be reached (a Connect server on another machine), the planner pins for itself, for
as long as its process lives and is believed alive; whoever reads later gets `SnapshotExpired`, never wrong rows.

At most `HELD` states and change sets are kept; the one that was asked for longest ago goes first.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, Protocol

from strandline.changes import Changes, Header
from strandline.errors import EngineError, InputError, StrandlineError
from strandline.pages import Objects, ReadView, State, parse_at, state_at
from strandline.spark_source.options import ReadRequest, StreamRequest
from strandline.spark_source.staged_write import Job, Staged, write
from strandline.storage import open_storage
from strandline.store import Store
from strandline.store import open as open_store
from strandline.whatif import commit_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELD = 64


@dataclass(frozen=True)
class KeeperAddress:
    """Where a keeper listens; travels inside the registered class to Spark's planner."""

    path: str
    secret: bytes


@dataclass(frozen=True)
class Pinned:
    """A state that is being kept, and where its store is. `scan` is the scan time of a what-if; None: the state's."""

    url: str
    state: State
    scan: int | None = None

    def to_text(self) -> str:
        return json.dumps([self.url, self.state.to_json(), self.scan])

    @staticmethod
    def from_text(text: str) -> Pinned:
        url, state, scan = json.loads(text)
        return Pinned(url, State.from_json(state), scan)


@dataclass(frozen=True)
class Enlisted:
    """A store, and the number that the process has there which answers for a write."""

    url: str
    process: int


@dataclass(frozen=True)
class Parts:
    """A change set in part files that are being kept."""

    header: Header
    paths: tuple[str, ...]


class Closable(Protocol):
    def close(self) -> None: ...


class _Kept:
    """A change set; its spool goes when nobody refers to it."""

    def __init__(self, changes: Changes) -> None:
        self.changes: Changes | None = changes

    def close(self) -> None:
        self.changes = None


class Holdings:
    """What one process keeps. Safe for many threads."""

    def __init__(self, limit: int = HELD) -> None:
        self.session: SparkSession | None = None
        self._limit = limit
        self._mutex = threading.RLock()
        self._stores: dict[str, Store] = {}
        self._held: OrderedDict[object, Closable] = OrderedDict()

    def locate(self, path: str) -> str:
        """Where a path leads from this process: relative paths are the user's."""
        return open_storage(path).url

    def enlist(self, path: str) -> Enlisted:
        """Where a store is, and the number of this process there: what a write stages goes by it."""
        store = self._version(path, None)
        return Enlisted(store.url, store.shared.pages.process)

    def write(self, job: Job, staged: Sequence[Staged]) -> None:
        """Commit what tasks have staged."""
        write(job, staged, self.session)

    def pin(self, request: ReadRequest) -> Pinned:
        """Keep the state that a request asks for."""
        store = self._version(request.path, request.version)
        when = parse_at(store.pages, request.as_of)
        scan = None if when is None else commit_of(store, when, f"Reading {request.table}")
        snapshot = state_at(store.pages, parse_at(store.pages, request.at))
        pinned = Pinned(store.url, snapshot.view.state, scan)
        self._keep((store.url, store.name, snapshot.commit, pinned.state.domains), snapshot)
        return pinned

    def pinned(self, request: ReadRequest) -> str | None:
        """Keep the state that a request asks for, and give it as text; None when this process can't open the store.

        Of changes it is the later state that is kept.
        """
        try:
            self._version(request.path, None)
        except StrandlineError:
            return None
        later = request if request.since is None else replace(request, at=request.until)
        return self.pin(later).to_text()

    def changes(self, request: ReadRequest) -> Parts:
        """What changed in a table, computed now."""
        store = self._version(request.path, request.version)
        since, until = parse_at(store.pages, request.since), parse_at(store.pages, request.until)
        if request.pinned is None:
            return self._parts(store.changes(request.table, since=since, until=until))
        state = Pinned.from_text(request.pinned).state
        return self._parts(store.changes(request.table, since=since, until=ReadView(state, Objects(store.storage))))

    def stream(self, request: StreamRequest) -> tuple[str, Any]:
        """Where a stream's store is, and the columns of its rows."""
        from strandline.spark_source.stream import stream_schema

        store = self._version(request.path, request.version)
        return store.url, stream_schema(store, request)

    def diff(self, old: str, new: str, options: Mapping[str, Any]) -> Parts:
        """What changed between two extracts, computed now."""
        from strandline.differential import diff

        return self._parts(diff(old, new, session=self.session, **options))

    def release(self) -> None:
        """Let go of everything, and leave the stores."""
        with self._mutex:
            held, stores = list(self._held.values()), list(self._stores.values())
            self._held.clear()
            self._stores.clear()
        for one in (*held, *stores):
            with suppress(StrandlineError):
                one.close()

    def _version(self, path: str, version: str | None) -> Store:
        url = self.locate(path)
        with self._mutex:
            if url not in self._stores:
                self._stores[url] = open_store(url, session=self.session)
            store = self._stores[url]
        return store if version is None else store.version(version)

    def _parts(self, changes: Changes) -> Parts:
        paths = tuple(part.path for part in changes.parts)
        parts = Parts(changes.header, paths)
        self._keep(object(), _Kept(changes))
        return parts

    def _keep(self, name: object, one: Closable) -> None:
        with self._mutex:
            gone = [self._held.pop(name, None)]
            self._held[name] = one
            while len(self._held) > self._limit:
                gone.append(self._held.popitem(last=False)[1])
        for each in gone:
            if each is not None:
                each.close()


class Keeper:
    """Answers Spark's planner on behalf of this process."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        self._folder = tempfile.mkdtemp(prefix="strandline-")
        self.address = KeeperAddress(os.path.join(self._folder, "keeper"), secrets.token_bytes(32))
        self._listener = Listener(self.address.path, family="AF_UNIX", backlog=16, authkey=self.address.secret)
        threading.Thread(target=self._listen, name="strandline-keeper", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        self._listener.close()
        self.holdings.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), name="strandline-keeper", daemon=True).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(EOFError, OSError):
            name, arguments = connection.recv()
            answer: tuple[str, Any]
            try:
                answer = "done", VERBS[name](self.holdings, *arguments)
            except StrandlineError as error:
                answer = "error", error.to_json()
            except Exception as error:
                answer = "error", EngineError(f"{type(error).__name__}: {error}", doing="answering Spark").to_json()
            connection.send(answer)


VERBS: dict[str, Callable[..., Any]] = {
    verb.__name__: verb
    for verb in (
        Holdings.enlist,
        Holdings.write,
        Holdings.pin,
        Holdings.changes,
        Holdings.diff,
        Holdings.stream,
    )
}

_own = Holdings()


def ask(address: KeeperAddress | None, verb: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of `Holdings` in the process that registered the source, or else in this one."""
    try:
        if address is None:
            raise FileNotFoundError
        with Client(address.path, family="AF_UNIX", authkey=address.secret) as connection:
            connection.send((verb.__name__, arguments))
            kind, answer = connection.recv()
    except (FileNotFoundError, ConnectionRefusedError):
        return verb(_alone(verb), *arguments)
    except (OSError, EOFError, AuthenticationError) as error:
        raise EngineError(f"the process that called register gave no answer: {error}", doing="asking it") from None
    if kind == "error":
        raise StrandlineError.from_json(answer)
    return answer


def _alone(verb: Callable[..., Any]) -> Holdings:
    """This process as its own keeper: good for pins, which die with it unharmed, but not for files in a spool."""
    if verb in (Holdings.changes, Holdings.diff):
        raise InputError(
            "the process that called register can't be reached from Spark's driver",
            doing="computing changes",
            hint="Call register on the driver's machine, or use store.changes(…).to_spark() or sl.diff(…).to_spark()",
        )
    return _own
