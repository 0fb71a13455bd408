"""The window's extra messages (Labio and Garcia-Molina), and its speed against merely reading the files.

    python -m benchmarks.window                  speed, then memory
    python -m benchmarks.window speed 5000000    2 × 5 M rows × 8 columns of Parquet through the window
    python -m benchmarks.window memory 1000000   peak memory at 1 × and at 10 × so many rows

The figures of the paper are drawn by `benchmarks.papers`. A record counts as 156 bytes (figure 10) without being that
long. *Extra messages* are those beyond the updates that the generator made: two for each useless pair, one of which
would have been an update if the record had changed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.labio_generator import Snapshots

import strandline as sl
from strandline.differential.window.algorithm import Window
from strandline.differential.window.options import WindowOptions, WindowReport

MEGABYTE = 2**20
RECORD_BYTES = 156


def extra_messages(
    snapshots: Snapshots,
    aging_bytes: int = 8 * MEGABYTE,
    *,
    block_bytes: int = 16 * 1024,
    record_bytes: int | None = RECORD_BYTES,
) -> int:
    """How many messages the window sends beyond the smallest set of changes."""
    options = WindowOptions(aging_bytes=aging_bytes, block_bytes=block_bytes, input_blocks=1, record_bytes=record_bytes)
    return run(snapshots, options).messages - snapshots.updated


def run(snapshots: Snapshots, options: WindowOptions) -> WindowReport:
    old, new = (iter(table.to_batches(65_536)) for table in (snapshots.old, snapshots.new))
    window = Window(snapshots.old.schema, ["key"], options)
    for _ in window.messages(old, new):
        pass
    return window.report()


def speed(rows: int = 5_000_000) -> None:
    """The window over two Parquet files against reading them, on one thread, best of five in turns."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = _write_pair(Path(folder), rows)
        differential(old, new)
        rounds = [(_seconds(read, old, new), _seconds(differential, old, new)) for _ in range(5)]
    reading, both = (min(column) for column in zip(*rounds, strict=True))
    print(f"\n2 × {rows:,} rows × 8 columns: reading {reading:.2f} s, with the window {both:.2f} s", end="")
    print(f" ({both / reading:.2f} ×)")


def memory(rows: int = 1_000_000) -> None:
    """Peak memory of a process that runs a differential by the window over files of 1 × and of 10 × the size."""
    for updated in (0.01, 1.0):
        peaks = []
        for times in (1, 10):
            with tempfile.TemporaryDirectory() as folder:
                files = [str(file) for file in _write_pair(Path(folder), times * rows, updated)]
                command = [sys.executable, "-m", "benchmarks.window", "peak", *files]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
            peaks.append(float(done.stdout))
        first, last = peaks
        print(f"\n{updated:.0%} updated, peak memory: {first:,.0f} MB at 2 × {rows:,} rows", end="")
        print(f", {last:,.0f} MB at ten times that ({last / first:.2f} ×)")


def read(old: Path, new: Path) -> None:
    for file in (old, new):
        for _ in _batches(file):
            pass


def differential(old: Path, new: Path) -> None:
    for _ in Window(pq.read_schema(old), ["id"]).messages(_batches(old), _batches(new)):
        pass


def _peak(old: str, new: str) -> None:
    sl.diff(old, new, key="id", algorithm="window", runner="inline").summary()
    # Not `ru_maxrss`: a process that was just started carries its parent's peak in there.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def _write_pair(folder: Path, rows: int, updated: float = 0.01) -> tuple[Path, Path]:
    files = folder / "old.parquet", folder / "new.parquet"
    for file, table in zip(files, _pair(rows, updated), strict=True):
        pq.write_table(table, file, compression="zstd", row_group_size=131_072)
    return files


def _seconds(work: Callable[[Path, Path], None], old: Path, new: Path) -> float:
    start = time.perf_counter()
    work(old, new)
    return time.perf_counter() - start


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    # `pre_buffer` would keep every byte of the file that was read until the end.
    yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(batch_size=65_536, use_threads=False)


def _pair(rows: int, updated: float) -> tuple[pa.Table, pa.Table]:
    """A share updated, 0.5 % deleted, 0.5 % inserted, both in key order."""
    random = np.random.default_rng(1996)
    keys = np.arange(rows, dtype=np.int64) * 2
    fresh = random.choice(rows, rows // 200, replace=False) * 2 + 1
    later = np.sort(np.concatenate([keys[random.random(rows) > 0.005], fresh]))
    return _table(keys, np.zeros(rows, dtype=bool)), _table(later, random.random(len(later)) < updated)


def _table(keys: np.ndarray[tuple[int], np.dtype[np.int64]], changed: object) -> pa.Table:
    states = np.array(["open", "closed", "void", "shipped overseas"])
    return pa.table(
        {
            "id": keys,
            "amount": keys * 7 % 1_000_003 + np.asarray(changed),
            "price": (keys % 1_000) * 0.25,
            "shop": (keys % 97).astype(np.int32),
            "name": np.char.add("customer-", (keys * 13 % 10_000_000).astype(str)),
            "time": pa.array(keys * 1_000_003 % 10**15, pa.timestamp("us")),
            "state": states[keys // 2 % 4],
            "paid": keys % 3 == 0,
        }
    )


def main(arguments: Sequence[str]) -> None:
    match list(arguments):
        case ["speed", *numbers]:
            speed(*map(int, numbers))
        case ["memory", *numbers]:
            memory(*map(int, numbers))
        case ["peak", old, new]:
            _peak(old, new)
        case _:
            speed()
            memory()


if __name__ == "__main__":
    main(sys.argv[1:])
