"""Runs that are stopped: at every point, at every operation of the storage, by SIGKILL; then started again."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pages.faults import Crash, Fault, FaultyStorage
from tests.pipeline.shop import Shop, orders, read_copy

import strandline as sl
from strandline.cli.pipeline import print_run, run_json
from strandline.errors import Cancelled
from strandline.pages import Environment
from strandline.pipeline import finish, journal
from strandline.pipeline import pipeline as module
from strandline.pipeline.finish import _against_everything
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
    pages = {path.name for path in (shop.folder / "shop.work" / "reports").iterdir()}
    of_steps = {f"step-{n:04}.html" for n in range(1, number + 1)}
    of_tables = {f"step-{n:04}-{name}.html" for n in range(1, number + 1) for name in ("orders", "staff")}
    assert {"latest.html", "index.html", *of_steps} <= pages <= {"latest.html", "index.html", *of_steps, *of_tables}
    assert all({"extract", "detect", "notice", "replicas"} <= step.stages.keys() for step in steps)
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


def test_the_next_run_tells_of_a_run_that_was_killed(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write(FILE)
    night(shop, 1)

    def stop_after_commit(point: str) -> None:
        if point == "notice":
            raise Crash

    with pytest.raises(Crash):
        shop.run(stop_after_commit)
    pages = shop.folder / "shop.work" / "reports"
    assert not pages.exists()
    again = shop.run()
    assert again.step is None
    assert (pages / "step-0001.html").exists()
    print_run(again)
    said = capsys.readouterr().err
    assert "Finished step 1" in said
    assert "orders: 9 inserted, 0 updated, 0 deleted" in said
    assert run_json(again)["resumed_sources"]["staff"]["inserted"] == 3
    assert [(run.get("kind"), run.get("step")) for run in shop.pipeline().history(9)] == [
        ("Killed", None),
        (None, None),
    ]


@given(
    overhead=st.integers(200, 3000),
    width=st.integers(10, 400),
    nights=st.lists(st.tuples(st.sampled_from(["first", "difference", "full"]), st.integers(1, 50_000)), min_size=2),
    held=st.integers(1, 1_000_000),
)
def test_what_a_full_refresh_takes_is_told_by_what_refreshes_took(
    overhead: int, width: int, nights: list[tuple[str, int]], held: int
) -> None:
    """However small the first night was: a message has bytes of its own, and others for each row."""
    last: dict[str, Any] = {}
    seen: set[int] = set()
    for method, messages in nights:
        rows = held if method == "difference" else messages
        result = {"method": method, "messages": messages, "bytes": overhead + width * messages}
        last = {**result, **_against_everything(result, rows, json.loads(json.dumps(last)))}
        seen.add(messages)
        if method != "difference" or len(seen) > 1:
            assert last["full_bytes"] == pytest.approx(overhead + width * rows, abs=1)


def test_ctrl_c_while_a_copy_is_refreshed_stops_the_run_and_is_no_copy_that_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise Cancelled("stopped by the user")

    shop.write(FILE)
    night(shop, 1)
    with monkeypatch.context() as patched:
        patched.setattr(finish, "copy_of", stopped)
        with pytest.raises(Cancelled):
            shop.run()
    assert [run["kind"] for run in shop.pipeline().history(9)] == ["Cancelled"]
    again = shop.run()
    assert (again.resumed is not None, again.behind) == (True, {})


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
