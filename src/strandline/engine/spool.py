"""The spool: where attempts leave their results, and how it goes away again.

A spool is a folder of the driver: one in the temporary folder, or in the folder named by `STRANDLINE_SPOOL`. On one
machine kernels write into it. On a cluster they do if it was named, and workers see it; otherwise what they write
travels to it, through Spark or through the object store that was named instead (`delivery`), where large results may
also stay. A spool, with what lies in the object store for it, lives as long as something made from it is alive (a
change set reads its rows from there) and is removed with the last of them, or at exit. What a process that was killed
has left is removed by the next one on the same machine that makes a folder in the same place.

In an object store each run has a prefix of its own under the URL that was named, `strandline-…`. An attempt stores its
files there under names that no other attempt has. Files whose readers take URLs (`Attempt.lasting`,
`Attempt.handed_on`) stay, and are removed with the spool. The driver fetches the others, and removes them with what
lost attempts left. What a driver that was killed left is removed by a later session, by its age: under names of this
kind alone.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
import os
import secrets
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from strandline.engine.work import HANDED_ON, LASTING
from strandline.errors import InputError, StrandlineError
from strandline.storage import (
    Closeable,
    files_below,
    has_ended,
    interrupts_later,
    is_object_url,
    list_objects,
    open_version,
    remove_files,
    replacing,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPOOL_VARIABLE = "STRANDLINE_SPOOL"


def scratch_folder(root: str | None = None) -> str:
    """A new folder for what is not needed once this process has ended. Its name says whose it is."""
    root = root or tempfile.gettempdir()
    os.makedirs(root, exist_ok=True)
    _sweep(root, os.getpid())
    return tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-", dir=root)


@functools.cache
def _sweep(root: str, process: int) -> None:
    """Once for each process: removes the folders of this machine's processes that have ended."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            owner = entry.name.removeprefix(_prefix()).partition("-")[0]
            if entry.name.startswith(_prefix()) and owner.isdecimal() and has_ended(int(owner)):
                shutil.rmtree(entry.path, ignore_errors=True)


@functools.cache
def _prefix() -> str:
    """Numbers of processes say something on one machine, and inside one container of it."""
    machine = socket.gethostname()
    with suppress(OSError):
        machine += f" {os.stat('/proc/self/ns/pid').st_ino}"
    return f"strandline-{hashlib.sha256(machine.encode()).hexdigest()[:8]}-"


def _remove(path: str, runs: list[str]) -> None:
    with interrupts_later():
        shutil.rmtree(path, ignore_errors=True)
        for run in runs:
            remove_run(run)


_live: weakref.WeakSet[Spool] = weakref.WeakSet()


class Spool(Closeable):
    """One folder, removed when closed, collected, or when Python exits.

    `named` is the parent folder that a caller chose, `remote` the object store's prefix: results of workers that see no
    folder of this machine travel through that, and the folder is a temporary one.
    """

    def __init__(self, parent: str | None = None) -> None:
        named = parent or os.environ.get(SPOOL_VARIABLE)
        self.remote = named if named and "://" in named and not named.startswith("file://") else None
        self.named = None if self.remote or not named else named.removeprefix("file://")
        root = self.named or tempfile.gettempdir()
        try:
            self.path = scratch_folder(root)
        except OSError as error:
            raise InputError(
                f"the folder for intermediate results can't be made: {error}",
                doing=f"making a spool under {root}",
                hint=f"Set {SPOOL_VARIABLE} to a folder that this machine and every Spark worker can write",
            ) from error
        os.chmod(self.path, 0o700)
        _live.add(self)
        self._runs: list[str] = []
        self._finalizer = weakref.finalize(self, _remove, self.path, self._runs)

    def hold(self, run: str) -> None:
        """What a run stores under a URL of its own goes with this spool."""
        self._runs.append(run)

    def close(self) -> None:
        self._finalizer()


def speaks_of_spools(text: str) -> bool:
    """Whether JSON names a path in a spool of this process that no caller chose: no other machine sees such."""
    return any(spool.named is None and json.dumps(f"{spool.path}/")[1:-1] in text for spool in _live)


PREFIX = "strandline-"
SWEPT_DAYS = 7
"""How old the newest object of a run must be before the run is taken for one whose driver was killed."""


def run_prefix(remote: str) -> str:
    """The URL under which one run alone may store; a path where the storage is a folder."""
    return f"{remote.removeprefix('file://').rstrip('/')}/{PREFIX}{secrets.token_hex(16)}"


def put_files(run: str, folder: str, files: Iterable[str]) -> dict[str, str]:
    """Stores an attempt's files; the URL of each."""
    attempt = secrets.token_hex(6)
    urls = {name: f"{run}/{attempt}/{name}" for name in files}
    for name, url in urls.items():
        with open(os.path.join(folder, name), "rb") as file, _stored(url) as target:
            shutil.copyfileobj(file, target, 1 << 20)
    return urls


@contextmanager
def _stored(url: str) -> Iterator[BinaryIO]:
    if not is_object_url(url):
        os.makedirs(os.path.dirname(url), exist_ok=True)
    with replacing(url) as file:
        yield file


def fetch(url: str) -> bytes:
    with open_version(url)[0] as file:
        return file.read()


def stays(name: str) -> bool:
    """Whether the readers of an attempt's file take its URL."""
    return f"/{LASTING}/" in name or f"/{HANDED_ON}/" in name


def remove_run(run: str, kept: Iterable[str] = ()) -> None:
    """Removes what a run stored, but for some of it, as far as the object store lets us."""
    staying = set(kept)
    with suppress(StrandlineError):
        urls = [f"{run}/{name}" for name in files_below(run)]
        remove_files([url for url in urls if url not in staying])


def sweep(remote: str) -> None:
    """Removes the runs of drivers that were killed, by their age; nothing that is not named as runs are."""
    if not is_object_url(remote):
        return
    root = f"{remote.rstrip('/')}/{PREFIX}"
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=SWEPT_DAYS)
    runs: dict[str, list[tuple[str, dt.datetime]]] = {}
    with suppress(StrandlineError):
        for stored in list_objects(root):
            run = stored.url.removeprefix(root).partition("/")[0]
            runs.setdefault(run, []).append((stored.url, stored.modified or dt.datetime.now(dt.UTC)))
        for objects in runs.values():
            if max(modified for _, modified in objects) < old:
                remove_files([url for url, _ in objects])


def is_reached(spark: SparkSession, remote: str) -> str:
    """Why what a worker stores under a URL can't be read here; nothing where it can."""
    url, value = f"{run_prefix(remote)}/reached", b"from a worker"

    def leave(batches: Any) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            why = ""
            try:
                with _stored(url) as file:
                    file.write(value)
            except Exception as error:
                why = str(error)
            yield pa.RecordBatch.from_pydict({"why": [why]})

    row = spark.range(0, 1, 1, 1).mapInArrow(leave, "why string").collect()[0]
    if row["why"]:
        return f"a worker could not write there: {row['why']}"
    try:
        if fetch(url) != value:
            return "this machine reads something else there than a worker wrote"
        remove_files([url])
    except StrandlineError as error:
        return f"this machine could not read there what a worker wrote: {error}"
    return ""
