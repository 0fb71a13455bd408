"""The history of a row is what its snapshots hold, one after the other; descriptions and changes of whole stores."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.cli.command import Command
from tests.values.properties import for_all

import strandline as sl
from strandline.errors import KeysError, NotFound

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
States = list[dict[int, int | None]]


def fill(store: sl.Store, states: States) -> None:
    """A snapshot of each state, the last of which stays."""
    store.create_table("t", SCHEMA.empty_table(), key="id")
    for number, rows in enumerate(states):
        store.table("t").overwrite(pa.Table.from_pylist([{"id": i, "v": v} for i, v in rows.items()], SCHEMA))
        store.snapshot(f"s{number}")


def expected(states: States, key: int) -> list[tuple[str, str, int | None]]:
    found, before = [], None
    for number, rows in enumerate(states):
        now = (rows[key],) if key in rows else None
        if now != before:
            kind = "delete" if now is None else "insert" if before is None else "update"
            found.append((f"s{number}", kind, None if now is None else now[0]))
        before = now
    return found


_STATES = st.lists(
    st.dictionaries(st.integers(1, 3), st.sampled_from([None, 1, 2]), max_size=3), min_size=1, max_size=5
)


@for_all(8, states=_STATES)
def test_the_history_of_each_row_is_that_of_its_snapshots(
    tmp_path_factory: pytest.TempPathFactory, states: States
) -> None:
    with sl.create(tmp_path_factory.mktemp("history") / "shop") as store:
        fill(store, states)
        for key in (1, 2, 3):
            rows = store.table("t").history(key).to_pylist()
            assert [(row["_state"], row["_change"], row["v"]) for row in rows] == expected(states, key)


def test_what_no_snapshot_holds_is_now(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1}])
        store.table("t").update(where="id = 1", set={"v": "v + 1"})
        rows = store.table("t").history(1).to_pylist()
        assert [(row["_state"], row["v"]) for row in rows] == [("s0", 1), ("now", 2)]
        assert rows[0]["_commit"] < rows[1]["_commit"]


def test_columns_that_came_later_are_null_before_and_partial_snapshots_tell_nothing(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1}])
        store.create_table("other", SCHEMA.empty_table(), key="id")
        store.snapshot("others", tables=["other"])
        with store.transaction() as tx:
            tx.add_column("t", "note", pa.string(), default="x")
        rows = store.table("t").history(1).to_pylist()
        assert [(row["_state"], row["_change"], row["note"]) for row in rows] == [
            ("s0", "insert", None),
            ("now", "update", "x"),
        ]


def test_a_key_that_does_not_fit_and_a_table_without_one_are_refused(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1}])
        store.create_table("heap", SCHEMA.empty_table())
        with pytest.raises(KeysError, match="the key is id, and 2 values are given"):
            store.table("t").history(1, 2)
        with pytest.raises(KeysError, match="the table has no key"):
            store.table("heap").history(1)
        with pytest.raises(NotFound):
            store.table("gone").history(1)


def test_a_store_tells_what_changed_in_all_of_its_tables(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1, 2: 2}])
        store.create_table("old", SCHEMA.empty_table(), key="id")
        store.snapshot("monday")
        store.drop_table("old")
        store.create_table("new", SCHEMA.empty_table(), key="id")
        store.table("t").delete(where="id = 1")
        found = store.all_changes(since="monday")
        assert (found.created, found.dropped, list(found.tables)) == (("new",), ("old",), ["t"])
        assert found.tables["t"].summary().deleted == 1
        store.snapshot("only t", tables=["t"])
        found = store.all_changes(since="only t")
        assert (found.created, found.dropped, list(found.tables)) == ((), (), ["t"])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    with sl.create("shop") as store:
        fill(store, [{1: 1, 2: 2}, {1: 5, 2: 2}])
        store.create_table("heap", pa.table({"at": [1.5]}))
    return Command(capsys)


def test_tables_and_what_they_are(shop: Command) -> None:
    lines = [line.split("\t") for line in shop("tables", "shop").out.splitlines()]
    assert [line[:3] for line in lines] == [["table", "key", "rows"], ["heap", "", "1"], ["t", "id", "2"]]
    assert [row["table"] for row in shop("tables", "shop", "--at", "s0", "--json").json["tables"]] == ["t"]
    ran = shop("describe", "shop", "t")
    assert ran.out.splitlines()[1:] == ["id\tint64\tnot null\tkey", "v\tint64\t\t"]
    assert "2 rows" in ran.err
    assert "Snapshots: s0, s1." in ran.err
    found = shop("describe", "shop", "t", "--json").json
    assert (found["key"], found["columns"][1]) == (["id"], {"name": "v", "type": "int64", "nullable": True})
    assert shop("describe", "shop", "x").code == 2


def test_the_history_of_a_row_on_the_command_line(shop: Command) -> None:
    ran = shop("history", "shop", "t", "1")
    assert [line.split("\t")[0::3] for line in ran.out.splitlines()[1:]] == [["s0", "insert"], ["s1", "update"]]
    assert [one["v"] for one in shop("history", "shop", "t", "1", "--json").json["states"]] == [1, 5]
    ran = shop("history", "shop", "t", "77")
    assert (ran.code, ran.err) == (1, "No snapshot of shop has such a row, and there is none now.\n")
    assert "'x' is no value of id, which is int64" in shop("history", "shop", "t", "x").err
    assert "the key is id, and 2 values" in shop("history", "shop", "t", "1", "2").err


def test_what_changed_in_all_tables_on_the_command_line(shop: Command) -> None:
    ran = shop("changes", "shop", "--since", "s0")
    assert (ran.code, ran.out.splitlines()[1:]) == (1, ["heap\t\t\t\tcreated", "t\t0\t1\t0\t"])
    ran = shop("changes", "shop", "--since", "s0", "--json")
    assert (ran.json["tables"]["t"]["updated"], ran.json["created"]) == (1, ["heap"])
    ran = shop("changes", "shop", "--since", "s0", "--until", "s0")
    assert (ran.code, ran.err) == (0, "Nothing changed.\n")
    assert "Say which TABLE" in shop("changes", "shop", "--since", "s0", "--out", "x.csv").err
