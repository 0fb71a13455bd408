"""`strandline run`, `plan` and `status`, as a shell sees them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.command import Command, bytes_below
from tests.pipeline.shop import ORDERS, Shop, orders

import strandline as sl
from strandline.errors import InUse
from strandline.pages import ProcessIdentity
from strandline.pipeline.pipeline import stop_on_signals, until_next, watch

WEIGHED = ORDERS.append(pa.field("weight", pa.int64()))
FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
[sources.orders.guards]
deleted = "50%"
[replicas.copy]
of = "orders"
to = "sqlite:///copy.db#orders"
[dumps.backups]
to = "backups"
"""


@pytest.fixture
def command(shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(shop.folder)
    monkeypatch.delenv("STRANDLINE_MASTER", raising=False)
    shop.write(FILE)
    shop.extract("orders.parquet", orders(1, 2, 3))
    return Command(capsys)


def test_a_plan_tells_what_a_run_does_and_does_nothing(command: Command, shop: Shop) -> None:
    before = bytes_below(shop.folder)
    planned = command("plan", "shop.toml", "--json").json
    assert bytes_below(shop.folder) == before
    assert (planned["step"], planned["snapshot"], planned["trouble"]) == (1, "shop-0001", False)
    assert (planned["sources"][0]["how"], planned["sources"][0]["rows"]) == ("load", 3)
    assert planned["dumps"] == {"backups": "level 0 is due"}
    ran = command("run", "shop.toml", "--json").json
    assert (ran["outcome"], ran["step"], ran["sources"]["orders"]["inserted"]) == ("step", 1, 3)
    told = command("plan", "shop.toml")
    assert told.code == 0
    assert told.out.startswith("Nothing new, no step:\n")
    assert "nothing: the same extract as in step 1" in told.out
    assert "Nothing was done." in told.err


def test_a_plan_says_what_would_stop_a_run(command: Command, shop: Shop) -> None:
    (shop.folder / "orders.parquet").unlink()
    told = command("plan", "shop.toml")
    assert told.code == 1
    assert "would stop the step" in told.out


VIEWS = """
[views.cheap]
sql = "select id from Priced where price < 10"
[views.priced]
sql = "select id, price from orders"
[views.broken]
sql = "select id, nothing from orders"
[replicas.cheap]
of = "cheap"
to = "sqlite:///copies.db#cheap"
[replicas.unset]
of = "orders"
to = "sqlite:///${NOT_SET}#unset"
"""


def test_views_are_defined_in_the_order_in_which_they_stand_on_each_other_and_a_plan_tries_them(
    command: Command, shop: Shop
) -> None:
    shop.write(FILE + VIEWS)
    planned = command("plan", "shop.toml", "--json")
    assert planned.code == 1
    assert list(planned.json["views"].items())[:2] == [("priced", "new"), ("cheap", "new")]
    assert "trouble: defining view 'broken': there is no column 'nothing'" in planned.json["views"]["broken"]
    assert "NOT_SET is not set" in planned.json["replicas"]["unset"]
    behind = command("run", "shop.toml", "--json").json["behind"]
    assert set(behind) == {"broken", "unset"}
    told = command("plan", "shop.toml")
    assert "view cheap: as it is" in told.out
    shop.write(FILE + VIEWS.replace("price < 10", "price < 1").partition("[views.broken]")[0])
    assert command("plan", "shop.toml", "--json").json["views"] == {"priced": "as it is", "cheap": "defined anew"}
    (shop.folder / "orders.parquet").unlink()
    assert "not looked at" in command("plan", "shop.toml", "--json").json["views"]["cheap"]


def test_views_and_copies_have_what_the_file_says_of_them(command: Command, shop: Shop) -> None:
    told = 'refresh_policy = "full"\ncomment = "Not dear."\nmaintain = "eager"\n'
    replica = '[replicas.cheap]\nof = "cheap"\nto = "sqlite:///copies.db#cheap"\n'
    view = '[views.cheap]\nsql = "select id from orders where price < 10"\n'
    shop.write(FILE + view + told + replica + 'target_lag = "10m"\n')
    assert command("run", "shop.toml").code == 0
    with sl.open(shop.folder / "shop.store") as store:
        (listed,) = store.views()
        assert (listed.refresh_policy, listed.comment, listed.maintain) == ("full", "Not dear.", "eager")
        assert store.copy("shop.cheap").record.target_lag == 600
        store.table("orders").update(set={"price": "price + 1"})
    assert command("plan", "shop.toml", "--json").json["views"] == {"cheap": "as it is"}
    command("run", "shop.toml")
    with sl.open(shop.folder / "shop.store") as store:
        assert store.copy("shop.cheap").record.last["method"] == "full"
    shop.write(FILE + view + 'stored = true\nmaintain = "deferred"\n' + replica)
    command("run", "shop.toml")
    with sl.open(shop.folder / "shop.store") as store:
        assert store.views()[0].stored
        assert store.view("cheap").lag.commits == 0
        assert store.view("cheap").verify()
    assert command("plan", "shop.toml", "--json").json["views"] == {"cheap": "as it is"}
    shop.write(FILE + view + replica)
    assert command("plan", "shop.toml", "--json").json["views"] == {"cheap": "defined anew"}
    command("run", "shop.toml")
    with sl.open(shop.folder / "shop.store") as store:
        assert (store.views()[0].refresh_policy, store.copy("shop.cheap").record.target_lag) == ("auto", None)
    shop.write(FILE + view + 'refresh_policy = "fulll"\n' + replica)
    assert "full" in command("plan", "shop.toml").err


def test_a_plan_tries_views_over_columns_that_come_and_over_other_relations(command: Command, shop: Shop) -> None:
    command("run", "shop.toml")
    with sl.open(shop.folder / "shop.store") as store:
        store.create_table("others", [{"k": 1, "state": "new"}], key="k")
        store.view("by_hand", "select k from others")
        store.table("orders").what_if("guess")
    shop.extract("orders.parquet", [{**row, "weight": 1} for row in orders(1, 2, 3)], WEIGHED)
    over = {
        "come": "select id, weight from orders",
        "beside": "select k from by_hand",
        "guessed": "select id from guess",
    }
    shop.write(FILE + "".join(f'[views.{name}]\nsql = "{sql}"\n' for name, sql in over.items()))
    assert command("plan", "shop.toml", "--json").json["views"] == dict.fromkeys(over, "new")
    assert command("run", "shop.toml", "--json").json["behind"] == {}


def test_a_guard_that_trips_exits_with_1_and_says_what_it_saw(command: Command, shop: Shop) -> None:
    assert command("run", "shop.toml").code == 0
    shop.extract("orders.parquet", orders(1))
    told = command("run", "shop.toml")
    assert told.code == 1
    assert "2 of 3 rows were deleted (66.7%; allowed are 50.0%)" in told.err
    assert command("run", "shop.toml", "--json").json["outcome"] == "stopped"
    runs = command("status", "shop.toml", "--json").json["runs"]
    assert ["step" in run for run in runs] == [True, False, False]


def test_a_copy_that_is_behind_exits_with_1_and_the_status_tells(command: Command, shop: Shop) -> None:
    command("run", "shop.toml")
    (shop.folder / "copy.db").write_bytes(b"this is no database")
    shop.extract("orders.parquet", orders(1, 2, 3, 4))
    told = command("run", "shop.toml")
    assert told.code == 1
    assert "Behind: copy." in told.err
    status = command("status", "shop.toml", "--json").json
    assert (status["replicas"][0]["position"], status["replicas"][0]["lag"]) == (1, 1)
    assert status["tables"][0]["rows"] == 4
    assert "copy" in command("status", "shop.toml").out


@pytest.mark.parametrize("name", ["run", "plan", "status"])
def test_a_mistake_in_the_file_is_told_with_its_line(command: Command, shop: Shop, name: str) -> None:
    shop.write(FILE.replace("key =", "kye ="))
    told = command(name, "shop.toml")
    assert told.code == 2
    assert "line 5" in told.err
    assert "Did you mean 'key'?" in told.err


def test_the_status_of_what_never_ran_says_what_to_do(command: Command) -> None:
    told = command("status", "shop.toml")
    assert told.code == 2
    assert "there is no store" in told.err


def test_a_second_run_is_refused_or_waits(command: Command, shop: Shop) -> None:
    work = shop.folder / "shop.work"
    work.mkdir()
    with (work / "lock").open("w") as held:
        held.write("4242")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = command("run", "shop.toml")
        assert refused.code == 2
        assert "process 4242 runs this pipeline" in refused.err
        with pytest.raises(InUse):
            shop.run()
        release = threading.Timer(0.3, lambda: fcntl.flock(held, fcntl.LOCK_UN))
        release.start()
        assert command("run", "shop.toml", "--wait").code == 0
        release.join()
    assert (work / "lock").exists()
    assert command("run", "shop.toml").code == 0


def test_a_run_on_another_machine_that_took_the_step_is_noticed_at_the_commit(shop: Shop) -> None:
    """Two work folders, one store: no lock is shared, and the journal's row decides."""
    shop.write(FILE)
    shop.extract("orders.parquet", orders(1, 2, 3))
    other = Shop(shop.folder)

    def meanwhile(point: str) -> None:
        if point == "guard" and "after guard" not in other.points:
            shop.write('work = "elsewhere"\n' + FILE)
            other.run()

    ran = shop.run(meanwhile)
    assert ran.step is None
    assert shop.snapshots() == ["shop-0001"]
    assert shop.rows() == orders(1, 2, 3)


def test_watching_runs_at_every_multiple_until_it_is_stopped() -> None:
    stop = threading.Event()
    runs: list[float] = []

    def once() -> None:
        runs.append(time.monotonic())
        if len(runs) == 3:
            stop.set()

    watch(once, 0.01, stop, time.time)
    assert len(runs) == 3
    assert until_next(3601.0, 1800.0) == 1799.0


def test_a_signal_ends_watching_after_the_run_under_way(command: Command, shop: Shop) -> None:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), 15)
        assert stop.wait(5)
    threading.Timer(1.5, lambda: os.kill(os.getpid(), 15)).start()
    watched = command("run", "shop.toml", "--watch", "--every", "1h")
    assert watched.code == 0
    assert "Step 1" in watched.err
    assert "Stopped watching." in watched.err
    assert Path(shop.folder / "shop.work" / "reports" / "latest.html").exists()


