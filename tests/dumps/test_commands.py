"""`strandline dump`, `dumps` and `restore`, as a shell sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.tables.shop import numbered

import strandline as sl


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop"
    with sl.create(path) as store:
        store.create_table("orders", numbered(50), key="id")
    return str(path)


def test_the_whole_round(command: Command, shop: str, tmp_path: Path) -> None:
    backups, again = str(tmp_path / "backups"), str(tmp_path / "again")
    assert command("dump", shop, backups).code == 0
    with sl.open(shop) as store:
        store.table("orders").delete(where="id > 9")
    made = command("dump", shop, backups, "--level", "1", "--json").json
    assert (made["level"], made["pages"]) == (1, 1)
    drawn = command("dumps", backups)
    assert drawn.out.splitlines()[1].startswith("└─● ")
    assert "2 dumps" in drawn.err
    listed = command("dumps", backups, "--json").json["dumps"]
    assert [one["level"] for one in listed] == [0, 1]
    assert command("dumps", backups, "--verify").code == 0
    done = command("restore", backups, again, "--json").json
    assert done["chain"] == [one["id"] for one in listed]
    with sl.open(again) as store:
        assert store.table("orders").count() == 10
    assert command("restore", backups, shop, "--at", listed[0]["id"], "--table", "orders=before").code == 0
    with sl.open(shop) as store:
        assert store.table("before").count() == 50
    assert command("dumps", backups, "--synthesize").code == 0
    dry = command("dumps", backups, "--prune", "1 last")
    assert "Nothing was done" in dry.err
    assert len(command("dumps", backups, "--json").json["dumps"]) == 3
    gone = command("dumps", backups, "--prune", "1 last", "--confirm", "--json").json
    assert len(gone["removed"]) == 2
    assert [one["synthetic"] for one in command("dumps", backups, "--json").json["dumps"]] == [True]


def test_a_branch_comes_back_into_the_store(command: Command, shop: str, tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    command("dump", shop, backups)
    with sl.open(shop) as store:
        store.table("orders").delete(where="id > 9")
    ran = command("restore", backups, shop, "--branch", "monday")
    assert ran.code == 0
    assert "branch monday" in ran.err
    with sl.open(shop) as store:
        assert (store.table("orders").count(), store.version("monday").table("orders").count()) == (10, 50)
        assert store.check().ok
    for words in (
        ("restore", backups, shop, "--branch", "monday"),
        ("restore", backups, shop, "--branch", "x", "--table", "orders"),
        ("restore", backups, str(tmp_path / "nothing"), "--branch", "x"),
    ):
        assert command(*words).code == 2


def test_what_is_due_is_dumped_once(command: Command, shop: str, tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    assert command("dump", shop, backups, "--due", "--schedule", "yearly=0, monthly=1", "--json").json["level"] == 0
    assert command("dump", shop, backups, "--due", "--schedule", "yearly=0, monthly=1", "--json").json == {"due": None}
    assert "No dump is due" in command("dump", shop, backups, "--due", "--schedule", "yearly=0, monthly=1").err


def test_trouble_is_one_paragraph_and_one_code(command: Command, shop: str, tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    for words in (
        ("dump", shop, shop),
        ("dump", str(tmp_path / "nothing"), backups),
        ("dump", shop, backups, "--level", "11"),
        ("dumps", backups),
        ("restore", backups, str(tmp_path / "again")),
        ("dump", shop, backups, "--due", "--table", "orders"),
        ("dumps", backups, "--verify", "--sweep"),
    ):
        ran = command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("strandline: ")
    command("dump", shop, backups)
    ran = command("restore", backups, shop)
    assert ran.code == 2
    assert "a store already" in ran.err


def test_a_damaged_dump_ends_verifying_with_1(command: Command, shop: str, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    command("dump", shop, str(backups))
    pack = next(backups.glob("*/pack-*"))
    pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    ran = command("dumps", str(backups), "--verify")
    assert ran.code == 1
    assert "checksum of page" in ran.out
    report = command("dumps", str(backups), "--verify", "--json").json
    assert (report["ok"], report["whole"]) == (False, [])
