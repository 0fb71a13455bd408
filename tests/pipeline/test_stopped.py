"""Runs that are stopped: at every point, at every operation of the storage, by SIGKILL; then started again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.pages.faults import Crash, Fault, FaultyStorage
from tests.pipeline.shop import Shop, orders, read_copy

import strandline as sl
from strandline.pages import Environment
from strandline.pipeline import journal
from strandline.pipeline import pipeline as module
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on, open_on

FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
detect = "signatures"
[sources.staff]
from = "sqlite:///ops.db#staff"
key = "id"
detect = "annotated"
[replicas.copy]
of = "orders"
to = "sqlite:///copy.db#orders"
[dumps.backups]
to = "backups"
schedule = "hourly=0"
"""
POINTS = 30


def night(shop: Shop, number: int) -> None:
    """The sources as they are in a night."""
    shop.extract("orders.parquet", [*orders(*range(number, 9)), *orders(10 + number, price=2.0)])
    if number == 1:
        shop.sqlite("ops.db", "CREATE TABLE staff (id INTEGER PRIMARY KEY, name TEXT)")
        shop.sqlite("ops.db", "INSERT INTO staff (id, name) VALUES (1, 'a'), (2, 'b'), (5, 'e')")
    else:
        shop.sqlite("ops.db", "UPDATE staff SET name = 'z' WHERE id = 2", "DELETE FROM staff WHERE id = 1")
        shop.sqlite("ops.db", f"INSERT INTO staff (id, name) VALUES ({number * 10}, 'n')")


def expect_night(shop: Shop, number: int) -> None:
    """Everything is as after that night, once."""
    wanted = [*orders(*range(number, 9)), *orders(10 + number, price=2.0)]
    assert shop.rows() == wanted
    assert shop.rows("staff") == [
        {"id": 2, "name": "z"},
        {"id": 5, "name": "e"},
        *({"id": n * 10, "name": "n"} for n in range(2, number + 1)),
    ]
    copied = read_copy(f"sqlite:///{shop.folder}/copy.db#orders", "SELECT id, state, price FROM orders ORDER BY id")
    assert copied == [tuple(row.values()) for row in wanted]
    assert shop.snapshots() == [f"shop-{n:04}" for n in range(1, number + 1)]
    with sl.open(shop.folder / "shop.store") as store:
        steps = journal.Journal(store, "shop").steps(9)
        assert [(step.number, step.finished) for step in steps] == [(n, True) for n in range(1, number + 1)]
        messages = [entry.message for entry in store.log()]
        assert all(messages.count(journal.message_of(step)) == 1 for step in steps)
        assert store.check().ok
    kept = [path.name for path in (shop.folder / "shop.work" / "signatures").iterdir()]
    assert kept == [steps[-1].sources["orders"]["state"]]


def stopping_at(place: int) -> Callable[[str], None]:
    passed: list[str] = []

    def watch(point: str) -> None:
        passed.append(point)
        if len(passed) == place + 1:
            raise Crash

    return watch


def test_a_run_passes_fewer_points_than_are_tried(shop: Shop) -> None:
    shop.write(FILE)
    for number in (1, 2):
        night(shop, number)
        shop.run()
    expect_night(shop, 2)
    assert 20 < len(shop.points) <= POINTS
    assert "commit" in shop.points


@pytest.mark.parametrize("first", range(0, POINTS, 3))
def test_stopped_at_any_point_and_started_again_it_finishes_the_same_step(shop: Shop, first: int) -> None:
    """Three points in a row in one shop: each night is stopped once, and the next night comes after the repair."""
    shop.write(FILE)
    night(shop, 1)
    shop.run()
    night(shop, 2)
    shop.run()
    for number, place in enumerate(range(first, first + 3), 3):
        night(shop, number)
        try:
            shop.run(stopping_at(place))
        except Crash:
            shop.now += 3600
        shop.run()
        expect_night(shop, number)
        shop.now += 3600


def test_stopped_again_and_again_it_still_takes_one_step(shop: Shop) -> None:
    shop.write(FILE)
    night(shop, 1)
    shop.run()
    night(shop, 2)
    for place in range(POINTS):
        try:
            shop.run(stopping_at(place))
        except Crash:
            continue
    expect_night(shop, 2)


@contextmanager
def on(storage: FaultyStorage | MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pipeline's store on a storage of the test's own."""

    def opened(url: str, *, session: object = None) -> Store:
        return open_on(storage, environment=Environment())

    def created(url: str, *, session: object = None) -> Store:
        return create_on(storage, environment=Environment())

    with monkeypatch.context() as patched:
        patched.setattr(module, "open_store", opened)
        patched.setattr(module, "create_store", created)
        yield


SMALL = 'store = "s"\n[sources.orders]\nfrom = "orders.parquet"\nkey = "id"\n'


@pytest.mark.parametrize("fault", [Fault.STOP, Fault.TEAR, Fault.ANSWER_LOST_THEN_STOP])
def test_stopped_at_any_operation_of_the_storage_a_step_happens_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    shop.write(SMALL)
    shop.extract("orders.parquet", orders(1, 2, 3))
    before = MemoryStorage()
    with on(before, monkeypatch):
        shop.run()
    shop.extract("orders.parquet", orders(2, 3, 4))
    place, struck = 0, True
    while struck:
        storage = MemoryStorage(before.objects)
        faulty = FaultyStorage(storage, fault, place)
        with on(faulty, monkeypatch), suppress(Crash):
            shop.run()
        struck = faulty.struck
        with on(storage, monkeypatch):
            shop.run()
        with open_on(storage) as store:
            assert store.table("orders").to_arrow().to_pylist() == orders(2, 3, 4)
            assert [record.name for record in store.snapshots()] == ["shop-0001", "shop-0002"]
            assert [entry.message for entry in store.log()].count("pipeline shop step 2") == 1
            assert not store.check().findings
        place += 1
    assert place > 10


DRIVER = """
import os, signal, sys
from strandline.pipeline import Pipeline, read_settings
left = int(sys.argv[2])
def watch(point):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Pipeline(read_settings(sys.argv[1]), watch=watch).run(wait=True)
"""


def test_killed_by_the_kernel_at_random_points_it_loses_and_doubles_nothing(shop: Shop) -> None:
    shop.write(FILE)
    shop.now = time.time()
    chance = random.Random(20240131)
    source = Path(__file__).parents[2] / "src"
    night(shop, 1)
    for number in range(1, 4):
        if number > 1:
            night(shop, number)
        command = [sys.executable, "-c", DRIVER, str(shop.folder / "shop.toml"), str(chance.randint(2, 26))]
        ended = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        shop.run()
    expect_night(shop, 3)
