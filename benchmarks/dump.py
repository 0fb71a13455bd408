"""Dumps: bytes and seconds at 0.1 %, 1 % and 10 % changed, and what writers lose while a dump is taken.

    python -m benchmarks.dump                   1,000,000 rows
    python -m benchmarks.dump --rows 5000000

A level 1 after each share of changed rows stands beside a full dump of the same state, copying of the folder's new
files as rsync does it, and restic if it is installed. Rows change in two ways: neighbours (a batch of orders), and
spread evenly over the table (the worst case for pages; a page keeps up to 10 % of changed rows in an overlay).

The writers are eight threads that update single rows. Their commits are counted in alternating windows: no dump, one
level 1 in each window, full dumps without pause.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import strandline as sl
from strandline.errors import Conflict
from strandline.store import Store

SHARES = (0.001, 0.01, 0.1)
WRITERS = 8


def orders(rows: int) -> pa.Table:
    chance = np.random.default_rng(7)
    return pa.table(
        {
            "id": pa.array(np.arange(rows), pa.int64()),
            "customer": pa.array(chance.integers(0, rows // 10 + 1, rows), pa.int64()),
            "price": pa.array(chance.random(rows).round(2)),
            "note": pa.array(np.char.add("order ", chance.integers(0, 10**9, rows).astype(str))),
        }
    )


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def copy_new_files(source: Path, target: Path) -> int:
    """What rsync does: every file whose size or time differs is copied and flushed; bytes copied."""
    copied = 0
    for folder, _, files in os.walk(source):
        for file in files:
            one, other = Path(folder, file), target / Path(folder, file).relative_to(source)
            before = other.stat() if other.exists() else None
            now = one.stat()
            if before is None or (before.st_size, int(before.st_mtime)) != (now.st_size, int(now.st_mtime)):
                other.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(one, other)
                with open(other, "rb") as written:
                    os.fsync(written.fileno())
                copied += now.st_size
    return copied


class Restic:
    """The restic command, when there is one."""

    def __init__(self, repository: Path) -> None:
        self.there = shutil.which("restic") is not None
        self._place = {**os.environ, "RESTIC_REPOSITORY": str(repository), "RESTIC_PASSWORD": "benchmark"}
        if self.there:
            self._run("init")

    def back_up(self, folder: Path) -> tuple[int, float]:
        before = self._size()
        seconds = timed(lambda: self._run("backup", str(folder)))
        return self._size() - before, seconds

    def _run(self, *words: str) -> None:
        subprocess.run(["restic", "--quiet", *words], env=self._place, check=True)

    def _size(self) -> int:
        place = Path(self._place["RESTIC_REPOSITORY"])
        return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def measure_sizes(rows: int, folder: Path) -> None:
    with sl.create(folder / "shop") as store:
        store.create_table("orders", orders(rows), key="id")
        full = store.dump(folder / "backups")
        first_copy = timed(lambda: copy_new_files(folder / "shop", folder / "copy"))
        restic = Restic(folder / "restic")
        first = restic.back_up(folder / "shop") if restic.there else (0, 0.0)
        print(f"\n{rows:,} rows in {full.pages:,} pages. Milliseconds and bytes:\n")
        print("| changed | level 1 ms | bytes | of a full | full ms | new files ms | bytes | restic ms | bytes |")
        print("|---|---|---|---|---|---|---|---|---|")
        print(_line("everything", full.seconds, full.bytes, full.bytes, (full.seconds, first_copy), -1, first))
        for spread in (False, True):
            for share in SHARES:
                count = int(rows * share)
                where = f"id % {round(1 / share)} = 0" if spread else f"id < {count}"
                store.table("orders").update(where=where, set={"price": "price + 1"})
                made = store.dump(folder / "backups", level=1)
                again = store.dump(folder / "others")
                started = time.perf_counter()
                copied = copy_new_files(folder / "shop", folder / "copy")
                seconds = time.perf_counter() - started
                theirs = restic.back_up(folder / "shop") if restic.there else (0, 0.0)
                name = f"{share:.1%}, {'spread' if spread else 'neighbours'}"
                print(_line(name, made.seconds, made.bytes, again.bytes, (again.seconds, seconds), copied, theirs))
                # The next level 1 shall hold the next change alone.
                store.dump(folder / "backups")
    print(f"\nRestoring the last: {timed(lambda: sl.restore(folder / 'backups', folder / 'again')):.2f} s")


def _line(
    name: str, mine: float, size: int, whole: int, others: tuple[float, float], copied: int, theirs: tuple[int, float]
) -> str:
    full, copying = others
    restic = f"{theirs[1] * 1e3:.0f} | {theirs[0]:,}" if theirs[1] else "not here | "
    told = f"{copied:,}" if copied >= 0 else ""
    return (
        f"| {name} | {mine * 1e3:.0f} | {size:,} | {size / whole:.2%} | {full * 1e3:.0f} | {copying * 1e3:.0f} | "
        f"{told} | {restic} |"
    )


class Writers:
    """Eight threads that update single rows, counted."""

    def __init__(self, store: Store, rows: int) -> None:
        self._store = store
        self._rows = rows
        self.commits = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(WRITERS)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        while not self._stop.is_set():
            try:
                with self._store.transaction() as tx:
                    number = int(chance.integers(0, self._rows))
                    tx.upsert("orders", [{"id": number, "customer": seed, "price": 1.0, "note": "changed"}])
                self.commits += 1
            except Conflict:
                continue


KINDS = ("no dump", "one level 1", "level 0 without pause")


def measure_writers(rows: int, folder: Path, windows: int, seconds: float) -> None:
    """Commits in windows without a dump, with a level 1 in each, and with full dumps one after the other."""
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    dumps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with sl.create(folder / "busy") as store:
        store.create_table("orders", orders(rows), key="id")
        store.dump(folder / "beside")
        with Writers(store, rows) as writers:
            time.sleep(2)
            for number in range(len(KINDS) * windows):
                kind = KINDS[number % len(KINDS)]
                before, started = writers.commits, time.perf_counter()
                if kind == KINDS[1]:
                    dumps[kind].append(store.dump(folder / "beside", level=1).seconds)
                while kind == KINDS[2] and time.perf_counter() - started < seconds:
                    dumps[kind].append(store.dump(folder / f"full{number}").seconds)
                time.sleep(max(0.0, seconds - (time.perf_counter() - started)))
                speeds[kind].append((writers.commits - before) / (time.perf_counter() - started))
                shutil.rmtree(folder / f"full{number}", ignore_errors=True)
    print(f"\nEight writers, windows of {seconds:.0f} s, medians of {windows}:\n")
    print("| meanwhile | commits/s | from … to | lost | a dump takes |")
    print("|---|---|---|---|---|")
    for kind, found in speeds.items():
        loss = 1 - statistics.median(found) / statistics.median(speeds[KINDS[0]])
        took = f"{statistics.median(dumps[kind]):.2f} s" if dumps[kind] else ""
        told = f"{min(found):.0f} … {max(found):.0f}"
        print(f"| {kind} | {statistics.median(found):.0f} | {told} | {loss:.1%} | {took} |")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--windows", type=int, default=5)
    options.add_argument("--seconds", type=float, default=4.0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_sizes(given.rows, Path(folder))
        measure_writers(given.rows, Path(folder), given.windows, given.seconds)


if __name__ == "__main__":
    main()
