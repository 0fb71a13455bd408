"""`strandline view`, and what `replicate`, `refresh` and `replicas` do for views."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.command import Command

from strandline.store import create, open
from strandline.views.change_feed import ChangeFeed

CHEAP = "select id, price from orders where price < 10"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop"
    with create(path) as store:
        store.create_table("orders", pa.table({"id": [1, 2, 3], "price": [1.0, 20.0, 3.0]}), key="id")
    return str(path)


def test_a_view_is_made_copied_refreshed_and_dropped(command: Command, shop: str, tmp_path: Path) -> None:
    made = command("view", "create", shop, "cheap", CHEAP, "--json")
    assert made.json == {
        "name": "cheap",
        "form": "keyed",
        "key": ["id"],
        "columns": ["id", "price"],
        "regenerated": "",
        "computed_whole": [],
    }
    target = f"sqlite:///{tmp_path}/c.db#cheap"
    assert command("replicate", shop, "cheap", target, "--json").json["rows"] == 2
    with open(shop) as store:
        store.table("orders").update(where="id = 2", set={"price": "2"})
    assert command("replicas", shop, "--json").json["replicas"][0]["lag"] > 0
    refreshed = command("refresh", shop, "cheap", "--verify", "--json").json["copies"]["cheap"]
    assert (refreshed["method"], refreshed["messages"], refreshed["equal"]) == ("difference", 1, True)
    assert refreshed["verification"]["rows"] == 3
    assert "cheap: verified, 3 rows." in command("refresh", shop, "cheap", "--verify").err
    again = command("refresh", shop, "--all", "--watch", "0s", "--times", "2")
    assert again.err.count("nothing changed") == 2
    (listed,) = command("replicas", shop, "--json").json["replicas"]
    assert (listed["lag"], listed["keep"]) == (0, 30 * 86400)
    assert listed["refreshed"] > "2020"
    assert command("view", "drop", shop, "cheap").code == 2
    with open(shop) as store:
        store.copy("cheap").drop()
    assert command("view", "drop", shop, "cheap", "--json").json == {"dropped": "cheap"}
    assert command("view", "list", shop, "--json").json == {"views": []}


def test_what_differs_in_a_copy_is_said(command: Command, shop: str, tmp_path: Path) -> None:
    command("view", "create", shop, "cheap", CHEAP)
    command("replicate", shop, "cheap", f"sqlite:///{tmp_path}/c.db#cheap")
    with closing(sqlite3.connect(tmp_path / "c.db")) as copy:
        copy.execute("UPDATE cheap SET price = 7 WHERE id = (SELECT min(id) FROM cheap)")
        copy.execute("DELETE FROM cheap WHERE id = (SELECT max(id) FROM cheap)")
        copy.commit()
    found = command("refresh", shop, "cheap", "--verify", "--quiet")
    assert (found.code, found.err) == (1, "cheap: of 2 rows 1 missing, 1 different. Mend it: --repair.\n")
    mended = command("refresh", shop, "cheap", "--repair", "--verify")
    assert (mended.code, mended.err.splitlines()[-1]) == (0, "cheap: verified, 2 rows.")


def test_a_stored_view_is_made_read_and_refreshed(command: Command, shop: str) -> None:
    made = command("view", "create", shop, "cheap", CHEAP, "--stored", "--maintain", "deferred", "--target-lag", "1h")
    assert "Stored with 2 rows; refresh brings them up to date" in made.err
    counts = "select count(*) as n, sum(price) as s from orders"
    assert command("view", "create", shop, "sums", counts, "--stored", "--json").json["rows"] == 1
    with open(shop) as store:
        store.table("orders").update(where="id = 2", set={"price": "2"})
    asked = command("query", shop, "select count(*) as n from cheap", "--json")
    assert asked.json["rows"] == [{"n": 2}]
    assert "cheap is as of commit" in asked.err
    assert command("query", shop, "select s from sums", "--json").json["rows"] == [{"s": 6.0}]
    listed = command("view", "list", shop, "--json").json["views"]
    assert [(one["name"], one["stored"], one["behind"] > 0) for one in listed] == [
        ("cheap", True, True),
        ("sums", True, False),
    ]
    assert command("refresh", shop, "--due", "--json").json == {"copies": {}}
    assert "difference, 1 rows" in command("refresh", shop, "cheap", "--explain").out
    done = command("refresh", shop, "--all", "--verify", "--json").json["copies"]
    assert {name: (one["method"], one["equal"]) for name, one in done.items()} == {
        "cheap": ("difference", True),
        "sums": ("nothing", True),
    }
    assert "as of" not in command("query", shop, "select count(*) as n from cheap").err
    assert command("drop", shop, "table", "sums", "--confirm").code == 2
    assert command("view", "drop", shop, "sums").code == 0


def test_a_copy_and_a_stream_can_be_forgotten(command: Command, shop: str, tmp_path: Path) -> None:
    target = tmp_path / "c.db"
    assert command("replicate", shop, "orders", f"sqlite:///{target}#cheap", "--keep", "12h").code == 0
    with open(shop) as store:
        following = ChangeFeed(store, "orders")
        stream = following.latest(following.beginning()).follower
    known = command("forget", shop, "--json").json["known"]
    assert [(one["name"], one["kind"]) for one in known] == [("cheap", "copy"), (stream, "stream")]
    assert command("forget", shop, stream, "--json").json["forgotten"][0]["kind"] == "stream"
    assert "where it stands is forgotten" in command("forget", shop, "cheap", "--position").err
    refreshed = command("refresh", shop, "cheap", "--json").json["copies"]["cheap"]
    assert (refreshed["method"], refreshed["messages"]) == ("repair", 0)
    target.unlink()
    assert "the copy is forgotten" in command("forget", shop, "cheap", "--drop").err
    with open(shop) as store:
        assert store.pages.snapshots() == []
    assert not target.exists()
    wrong = command("forget", shop, "cheap")
    assert wrong.code == 2
    assert "There are: none" in wrong.err
    assert command("forget", shop, "cheap", "--drop", "--position").code == 2
    assert command("replicate", "sqlite:///x.db#t", "duckdb:///y.duckdb#t", "--keep", "1d").code == 2
    assert command("replicate", shop, "orders", f"sqlite:///{target}#c", "--keep", "soon").code == 2


def test_why_tells_the_proof_and_exits_with_1(command: Command, shop: str) -> None:
    command("view", "create", shop, "cheap", CHEAP)
    told = command("view", "why", shop, "cheap", '{"id": 9, "price": 99.5}', "--json")
    assert told.code == 1
    assert not told.json["relevant"]
    assert "99.5" in told.json["proof"][0]
    assert command("view", "why", shop, "cheap", '{"id": 9, "price": 1}').code == 0
    assert "cheap" in command("view", "list", shop).out


def test_mistakes_are_told_with_what_to_do(command: Command, shop: str, tmp_path: Path) -> None:
    refused = command("view", "create", shop, "n", "select first(id) as n from orders")
    assert refused.code == 2
    assert "--no-strict" in refused.err
    accepted = command("view", "create", shop, "n", "select first(id) as n from orders", "--no-strict")
    assert "computed anew each time" in accepted.err
    assert "Did you mean 'price'" in command("view", "create", shop, "p", "select prize from orders").err
    assert "no JSON" in command("view", "why", shop, "n", "{").err
    assert "STORE VIEW TARGET" in command("replicate", shop).err
    assert "no view, table or what-if 'x'" in command("replicate", shop, "x", f"parquet:///{tmp_path}/p").err
    assert "no copy 'x'" in command("refresh", shop, "x").err
    assert "is no length of time" in command("refresh", shop, "--all", "--watch", "soon").err
    assert command("refresh", shop).code == 2


def test_what_each_change_computes_again_as_a_whole_is_told(
    command: Command, shop: str, caplog: pytest.LogCaptureFixture
) -> None:
    ranked = "select id, row_number() over (order by price, id) as n from orders"
    for _ in range(2):  # once: the second time nothing is new
        assert command("view", "create", shop, "ranked", ranked).code == 0
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("view ranked: each change computes this again over all rows: WINDOW ROW_NUMBER() OVER")
    assert command("view", "create", shop, "cheap", CHEAP, "--json").json["computed_whole"] == []


def test_copies_that_are_due_are_refreshed(command: Command, shop: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/c.db"
    command("view", "create", shop, "cheap", CHEAP, "--refresh-policy", "incremental_strict", "--comment", "not dear")
    (listed,) = command("view", "list", shop, "--json").json["views"]
    assert (listed["refresh_policy"], listed["comment"]) == ("incremental_strict", "not dear")
    assert command("replicate", shop, "cheap", f"{target}#cheap", "--target-lag", "1h", "--json").json["behind"] == 0.0
    command("replicate", shop, "orders", f"{target}#all")
    with open(shop) as store:
        store.table("orders").update(where="id = 2", set={"price": "2"})
    assert command("refresh", shop, "--due", "--json").json == {"copies": {}}
    assert "No copy is behind by more than its target lag" in command("refresh", shop, "--due").err
    soon = command("refresh", shop, "--due", "--watch", "2h", "--times", "1", "--json")
    assert list(soon.json["copies"]) == ["cheap"]
    assert command("replicate", shop, "cheap", f"{target}#cheap", "--target-lag", "none").code == 0
    replicas = {one["name"]: one for one in command("replicas", shop, "--json").json["replicas"]}
    assert (replicas["cheap"]["target_lag"], replicas["cheap"]["lag"]) == (None, 0)
    assert replicas["all"]["behind"] > 0.0
    assert "target_lag" in command("replicas", shop).out
    command("forget", shop, "cheap", "--position")
    failed = command("refresh", shop, "--all", "--watch", "0s", "--times", "2")
    assert failed.code == 2
    assert failed.err.count("no difference is known") == 3
    assert "all: difference" in failed.err
    assert command("refresh", shop, "cheap", "--method", "repair").code == 0
    assert "policy incremental_strict" in command("refresh", shop, "cheap", "--explain").out
    assert "target lag" in command("refresh", "sqlite:///x.db#t", "--due").err
    assert "--all or --due" in command("refresh", shop, "--all", "--due").err


def test_a_table_goes_with_its_views_by_cascade(command: Command, shop: str, tmp_path: Path) -> None:
    command("view", "create", shop, "cheap", CHEAP)
    command("view", "create", shop, "cheaper", "select id from cheap where price < 5")
    command("replicate", shop, "cheaper", f"sqlite:///{tmp_path}/c.db#copy")
    refused = command("drop", shop, "table", "orders", "--confirm")
    assert (refused.code, "view 'cheap'" in refused.err, "too: cheaper" in refused.err) == (2, True, True)
    would = command("drop", shop, "table", "orders", "--cascade", "--json").json
    assert (would["dropped"], would["views"], would["copies"]) == (False, ["cheap", "cheaper"], ["copy"])
    assert "--cascade" in command("view", "drop", shop, "cheap").err
    gone = command("view", "drop", shop, "cheaper", "--cascade")
    assert "cheaper is dropped; the copies copy are forgotten" in gone.err
    assert "so are the views cheap" in command("drop", shop, "table", "orders", "--cascade", "--confirm").err
    assert command("view", "list", shop, "--json").json == {"views": []}
    assert "for tables" in command("drop", shop, "snapshot", "s", "--cascade").err


def test_the_views_and_copies_of_a_branch_are_its_own(command: Command, shop: str, tmp_path: Path) -> None:
    command("branch", shop, "idea")
    on, target = ("--version", "idea"), f"sqlite:///{tmp_path}/c.db#cheap"
    assert command("view", "create", shop, "cheap", CHEAP, *on).code == 0
    assert command("replicate", shop, "cheap", target, *on, "--json").json["rows"] == 2
    with open(shop) as store:
        store.version("idea").table("orders").update(where="id = 2", set={"price": "2"})
    assert command("refresh", shop, "--all", *on, "--json").json["copies"]["cheap"]["messages"] == 1
    assert [one["name"] for one in command("replicas", shop, *on, "--json").json["replicas"]] == ["cheap"]
    assert command("view", "why", shop, "cheap", '{"id": 9, "price": 1}', *on).out.startswith("potentially relevant")
    assert "orders" in command("view", "explain", shop, "cheap", *on).out
    assert command("view", "list", shop, "--json").json == {"views": []}
    assert command("replicas", shop, "--json").json == {"replicas": []}
    assert "no view 'cheap'" in command("view", "drop", shop, "cheap").err
    assert command("view", "drop", shop, "cheap", "--cascade", *on).code == 0
    for words in (("replicas",), ("refresh", "--all"), ("replicate", "duckdb:///d.duckdb#t")):
        refused = command(words[0], "sqlite:///x.db#t", *words[1:], *on)
        assert (refused.code, "a database has no branches" in refused.err) == (2, True)


def test_a_way_to_refresh_is_not_asked_of_a_copy_that_has_its_views_policy(command: Command, shop: str) -> None:
    refused = command("replicate", shop, "orders", "sqlite:///c.db#t", "--method", "full")
    assert (refused.code, "--refresh-policy" in refused.err) == (2, True)
