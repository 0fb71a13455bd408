"""A dump beside writers: it reads little, leaves every cache alone, makes way, and survives being killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.dumps.toys import INLINE, dumped
from tests.pages.toy import created, put
from tests.tables.shop import numbered, rows, shop

import strandline as sl
from strandline.dumps import Dumps, packs, throttle
from strandline.dumps.packs import CopyOptions
from strandline.dumps.take_dump import DumpRequest, take_dump
from strandline.dumps.target import Target
from strandline.dumps.throttle import Throttle, throttle_beside_writers
from strandline.storage import LocalStorage, MemoryStorage, Token
from strandline.storage.local import cached_share


class Counting(MemoryStorage):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def get(self, name: str) -> bytes:
        self.read.append(name)
        return super().get(name)


def test_a_dump_reads_the_pages_that_it_copies_and_little_more() -> None:
    storage, target = Counting(), MemoryStorage()
    with created(storage) as store:
        put(store.version(), "t", **{f"k{n:04}": n for n in range(2000)})
        full = dumped(store, target)
        put(store.version(), "t", k0777="changed")
        storage.read.clear()
        made = dumped(store, target, 1)
        pages = [name for name in storage.read if name.startswith("pages/")]
        nodes = [name for name in storage.read if name.startswith("nodes/")]
    assert full.pages > 250
    assert (made.pages, len(pages)) == (1, 1)
    assert len(nodes) <= 6, "one path through the page table, and records"


def test_a_dump_leaves_the_store_s_caches_as_they_are() -> None:
    target: Any = MemoryStorage()
    with shop() as store:
        store.create_table("cold", numbered(3000), key="id")
        store.create_table("hot", numbered(10), key="id")
        store.cache.clear()
        rows(store, "hot")
        objects, cache = store.pages.store.context.objects, store.cache
        before = objects._kept.keys(), cache.keys(), cache.opened
        store.dump(target)
        assert (objects._kept.keys(), cache.keys(), cache.opened) == before


def resident(path: Path) -> float:
    """How much of a file the machine's cache has."""
    with open(path, "rb") as file:
        return cached_share(file.fileno(), path.stat().st_size)


def evicted(path: Path) -> bool:
    """Whether the machine's cache lets a file go: a file system in memory does not."""
    for _ in range(50):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        if resident(path) == 0:
            return True
    return False


def test_what_is_read_or_written_once_does_not_stay_in_the_machine_s_cache(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    data = os.urandom(4 << 20)
    storage.put_if_absent("cold", data)
    storage.put_if_absent("hot", data)
    assert storage.get("hot") == data
    hot = resident(tmp_path / "hot")
    cold = 0.0 if evicted(tmp_path / "cold") else 1.0
    assert storage.get_in_passing("cold") == storage.get_in_passing("hot") == data
    assert resident(tmp_path / "cold") <= cold
    assert resident(tmp_path / "hot") == hot, "what a writer uses stays"


class Hours:
    """A clock that goes on when somebody works or sleeps, beside writers who commit until they stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: float = 1e9) -> None:
        self.now = self.slept = 0.0
        self._stop = stop
        self.storage = MemoryStorage({"versions/0-0": b""})
        monkeypatch.setattr(throttle, "time", self)
        self.work(0)

    def monotonic(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.storage.objects["versions/0-0"] = str(min(self.now, self._stop)).encode()

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.work(seconds)


def test_a_dump_works_a_twentieth_of_the_time_while_commits_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hours(monkeypatch)
    one = throttle_beside_writers(clock.storage, ["versions/0-0", "versions/gone"], busy=True)
    for _ in range(100):
        with one.turn():
            clock.work(0.1)
        with one.turn():
            clock.work(0.0001)
    assert 0.049 < 10.01 / clock.now < 0.051


def test_writers_who_come_later_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hours(monkeypatch)
    one = throttle_beside_writers(clock.storage, ["versions/0-0"])
    with one.turn():
        clock.work(0.1)
    assert clock.slept == 0.0, "nothing was seen yet"
    clock.work(0.2)
    with one.turn():
        clock.work(0.1)
    assert clock.slept == pytest.approx(1.9)


def test_a_rest_ends_when_the_writers_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hours(monkeypatch, stop=2.0)
    one = throttle_beside_writers(clock.storage, ["versions/0-0"], busy=True)
    with one.turn():
        clock.work(1.0)
    assert 1.0 <= clock.slept <= 1.5
    with one.turn():
        clock.work(1.0)
    assert clock.slept <= 1.5, "nobody commits"


def test_in_a_hurry_there_is_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hours(monkeypatch)
    with Throttle().turn():
        clock.work(10.0)
    assert clock.slept == 0.0


def test_tasks_of_one_machine_share_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hours(monkeypatch)
    with throttle_beside_writers(clock.storage, ["versions/0-0"], busy=True, tasks=4).turn():
        clock.work(0.1)
    assert clock.slept == pytest.approx(7.9)


def test_a_log_that_shows_commits_just_now_is_believed() -> None:
    assert throttle.commits_arrive([99.1, 99.2, 99.3, 99.4, 99.9], now=100.0)
    assert not throttle.commits_arrive([99.3, 99.4, 99.9], now=100.0), "a few are somebody's who is done"
    assert not throttle.commits_arrive([50.0 + n for n in range(40)], now=100.0)


def test_beside_writers_everything_that_a_dump_writes_is_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, bool]] = []
    turns: list[threading.Lock] = []

    class Watched(MemoryStorage):
        def put_if_absent(self, name: str, value: bytes) -> None:
            written.append((name, turns[-1].locked()))
            super().put_if_absent(name, value)

        def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
            written.append((name, turns[-1].locked()))
            return super().compare_and_swap(name, expected, value)

    class Seen(Throttle):
        def __init__(self, *words: Any, **more: Any) -> None:
            super().__init__(*words, **more)
            turns.append(self._turn)

    monkeypatch.setattr(throttle, "Throttle", Seen)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with created(MemoryStorage()) as store:
        for number in range(6):
            put(store.version(), "t", **{f"k{number}": number})
        take_dump(store, Target(Watched()), DumpRequest(options=CopyOptions("inline")))
    assert len(written) >= 5
    assert all(paced for _, paced in written), written


def test_much_goes_to_spark_and_little_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here, there = LocalStorage(tmp_path / "a"), LocalStorage(tmp_path / "b")
    assert CopyOptions().spark(packs.SPARK_BYTES, here, there, plain=True)
    assert not CopyOptions().spark(packs.SPARK_BYTES - 1, here, there, plain=True)
    assert not CopyOptions().spark(packs.SPARK_BYTES, here, there, plain=False), "the key travels nowhere"
    assert not INLINE.spark(packs.SPARK_BYTES, here, there, plain=True)
    assert CopyOptions("spark").spark(1, here, there, plain=True)


KILLED = """
import os, signal, sys
import strandline as sl
from strandline.dumps import packs as copying
copying.PACK_BYTES, copying.THREADS, left = 2000, 1, [3]
write = copying.write_pack

def dying(*words):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*words)

