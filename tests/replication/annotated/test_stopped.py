"""Refreshes stopped at every step, on either side, then repeated: the copy is never wrong, and ends equal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.annotated.orders import INSERT, orders, query, rows_at
from tests.replication.servers import Postgres

from strandline.engine import Attempt, Kernel, Result, WorkItem, kernel
from strandline.relations.databases.database import Database
from strandline.replication.annotated_base import Base
from strandline.replication.copy_state import CopyState
from strandline.replication.message import Message
from strandline.replication.senders.annotated import delivery
from strandline.replication.targets.parquet_folder import ParquetFolder
from strandline.replication.targets.sql import SqlTarget

PAIRS = {
    ("sqlite", "sqlite"): ("sqlite",),
    ("sqlite", "parquet"): ("parquet",),
    ("sqlite", "duckdb"): ("duckdb",),
    ("sqlite", "postgres"): ("postgres",),
    ("postgres", "sqlite"): ("postgres",),
}
"""From one kind to another, and whose steps are counted: together every step of every kind, on either side."""


class Stopped(BaseException):
    """What a test raises where a process would end."""


class Steps:
    """Lets so many steps happen, then stops; counts them."""

    def __init__(self, allowed: int, kinds: Sequence[str] = ()) -> None:
        self.left = allowed
        self.kinds = kinds
        self.stopped = False

    def __call__(self, kind: str, step: str) -> None:
        if self.stopped or (self.kinds and kind not in self.kinds):
            return  # the clean-up of a stopped process is the database's own
        self.left -= 1
        if self.left < 0:
            self.stopped = True
            raise Stopped(step)


@dataclass(frozen=True)
class Pair:
    """A base, the address of its copy, and the kinds whose steps are counted."""

    source: Source
    url: str
    counted: Sequence[str]


@pytest.fixture(params=PAIRS, ids=" to ".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    base_kind, target_kind = request.param
    server = request.getfixturevalue("postgres") if "postgres" in request.param else None
    source = (
        request.getfixturevalue("sqlite") if server is None or base_kind == "sqlite" else of_postgres(server, tmp_path)
    )
    url = (
        server.table("copy") if server is not None and target_kind == "postgres" else source.target(target_kind, "copy")
    )
    return Pair(source, url, PAIRS[request.param])


def stopping(monkeypatch: pytest.MonkeyPatch, allowed: int, kinds: Sequence[str] = ()) -> Steps:
    steps = Steps(allowed, kinds)
    monkeypatch.setattr(Database, "watch", lambda self, step: steps(self.dialect, step))
    monkeypatch.setattr(ParquetFolder, "watch", lambda self, step: steps("parquet", step))
    return steps


def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


def test_a_refresh_stopped_at_every_step_leaves_the_old_or_the_new_content(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = pair.source, pair.url
    copy = orders(source, 12).replicate(url, where="price < 5")
    allowed, stopped, after = 0, True, rows_at_any(url)
    while stopped:
        before = after
        change(source, allowed)
        steps = stopping(monkeypatch, allowed, pair.counted)
        try:
            copy.refresh("differential")
        except Stopped:
            pass
        finally:
            at_rest(monkeypatch)
        after = query(source, "price < 5")
        if not url.startswith("parquet"):  # a folder is whole again when the next writer opens it
            assert rows_at_any(url) in (before, after)
        copy.refresh("differential")
        assert rows_at_any(url) == after
        stopped, allowed = steps.stopped, allowed + 1
    assert copy.verify().equal
    assert allowed > 5


def rows_at_any(url: str) -> list[tuple[Any, ...]]:
    if not url.startswith("postgresql"):
        return rows_at(url)
    from strandline.relations.databases.address import parse_address
    from strandline.relations.databases.database import connect
    from strandline.values import quoted

    address = parse_address(url)
    with connect(address) as database:
        return sorted(database.execute(f"SELECT * FROM {quoted(address.schema, address.table)}"))


def change(source: Source, seed: int) -> None:
    key = seed % 11 + 1
    source.run(f"DELETE FROM orders WHERE id = {key}")
    source.run(f"{INSERT}({100 + seed}, 'new', {seed % 7})")
    source.run(f"UPDATE orders SET price = {seed % 9} WHERE id = {key % 11 + 1}")
    if seed % 2:
        source.run(f"{INSERT}({key}, 'again', {seed % 6})")


def test_a_first_copy_stopped_at_every_step_goes_on_when_asked_again(
    sqlite: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = orders(sqlite, 11)
    allowed, stopped = 0, True
    while stopped:
        name = f"copy{allowed}"
        url = sqlite.target("sqlite", name)
        steps = stopping(monkeypatch, allowed)
        pieces_of(monkeypatch, 4)
        try:
            found.replicate(url)
        except Stopped:
            sqlite.run(f"UPDATE orders SET price = {allowed % 10} WHERE id = {allowed % 11 + 1}")
            sqlite.run(f"DELETE FROM orders WHERE id = {allowed % 9 + 1}")
        finally:
            at_rest(monkeypatch)
        pieces_of(monkeypatch, 4)
        copy = found.replicate(url)
        copy.refresh()
        assert rows_at(url) == query(sqlite, "1 = 1")
        copy.drop()
        stopped, allowed = steps.stopped, allowed + 1
    assert allowed > 60


def pieces_of(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(delivery, "PIECE_ROWS", rows)


def test_what_a_lost_refresh_assumed_is_not_believed(sqlite: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix-up marks a row that leaves as not held; if the message is lost, the copy still holds it."""
    url = sqlite.target("sqlite", "copy")
    copy = orders(sqlite, 12).replicate(url, where="price < 5")
    sqlite.run("UPDATE orders SET price = 9 WHERE id = 3")
    with monkeypatch.context() as patch:
        patch.setattr("strandline.replication.targets.sql.SqlTarget.apply", _stop)
        with pytest.raises(Stopped):
            copy.refresh("differential")
    assert rows_at(url) != query(sqlite, "price < 5")
    sqlite.run("UPDATE orders SET name = 'again' WHERE id = 3")
    copy.refresh("differential")
    assert rows_at(url) == query(sqlite, "price < 5")


