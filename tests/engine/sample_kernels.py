"""Kernels that the engine's tests run; shipped to Spark's workers beside the package."""

from __future__ import annotations

import gc
import os
import signal
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.errors import InputError
from strandline.storage import file_exists
from strandline.storage.object_file import put_object


@kernel
def interrupt(item: WorkItem, attempt: Attempt) -> Result:
    """The user presses Ctrl-C at the first item, and again later: Python drops one that meets a finalizer."""
    if item["n"] % 100 == 0:
        signal.raise_signal(signal.SIGINT)
    Path(item["ran"]).touch()
    return {"rows": 1}


@kernel
def square(item: WorkItem, attempt: Attempt) -> Result:
    path = attempt.path("square.txt")
    Path(path).write_text(str(item["n"] ** 2))
    return {"square": item["n"] ** 2, "path": path, "process": os.getpid(), "rows_read": 1, "bytes_read": 8}


@kernel
def refuse_odd(item: WorkItem, attempt: Attempt) -> Result:
    if item["n"] % 2:
        raise InputError(f"{item['n']} is odd", doing="halving", hint="Give even numbers")
    return {"half": item["n"] // 2}


@kernel
def fail_once(item: WorkItem, attempt: Attempt) -> Result:
    """Breaks like a machine at the first attempt and works at the next."""
    mark = Path(item["mark"])
    Path(attempt.path("left.txt")).write_text("from " + attempt.token)
    if not mark.exists():
        mark.touch()
        raise OSError("the disk hiccuped")
    return {"token": attempt.token, "path": attempt.path("left.txt")}


@kernel
def always_fail(item: WorkItem, attempt: Attempt) -> Result:
    raise OSError("the disk is gone")


@kernel
def slow(item: WorkItem, attempt: Attempt) -> Result:
    """Runs until it is told to stop or cancelled, and leaves a mark if it ever comes to its end."""
    Path(item["started"]).touch()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(0.05)
    Path(item["ended"]).touch()
    return {}


@kernel
def blob(item: WorkItem, attempt: Attempt) -> Result:
    """Two files, one of them empty, and one that nobody speaks of."""
    first = attempt.lasting("blob.bin") if item.get("lasting") else attempt.path("blob.bin")
    names = [first, attempt.path("empty.bin"), attempt.path("forgotten.bin")]
    for path, size in zip(names, (item["size"], 0, 10), strict=True):
        Path(path).write_bytes(bytes(n * 7 % 251 for n in range(1000)) * (size // 1000))
    return {"nested": [{"path": names[0]}], "empty": names[1], "process": os.getpid(), "folder": attempt.spool}


@kernel
def blob_of_its_moment(item: WorkItem, attempt: Attempt) -> Result:
    """A file that is another one, of the same size, each time that it is made."""
    path = attempt.path("blob.bin")
    Path(path).write_bytes(os.urandom(item["size"]))
    return {"path": path, "sum": zlib.crc32(Path(path).read_bytes())}


@kernel
def blob_or_fail(item: WorkItem, attempt: Attempt) -> Result:
    if not item["size"]:
        raise OSError("the disk is gone")
    return blob(item, attempt)


@kernel
def compare_after_loss(item: WorkItem, attempt: Attempt) -> Result:
    """Compares two sides, once an executor was lost while they were compared."""
    from strandline.differential.partitioned_hash import compare_pair

    lose_executor("comparing")
    return compare_pair(item, attempt)


@kernel
def compare_after_lost_blocks(item: WorkItem, attempt: Attempt) -> Result:
    """Compares two sides, once what Spark's shuffle keeps on this worker's disk was lost."""
    from strandline.differential.partitioned_hash import compare_pair

    if _is_first("blocks"):
        for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
            for path in Path(folder).rglob("shuffle_*"):
                path.unlink()
    return compare_pair(item, attempt)


def losing_executor(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows as they are, once an executor was lost while they were read; tells if they are read for lost blocks."""
    if file_exists(_mark("blocks")):
        put_object(_mark("blocks made again"), b"")
    for batch in batches:
        lose_executor("reading")
        yield batch


def lose_executor(phase: str) -> None:
    """Kills the JVM that this task belongs to, once in all."""
    if _is_first(phase):
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        time.sleep(60)


def _is_first(phase: str) -> bool:
    """Whether this has not happened yet; from now on it has."""
    if file_exists(_mark(phase)):
        return False
    put_object(_mark(phase), b"")
    return True


def _mark(phase: str) -> str:
    return f"s3://{os.environ['BUCKET']}/lost/{phase}"


@kernel
def set_aside(item: WorkItem, attempt: Attempt) -> Result:
    return {"objects": gc.get_freeze_count()}
