"""How what kernels write on a worker reaches its readers.

Where the spool is a folder that the workers see, kernels write into it and only a record of JSON travels. Where it
is not, an attempt writes to its worker's own disk, and the files that its record names travel behind the record as
rows of bytes. The driver learns from the records how many bytes there are before it takes any, keeps to a limit, and
puts the files into its own spool: the paths in an outcome then mean these.

Rows that travel are cached on the workers' disks until the driver has them, so that all partitions are computed at
once and the driver holds one piece of a file at a time. Where an object store was named, large files travel through
that instead, without a limit, or stay there (`spool`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.engine.progress import byte_count
from strandline.engine.runner import parallel
from strandline.engine.spool import SPOOL_VARIABLE, Spool, fetch, put_files, remove_run, scratch_folder, stays
from strandline.engine.work import HANDED_ON, Attempt, Kernel, WorkItem, encode, run_attempt
from strandline.errors import EngineError, InputError, StrandlineError
from strandline.storage import retried

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

DELIVERED = "record string, file string, start bigint, late boolean, data binary"
"""A row is a record, or a piece of a file of the attempt whose record stands in the same partition."""

PIECE_BYTES = 1 << 20
AT_ONCE_BYTES = 64 << 10
"""Files of an attempt that have no more together come with the records, the others once their size is known."""

JOB_BYTES = 64 << 20
"""Bytes that the driver takes at once."""

RETURN_LIMIT = 8 << 30
"""Bytes of results that may travel through Spark to the driver's disk."""

TAKES = 3
"""How often results are taken at most, where workers are lost while they travel."""

_HOME = "\0spool/"
"""Stands in a record for the spool; no path begins so."""


@contextlib.contextmanager
def worker_folder() -> Iterator[str]:
    """A folder on this worker's own disk, where Spark has it for scratch; it goes when the block ends."""
    places = [place for place in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(place)]
    folder = scratch_folder(places[0] if places else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Delivery:
    """What a worker is told: the spool if it sees it, else None, and how much memory an attempt may use.

    `remote` is the URL under which this run stores large files, if there is an object store.
    """

    spool: str | None
    memory: int
    watched: bool = False
    remote: str | None = None

    def run(self, kernel: Kernel, item: WorkItem, number: int) -> Iterator[pa.RecordBatch]:
        """One attempt, as the rows that travel back."""
        if self.spool is not None:
            attempt = Attempt(self.spool, number, self.memory)
            record = run_attempt(kernel, item, attempt)
            if self.watched and "error" not in record:
                Path(attempt.path("done.json")).write_text(encode({k: record[k] for k in ("rows", "bytes")}))
            yield _row(record=encode(record))
            return
        with worker_folder() as folder:
            # Names without a random part: a partition that is computed again gives the same files.
            attempt = Attempt(folder, number, self.memory, token="files")
            record = run_attempt(kernel, item, attempt)
            files: dict[str, int] = {}
            record = _walk(record, lambda text: _homeless(text, folder, files))
            late = sum(files.values()) > AT_ONCE_BYTES
            if self.remote is not None and (late or any(f"/{HANDED_ON}/" in name for name in files)):
                late = True
                objects = put_files(self.remote, folder, files)
                yield _row(record=encode({**record, "files": files, "late": late, "objects": objects}))
                return
            sums = {name: _checksum(os.path.join(folder, name)) for name in files} if late else {}
            yield _row(record=encode({**record, "files": files, "late": late, "sums": sums}))
            for name in files:
                yield from _pieces(os.path.join(folder, name), name, late=late)

    def refuse(self, error: StrandlineError) -> Iterator[pa.RecordBatch]:
        """A mistake that was found before there was anything to attempt."""
        yield _row(record=encode({"item": -1, "error": error.to_json(), "files": {}, "late": False}))


def _checksum(path: str) -> int:
    """The CRC of a file: tells one computation of a result from another."""
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            crc = zlib.crc32(piece, crc)
    return crc


def _homeless(text: str, folder: str, files: dict[str, int]) -> str:
    """A path in the folder as one in no particular spool; notes the file's size."""
    if not text.startswith(f"{folder}/"):
        return text
    name = text.removeprefix(f"{folder}/")
    if os.path.isfile(text):
        files[name] = os.path.getsize(text)
    return f"{_HOME}{name}"


def _pieces(path: str, name: str, *, late: bool) -> Iterator[pa.RecordBatch]:
    with open(path, "rb") as file:
        start = 0
        while piece := file.read(PIECE_BYTES):
            yield _row(file=name, start=start, late=late, data=piece)
            start += len(piece)


def _row(**values: Any) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {"record": pa.string(), "file": pa.string(), "start": pa.int64(), "late": pa.bool_(), "data": pa.binary()}
    return pa.record_batch([pa.array([values.get(name)], kind) for name, kind in kinds.items()], names=list(kinds))


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its strings changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _walk(item, change) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, change) for item in value]
    return value


