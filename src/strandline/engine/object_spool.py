"""The part of a spool that lies in an object store: what large results of a cluster travel through, or stay in.

Each run has a prefix of its own under the URL that was named, `strandline-…`. An attempt stores its files there under
names that no other attempt has. Files whose readers take URLs (`Attempt.lasting`, `Attempt.handed_on`) stay, and are
removed with the spool; the driver fetches the others, and removes them with what lost attempts left. What a driver that
was killed left is removed by a later session, by its age: under names of this kind alone.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from strandline.engine.work import HANDED_ON, LASTING
from strandline.errors import StrandlineError
from strandline.storage import files_below, is_object_url, list_objects, open_version, remove_files, replacing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
