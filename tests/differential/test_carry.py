"""Values of added columns that come along: a set over drift that is whole, and leads exactly to the new side."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from tests.cli.command import Command, command
from tests.values.properties import for_all

import strandline as sl
from strandline.errors import ChangesError, InputError, SchemaError

__all__ = ["command"]

OLD = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "t": [1, 2, 3], "gone": [1, 2, 3]})
NEW = pa.table(
    {"id": [2, 3, 4], "v": ["b", "C", "d"], "t": ["2", None, "4"], "tags": [None, ["x"], []], "note": ["n", None, "z"]}
)

_ids = st.lists(st.integers(0, 9), unique=True, max_size=8)
_value = st.sampled_from([None, "x", "y"])


@for_all(
    30,
    ids=st.tuples(_ids, _ids),
    cells=st.lists(_value, min_size=32, max_size=32),
    algorithm=st.sampled_from(["auto", "merge", "hash", "kb", "window"]),
    key=st.sampled_from(["id", None]),
)
def test_it_leads_from_the_old_side_to_the_new_one(
    ids: tuple[list[int], list[int]], cells: list[str | None], algorithm: str, key: str | None
) -> None:
    old = pa.table({"id": pa.array(ids[0], pa.int64()), "v": pa.array(cells[: len(ids[0])], pa.string())})
    new = pa.table(
        {
            "id": pa.array(ids[1], pa.int64()),
            "v": pa.array(cells[8:][: len(ids[1])], pa.string()),
            "note": pa.array(cells[16:][: len(ids[1])], pa.string()),
        }
    )
    way: dict[str, Any] = {"algorithm": algorithm} if key else {}
    found = sl.diff(old, new, key=key, carry=True, runner="inline", **way)
    assert not found.header.partial
    given = {tuple(row.values()) for row in found.apply(old).to_arrow().to_pylist()}
    assert given == {tuple(row.values()) for row in new.to_pylist()}


def test_added_retyped_and_removed_columns_are_told_and_the_set_is_whole(tmp_path: Path) -> None:
    found = sl.diff(OLD, NEW, key="id", carry=True, runner="inline")
    assert (found.header.added, found.header.removed, found.header.retyped) == (("tags", "note"), ("gone",), ("t",))
    assert found.apply(OLD).to_arrow().sort_by("id").to_pylist() == NEW.to_pylist()
    found.save(tmp_path / "changes")
    assert sl.Changes.load(tmp_path / "changes").apply(OLD).to_arrow().sort_by("id").to_pylist() == NEW.to_pylist()
    with pytest.raises(ChangesError, match="fill="):
        sl.diff(OLD, NEW, key="id", runner="inline").apply(OLD)


def test_files_and_tables_of_databases_are_carried_for_and_renames_are_followed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as base, base:
        base.execute("CREATE TABLE t (id integer PRIMARY KEY, old text)")
        base.execute("INSERT INTO t VALUES (2, 'b'), (3, 'C')")
    new = NEW.drop_columns(["t", "tags"])
    pq.write_table(new, tmp_path / "new.parquet")
    found = sl.diff(f"sqlite:///{tmp_path}/a.db#t", tmp_path / "new.parquet", carry=True, rename={"old": "v"})
    assert (found.summary().inserted, found.summary().updated, found.summary().columns) == (1, 1, {"v": 0, "note": 1})
    assert found.to_arrow().sort_by("id")["note"].to_pylist() == ["n", "z"]


def test_a_patch_adds_a_column_with_its_values(tmp_path: Path, command: Command) -> None:
    pq.write_table(OLD.select(["id", "v"]), tmp_path / "old.parquet")
    pq.write_table(NEW.select(["id", "v", "note"]), tmp_path / "new.parquet")
    ran = command("diff", "old.parquet", "new.parquet", "--key", "id", "--carry", "--out", "p.changes", "--json")
    assert (ran.code, ran.json["partial"], ran.json["schema"]["added"][0]["name"]) == (1, False, "note")
    assert command("apply", "p.changes", "old.parquet", "--out", "again.parquet").code == 0
    wanted = NEW.select(["id", "v", "note"])
    assert pq.read_table(tmp_path / "again.parquet").sort_by("id").equals(wanted)


def test_what_can_not_be_carried_is_refused(tmp_path: Path) -> None:
    sl.diff(None, OLD, key="id", save_state=str(tmp_path / "state"))
    with pytest.raises(InputError, match=r"a state has no rows.*leave out carry"):
        sl.diff(None, NEW, key="id", state=str(tmp_path / "state"), carry=True)
    with pytest.raises(SchemaError, match="note"):
        sl.diff(OLD, NEW, key="id", carry=True, strict_schema=True)


@pytest.mark.parametrize("rule", [{"note": "empty"}, {"string": "empty"}, {"note": "empty trim", "v": "trim"}])
def test_rules_hold_for_columns_that_are_carried(rule: dict[str, str]) -> None:
    old = pa.table({"id": [1, 2], "v": ["a", "b"]})
    new = old.append_column("note", pa.array(["", "x"]))
    found = sl.diff(old, new, key="id", carry=True, compare=rule, runner="inline")
    assert [(row["id"], row["_changed"]) for row in found.to_arrow().to_pylist()] == [(2, ["note"])]
    with pytest.raises(InputError, match="there is no column 'not' to compare by 'empty'"):
        sl.diff(old, new, key="id", carry=True, compare={"not": "empty"}, runner="inline")
