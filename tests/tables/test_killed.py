"""Real processes, interrupted, forked and killed at random under load, and what they left. `make crash` tries 300."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pages.toy import Clock
from tests.tables.killed import ACCOUNTS

from strandline.storage import LocalStorage
from strandline.store import Store, create, open_on

TRIALS = int(os.environ.get("STRANDLINE_TRIALS", "3"))


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[str]]:
    """The process whose forks are killed."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "tests.tables.killed"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    yield process
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.close()
    process.wait(timeout=60)
    assert process.stdout is not None
    process.stdout.close()


def kill_one(nursery: subprocess.Popen[str], path: Path, trial: int, acks: Path) -> list[str]:
    """Start a process, kill it after a while; what it says it had committed."""
    chance = random.Random(trial)
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"{path} {trial} {acks}\n")
    nursery.stdin.flush()
    child = int(nursery.stdout.readline())
    enough, deadline = chance.randrange(1, 25), time.monotonic() + 60
    interrupts = chance.randrange(4)
    while time.monotonic() < deadline and (not acks.exists() or acks.read_text().count("\n") < enough):
        time.sleep(0.002 + 0.01 * chance.random())
        if interrupts and acks.exists() and acks.read_text() and chance.random() < 0.3:
            interrupts -= 1
            os.kill(child, signal.SIGINT)
    os.kill(child, signal.SIGKILL)
    return acks.read_text().splitlines()


def total(store: Store, at: object = None) -> int:
    return sum(store.table("accounts").to_arrow(at=at, columns=["balance"])["balance"].to_pylist())


def look_after(store: Store, clock: Clock, acknowledged: set[int]) -> int:
    """Bury the dead, and look at everything that is there; how many states that is."""
    for _ in range(2):
        store.pages.store.beat()
        clock.time += 61
    store.pages.store.beat()
    assert acknowledged <= set(store.table("log").to_arrow()["id"].to_pylist()), "what was committed is there"
    seen = 0
    for name in store.branches():
        version = store.version(name)
        assert total(version) == 100 * ACCOUNTS
        states = [None, *version.snapshots()]
        assert {total(version, at) for at in states} == {100 * ACCOUNTS}
        seen += len(states)
    for name in store.branches():
        if name != "main":
            store.drop_branch(name)
    for record in store.snapshots():
        store.drop_snapshot(record.name)
    return seen


def test_a_killed_process_leaves_whole_states_and_nothing_else(tmp_path: Path, nursery: subprocess.Popen[str]) -> None:
    path = tmp_path / "bank"
    with create(path) as store:
        store.create_table("accounts", pa.table({"id": range(ACCOUNTS), "balance": [100] * ACCOUNTS}), key="id")
        store.create_table("log", pa.schema([("id", pa.int64())]), key="id")
    acknowledged: set[int] = set()
    states = 0
    over: Counter[str] = Counter()
    for trial in range(TRIALS):
        lines = kill_one(nursery, path, trial, tmp_path / f"acks{trial}")
        errors = [line for line in lines if line.startswith("error")]
        assert not errors, errors[0]
        assert "fork killed" not in lines, "a forked child hung"
        over.update(line for line in lines if not line.isdecimal())
        acknowledged |= {int(line) for line in lines if line.isdecimal()}
        clock = Clock()
        with open_on(LocalStorage(path), environment=clock.environment()) as store:
            states += look_after(store, clock, acknowledged)
            store.table("accounts").update(where="id = 0", set={"balance": "balance"})
            report = store.check()
            assert report.ok, (trial, report.findings[:5], report.unreachable[:5])
        print(
            f"{trial + 1} processes killed, {over['interrupt']} interrupts, {over['fork']} forks, {len(acknowledged)} "
            f"acknowledged inserts and {states} states looked at",
            flush=True,
        )
