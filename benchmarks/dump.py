"""Dumps: bytes and seconds at 0.1 %, 1 % and 10 % changed, and what writers lose while a dump is taken.

    python -m benchmarks.dump                   1,000,000 rows
    python -m benchmarks.dump --rows 5000000 --only sizes

A level 1 after each share of changed rows stands beside a full dump of the same state, `rsync` of the store's folder
(or, where it is not installed, copying of new files as it does it) and restic. Rows change in two ways: neighbours (a
batch of orders), and spread evenly over the table (the worst case for pages; a page keeps up to 10 % of changed rows in
an overlay).

The writers are eight threads that update single rows. Their commits are counted in short windows, in random order round
after round, so that whatever else slows the machine hits all kinds alike: no dump; level 1s one after the other without
a pause; full dumps likewise, making way for writers as dumps do; and, in every fifth round, the same in a hurry. A
window ends with the dump under way, so all of it is beside a dump. The loss is that of the sums, with the interval that
holds 90 % of resampled rounds; more rounds make it narrower.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import strandline as sl
from strandline.dumps import Dump
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


class Rsync:
    """rsync, or what it does where it is not installed: files whose size or time differs are copied."""

    def __init__(self, target: Path) -> None:
        self.installed = shutil.which("rsync") is not None
        self._target = target

    @property
    def name(self) -> str:
        return "rsync" if self.installed else "new files copied (rsync is not installed)"

    def back_up(self, folder: Path) -> tuple[int, float]:
        before = _files(self._target)
        started = time.perf_counter()
        if self.installed:
            words = ["rsync", "--archive", "--delete", "--whole-file", "--fsync", f"{folder}/", str(self._target)]
            subprocess.run(words, check=True)
        else:
            _copy_new_files(folder, self._target)
        seconds = time.perf_counter() - started
        after = _files(self._target)
        return sum(size for one, (size, when) in after.items() if before.get(one) != (size, when)), seconds


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def _copy_new_files(source: Path, target: Path) -> None:
    for one in source.rglob("*"):
        other = target / one.relative_to(source)
        if one.is_file() and (not other.exists() or other.stat().st_mtime_ns != one.stat().st_mtime_ns):
            other.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(one, other)
            with open(other, "rb") as written:
                os.fsync(written.fileno())


class Restic:
    """The restic command."""

    def __init__(self, repository: Path) -> None:
        self.installed = shutil.which("restic") is not None
        self._place = {**os.environ, "RESTIC_REPOSITORY": str(repository), "RESTIC_PASSWORD": "benchmark"}
        self._place["RESTIC_CACHE_DIR"] = str(repository) + ".cache"
        self._repository = repository
        if self.installed:
            self._run("init")
        else:
            print("\nrestic is NOT INSTALLED here (apt-get install restic): its columns are empty.")

    def back_up(self, folder: Path) -> tuple[int, float] | None:
        if not self.installed:
            return None
        before = sum(size for size, _ in _files(self._repository).values())
        seconds = timed(lambda: self._run("backup", str(folder)))
        return sum(size for size, _ in _files(self._repository).values()) - before, seconds

    def _run(self, *words: str) -> None:
        subprocess.run(["restic", "--quiet", *words], env=self._place, check=True)


class Sizes:
    """The first table: one store, changed again and again, backed up in each way."""

    def __init__(self, rows: int, folder: Path) -> None:
        self._rows = rows
        self._folder = folder
        self._rsync, self._restic = Rsync(folder / "copy"), Restic(folder / "restic")

    def measure(self) -> None:
        folder = self._folder
        with sl.create(folder / "shop") as store:
            store.create_table("orders", orders(self._rows), key="id")
            full = store.dump(folder / "backups")
            print(f"\n{self._rows:,} rows in {full.pages:,} pages. Milliseconds and bytes:\n")
            print(
                f"| changed | level 1 | bytes | of a full | full dump | {self._rsync.name} | bytes | restic | bytes |"
            )
            print("|---|---|---|---|---|---|---|---|---|")
            self._line("everything", full, full)
            for spread in (False, True):
                for share in SHARES:
                    where = f"id % {round(1 / share)} = 0" if spread else f"id < {int(self._rows * share)}"
                    store.table("orders").update(where=where, set={"price": "price + 1"})
                    made = store.dump(folder / "backups", level=1)
                    name = f"{share:.1%}, {'spread' if spread else 'neighbours'}"
                    # The next level 1 shall hold the next change alone.
                    self._line(name, made, store.dump(folder / "backups"))
        print(f"\nRestoring the last: {timed(lambda: sl.restore(folder / 'backups', folder / 'again')):.2f} s")

    def _line(self, name: str, made: Dump, full: Dump) -> None:
        files, restic = self._rsync.back_up(self._folder / "shop"), self._restic.back_up(self._folder / "shop")
        told = " | ".join("| " if one is None else f"{one[1] * 1e3:.0f} | {one[0]:,}" for one in (files, restic))
        mine = f"{made.seconds * 1e3:.0f} | {made.bytes:,} | {made.bytes / full.bytes:.2%} | {full.seconds * 1e3:.0f}"
        print(f"| {name} | {mine} | {told} |", flush=True)


class Writers:
    """Eight threads that update single rows, counted."""

    def __init__(self, store: Store, rows: int) -> None:
        self._store = store
        self._rows = rows
        self._commits = [0] * WRITERS
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(WRITERS)]

    @property
    def commits(self) -> int:
        return sum(self._commits)

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
                self._commits[seed] += 1
            except Conflict:
                continue


class Dumper:
    """Dumps one after the other in a thread of their own, while it is asked for them."""

    def __init__(self, store: Store, target: Path, level: int, *, hurry: bool = False) -> None:
        self._store, self._target, self._level, self._hurry = store, target, level, hurry
        self._wanted, self._over, self._turn = threading.Event(), threading.Event(), threading.Lock()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def go_on(self) -> None:
        self._wanted.set()

    def pause(self) -> None:
        """No further dump is begun; the one under way ends first, so that no other window has it."""
        self._wanted.clear()
        with self._turn:
            return

    def end(self) -> None:
        self._over.set()
        self._wanted.set()
        self._thread.join()

    def _work(self) -> None:
        while self._wanted.wait() and not self._over.is_set():
            with self._turn:
                if self._wanted.is_set():
                    made = self._store.dump(self._target, level=self._level, hurry=self._hurry)
                    self.seconds.append(made.seconds)

    def prepare(self, base: Path) -> None:
        """Between windows: an empty target, or for a level 1 one that has the first level 0 alone."""
        shutil.rmtree(self._target, ignore_errors=True)
        if self._level > 0:
            shutil.copytree(base, self._target, copy_function=os.link)


@dataclass
class Kind:
    """One kind of window: what runs beside the writers, and how many commits a second were seen in which round."""

    name: str
    speeds: dict[int, float] = field(default_factory=dict)
    dumps: list[float] = field(default_factory=list)


NONE, LEVEL_1, FULL, HURRIED = "no dump", "level 1s without pause", "full dumps without pause", "the same in a hurry"


def measure_writers(rows: int, folder: Path, rounds: int, seconds: float) -> None:
    """See the module."""
    kinds = {name: Kind(name) for name in (NONE, LEVEL_1, FULL, HURRIED)}
    with sl.create(folder / "busy") as store:
        store.create_table("orders", orders(rows), key="id")
        full = store.dump(folder / "base")
        dumpers = {
            LEVEL_1: Dumper(store, folder / "ones", 1),
            FULL: Dumper(store, folder / "full", 0),
            HURRIED: Dumper(store, folder / "hurried", 0, hurry=True),
        }
        chance = np.random.default_rng(1)
        with Writers(store, rows) as writers:
            time.sleep(2)
            for number in range(rounds):
                for name in chance.permutation([one for one in kinds if one != HURRIED or number % 5 == 0]):
                    dumper = dumpers.get(name)
                    if dumper is not None:
                        dumper.prepare(folder / "base")
                    kinds[name].speeds[number] = _speed(writers, dumper, seconds)
        for name, dumper in dumpers.items():
            dumper.end()
            kinds[name].dumps = dumper.seconds
    print(f"\nEight writers on {rows:,} rows, {rounds} windows of {seconds:.0f} s or more of each kind;")
    print(f"a full dump alone takes {full.seconds:.2f} s:\n")
    print("| meanwhile | commits/s | lost | 90 % of resampled rounds | dumps | a dump takes |")
    print("|---|---|---|---|---|---|")
    for kind in kinds.values():
        if not kind.speeds:
            continue
        least, middle, most = _loss([kinds[NONE].speeds[n] for n in kind.speeds], list(kind.speeds.values()))
        took = f"{len(kind.dumps)} | {np.median(kind.dumps):.2f} s" if kind.dumps else " | "
        told = f"{middle:.1%} | {least:.1%} … {most:.1%}" if kind.name != NONE else " | "
        print(f"| {kind.name} | {np.mean(list(kind.speeds.values())):.0f} | {told} | {took} |")


def _speed(writers: Writers, dumper: Dumper | None, seconds: float) -> float:
    """Commits a second in one window, which ends with the dump under way."""
    before, started = writers.commits, time.perf_counter()
    if dumper is not None:
        dumper.go_on()
    time.sleep(seconds)
    if dumper is not None:
        dumper.pause()
    return (writers.commits - before) / (time.perf_counter() - started)


def _loss(without: list[float], beside: list[float]) -> tuple[float, float, float]:
    """The share of commits lost, with the interval that holds 90 % of resampled rounds."""
    one, other = np.array(without), np.array(beside)
    chance = np.random.default_rng(2)
    picks = chance.integers(0, len(one), (2000, len(one)))
    losses = 1 - other[picks].sum(axis=1) / one[picks].sum(axis=1)
    return float(np.quantile(losses, 0.05)), float(1 - other.sum() / one.sum()), float(np.quantile(losses, 0.95))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--only", choices=["sizes", "writers"])
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.only != "writers":
            Sizes(given.rows, Path(folder)).measure()
        if given.only != "sizes":
            measure_writers(given.rows, Path(folder), given.rounds, given.seconds)


if __name__ == "__main__":
    main()