def test_a_guard_is_overruled_once_for_the_source_that_is_named(command: Command, shop: Shop) -> None:
    assert command("run", "shop.toml").code == 0
    shop.extract("orders.parquet", orders(1))
    assert "--accept orders" in command("run", "shop.toml").err
    told = command("run", "shop.toml", "--accept", "order")
    assert (told.code, "Did you mean 'orders'?" in told.err) == (2, True)
    assert command("run", "shop.toml", "--accept", "orders", "--watch").code == 2
    told = command("run", "shop.toml", "--accept", "orders")
    assert (told.code, "2 deleted" in told.err) == (0, True)
    shop.extract("orders.parquet", orders())
    assert command("run", "shop.toml").code == 1
    steps = command("status", "shop.toml", "--json").json["steps"]
    assert [step["sources"]["orders"].get("accepted") for step in steps] == [None, True]


def test_the_status_tells_of_runs_that_were_stopped_killed_and_are_under_way(command: Command, shop: Shop) -> None:
    assert command("run", "shop.toml").code == 0
    shop.extract("orders.parquet", orders(1))
    command("run", "shop.toml")
    running = Path("shop.work/running.json")
    running.write_text(json.dumps({"started": shop.now, "process": asdict(killed_process())}))
    lines = command("status", "shop.toml").out.splitlines()[1:4]
    assert [line.split("\t")[2].partition(":")[0] for line in lines] == ["step 1", "stopped by a guard", "killed"]
    running.write_text(json.dumps({"started": shop.now, "process": asdict(this_process())}))
    assert command("status", "shop.toml").out.splitlines()[3].endswith("under way")
    running.unlink()


def this_process() -> ProcessIdentity:
    found = ProcessIdentity.of_this_process()
    assert found is not None
    return found


def killed_process() -> ProcessIdentity:
    """A process of this machine that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return replace(this_process(), number=ended.pid)