def take_records(frame: DataFrame) -> list[dict[str, Any]]:
    """The records of a frame whose attempts wrote into a spool that all see: one job."""
    return [json.loads(row["record"]) for row in frame.select("record").collect()]


def take_files(frame: DataFrame, spool: Spool, title: str) -> list[dict[str, Any]]:
    """The records of a frame whose attempts wrote to their workers' disks, once their files are in the spool.

    What a worker kept that is lost meanwhile is computed again, from rows that may come in another order: pieces that
    are not those of which the records tell are noticed, and all is taken anew.
    """
    return retried(lambda: _take_files(frame, spool, title), TAKES, (EngineError,))


def _take_files(frame: DataFrame, spool: Spool, title: str) -> list[dict[str, Any]]:
    from pyspark.storagelevel import StorageLevel

    home = os.path.join(spool.path, f"from-workers-{secrets.token_hex(6)}")
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        records = []
        for row in kept.where("late is null or not late").collect():
            if row["record"] is None:
                _write_piece(home, row)
            else:
                records.append(json.loads(row["record"]))
        late = sum(sum(record["files"].values()) for record in records if record["late"])
        _check_limit(late, spool, title)
        if late:
            # Each partition is a job of its own here, whose rows are in the driver's JVM at once.
            pieces = kept.where("late").select("file", "start", "data")
            jobs = -(-late // JOB_BYTES)
            evenly = pieces.coalesce(1) if jobs == 1 else pieces.repartition(jobs)
            for row in evenly.toLocalIterator(prefetchPartitions=True):
                _write_piece(home, row)
    finally:
        kept.unpersist()
    _check_whole(home, records, title)
    return [_walk(record, lambda text: _at_home(text, home, {})) for record in records]


def take_objects(frame: DataFrame, spool: Spool, run: str, title: str) -> list[dict[str, Any]]:
    """The same where large files were stored under `run`: those that may stay do, as long as the spool is there."""
    home = os.path.join(spool.path, f"from-workers-{secrets.token_hex(6)}")
    spool.hold(run)
    records, stored = [], {}
    for row in frame.collect():
        if row["record"] is None:
            _write_piece(home, row)
            continue
        record = json.loads(row["record"])
        records.append(record)
        stored.update(record.get("objects", {}))
        if "objects" in record:
            record["files"] = {name: size for name, size in record["files"].items() if not stays(name)}
    staying = {name: url for name, url in stored.items() if stays(name)}
    size = sum(sum(record["files"].values()) for record in records if record["late"])
    if size > (room := shutil.disk_usage(spool.path).free):
        why = f"the result has {byte_count(size)}, and {byte_count(room)} of disk are left in {spool.path}"
        raise InputError(why, doing=title, hint="Make room there, or let TMPDIR name a larger disk")
    fetched = [(name, url) for name, url in stored.items() if name not in staying]
    parallel(lambda pair: _write_piece(home, {"file": pair[0], "start": 0, "data": fetch(pair[1])}), fetched)
    remove_run(run, kept=staying.values())
    _check_whole(home, records, title)
    return [_walk(record, lambda text: _at_home(text, home, staying)) for record in records]


def _at_home(text: str, home: str, staying: Mapping[str, str]) -> str:
    """Where a file of an attempt is now: in the object store, or in the driver's spool."""
    if not text.startswith(_HOME):
        return text
    name = text.removeprefix(_HOME)
    return staying.get(name) or os.path.join(home, name)


def _write_piece(home: str, row: Any) -> None:
    """Puts a piece at its place in its file; the order of pieces does not matter, nor does one that comes twice."""
    path = os.path.join(home, row["file"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        rest, start = memoryview(row["data"]), int(row["start"])
        while rest:
            written = os.pwrite(descriptor, rest, start)
            rest, start = rest[written:], start + written
    finally:
        os.close(descriptor)


def _check_limit(size: int, spool: Spool, title: str) -> None:
    room = shutil.disk_usage(spool.path).free
    if size > min(RETURN_LIMIT, room):
        most = f"{byte_count(RETURN_LIMIT)} may" if room > RETURN_LIMIT else f"{byte_count(room)} of disk are left to"
        raise InputError(
            f"the result has {byte_count(size)}, and {most} travel through Spark to this machine",
            doing=title,
            hint=f"Set {SPOOL_VARIABLE} to an object store's prefix (s3://bucket/prefix), "
            "or to a folder that this machine and every worker see",
        )


def _check_whole(home: str, records: list[dict[str, Any]], title: str) -> None:
    for record in records:
        for name, size in record["files"].items():
            path = os.path.join(home, name)
            if size == 0:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                Path(path).touch()
            expected = record.get("sums", {}).get(name)
            if os.path.getsize(path) != size or (expected is not None and expected != _checksum(path)):
                raise EngineError(f"{name} did not arrive whole from its worker", doing=title, hint="Try again")