def _stop(*_: object) -> None:
    raise Stopped


def test_a_first_copy_is_read_side_by_side_and_does_not_start_over(
    sqlite: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_and_go_on(sqlite, "inline", monkeypatch)


@pytest.mark.usefixtures("spark")
def test_a_first_copy_is_read_side_by_side_on_spark(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_and_go_on(of_postgres(postgres, tmp_path), "spark", monkeypatch)


def stop_and_go_on(source: Source, runner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = orders(source, 40)
    pieces_of(monkeypatch, 4)
    url = source.target("duckdb", "copy")
    taken: list[int] = []
    read: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(SqlTarget, "apply", stopping_after(SqlTarget.apply, 4, taken))
        with pytest.raises(Stopped):
            found.replicate(url, where="price < 8", runner=runner)
    source.run("UPDATE orders SET price = 1 WHERE id IN (2, 39)")
    source.run("DELETE FROM orders WHERE id IN (3, 38)")
    monkeypatch.setattr(
        delivery, "read_range", counting(delivery.read_range, read) if runner == "inline" else delivery.read_range
    )
    copy = found.replicate(url, where="price < 8", runner=runner)
    assert len(taken) == 4
    assert runner == "spark" or len(read) == 11 - 4  # what the copy had taken was not read again
    assert rows_at(url) == query(source, "price < 8")
    assert copy.status()["method"] == "first"


def stopping_after(apply: Any, messages: int, taken: list[int]) -> Any:
    def stopped(self: Any, message: Message) -> CopyState:
        if len(taken) == messages:
            raise Stopped
        taken.append(message.envelope.number)
        found: CopyState = apply(self, message)
        return found

    return stopped


def counting(kernel_: Kernel, read: list[int]) -> Kernel:
    def counted(item: WorkItem, attempt: Attempt) -> Result:
        read.append(attempt.item)
        return kernel_(item, attempt)

    return kernel(counted)


KILLED = """
import os, signal, sys
from strandline.replication.annotated_base import base
from strandline.relations.databases.database import Database
left = [int(sys.argv[3])]
def watch(self, step):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
Database.watch = watch
base(sys.argv[1], "orders").copy("copy", sys.argv[2]).refresh("differential")
"""


def test_a_killed_process_leaves_nothing_half_done(sqlite: Source) -> None:
    found: Base = orders(sqlite, 12)
    url = sqlite.target("sqlite", "copy")
    copy = found.replicate(url, where="price < 5")
    for allowed in (18, 36):
        change(sqlite, allowed)
        command = [sys.executable, "-c", KILLED, sqlite.url, url, str(allowed)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        copy.refresh("differential")
        assert rows_at(url) == query(sqlite, "price < 5")