copying.write_pack = dying
with sl.open(sys.argv[1]) as store:
    store.dump(sys.argv[2], level=1)
"""


def test_a_dump_whose_process_was_killed_is_gone_on_with_at_once(tmp_path: Path) -> None:
    path, target = tmp_path / "shop", tmp_path / "backups"
    with sl.create(path) as store:
        for number in range(8):
            store.create_table(f"t{number}", numbered(100), key="id")
        first = store.dump(target, tables=["t0"])
    words = [sys.executable, "-c", KILLED, str(path), str(target)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert [one.state for one in Dumps(target).entries()] == ["complete", "begun"]
    assert Dumps(target).verify().whole == [first.id]
    with sl.open(path) as store:
        made = store.dump(target)
        assert made.resumed >= 2
    assert [one.complete for one in Dumps(target).entries()] == [True, True]
    sl.restore(target, tmp_path / "again")
    with sl.open(tmp_path / "again") as store:
        assert store.check().ok
        assert len(store.tables()) == 8


def test_an_attempt_that_nobody_wants_is_swept(tmp_path: Path) -> None:
    path, target = tmp_path / "shop", tmp_path / "backups"
    with sl.create(path) as store:
        store.create_table("t", numbered(100), key="id")
        store.create_table("u", numbered(100), key="id")
        store.create_table("v", numbered(100), key="id")
    subprocess.run([sys.executable, "-c", KILLED, str(path), str(target)], check=False)
    dry = Dumps(target).sweep()
    assert (len(dry.attempts), dry.confirmed) == (1, False)
    assert len(Dumps(target).entries()) == 1
    Dumps(target).sweep(confirm=True)
    assert not [file for file in target.rglob("*") if file.is_file() and file.name not in ("DUMPS", ".lock")]


def test_progress_shows_bytes_and_the_time_left_on_a_terminal(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        store.create_table("t", numbered(2000), key="id")
    program = (
        "import time\nfrom strandline.dumps import packs as copying\nwrite = copying.write_pack\n"
        "def slow(*words):\n    time.sleep(0.3)\n    write(*words)\n    time.sleep(0.3)\n"
        "copying.write_pack = slow\nfrom strandline.cli import main\n"
        f"main(['dump', {str(tmp_path / 'shop')!r}, {str(tmp_path / 'backups')!r}])\n"
    )
    shown = on_a_terminal([sys.executable, "-c", program])
    assert re.search(r"Dumping \S+-L0-\w+", shown)
    assert re.search(r"\d+(\.\d+)?/\d+(\.\d+)? (kB|bytes|MB)", shown)
    assert re.search(r"-:--:--|\d:\d\d:\d\d", shown)


def on_a_terminal(words: list[str]) -> str:
    """What a program writes to a terminal."""
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # the other end is closed
        assert process.wait() == 0, shown.decode()
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
