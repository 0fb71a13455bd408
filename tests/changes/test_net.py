"""A change set proves that it is net when it is made, whatever made it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.internal_names import SOURCE
from tests.values.properties import for_all

import strandline as sl
from strandline.changes import Changes, PartFile, StoredChanges, write_changes, write_part
from strandline.changes.shape import SHORT_RUN, finish, in_order, keyed_header
from strandline.changes.table_difference import difference
from strandline.differential import window_raw
from strandline.errors import ChangesError, KeysError
from strandline.values import HashWriter, key_hashes, read_hashes
from strandline.values.hash_runs import Hashes, repeated_hashes

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def table(keys: list[int], values: list[int] | None = None) -> pa.Table:
    return pa.table([pa.array(keys, pa.int64()), pa.array(values or keys, pa.int64())], schema=SCHEMA)


def test_rows_that_change_a_key_twice_are_no_change_set() -> None:
    changes = difference(table([1, 2]), table([2, 3]), ["k"])
    twice = pa.concat_tables([changes.rows, changes.rows.slice(1)])
    with pytest.raises(ChangesError, match="changes keys more than once"):
        finish(changes.header, twice)
    counted = difference(table([1, 2]), table([2, 3]))
    with pytest.raises(ChangesError, match="counts rows more than once"):
        finish(counted.header, pa.concat_tables([counted.rows, counted.rows]))


@pytest.mark.parametrize("key", [["k"], None])
@pytest.mark.parametrize("hashed", [True, False])
def test_parts_that_change_a_key_twice_are_no_change_set(key: list[str] | None, hashed: bool, tmp_path: Path) -> None:
    sets = [difference(table([1]), table([1, 2]), key), difference(table([1]), table([1, 3, 2]), key)]
    parts = []
    for number, each in enumerate(sets):
        path = str(tmp_path / f"{number}.parquet")
        part = write_changes(each, path) if hashed else PartFile(path, len(each), write_part(each.rows, path))
        assert part is not None
        parts.append(part)
    with pytest.raises(ChangesError, match=r"more than once: \(k=2"):
        StoredChanges(sets[0].header, tuple(parts))
    assert len(Changes(StoredChanges(sets[0].header, tuple(parts[:1])))) == 1


def test_a_saved_set_that_is_not_net_is_not_loaded(tmp_path: Path) -> None:
    one = difference(table([1]), table([1, 2]), ["k"])
    path = str(tmp_path / "0.parquet")
    part = PartFile(path, 2, write_part(pa.concat_tables([one.rows, one.rows]), path))
    Changes(StoredChanges(one.header, (part,), proved=True)).save(tmp_path / "raw.changes")
    with pytest.raises(ChangesError, match="changes keys more than once"):
        Changes.load(tmp_path / "raw.changes")


def test_only_the_package_of_change_sets_makes_them() -> None:
    """Others go through `finish` and the verbs; what reports and commands show are rows of a set that is there."""
    makers = []
    for path in SOURCE.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(getattr(call.func, "id", "") == "ChangeSet" for call in calls):
            makers.append(path.relative_to(SOURCE).parts[0])
    assert set(makers) <= {"changes", "report", "cli"}


keys = st.lists(st.integers(0, 12), max_size=14)
ALGORITHMS = ("merge", "hash", "window")


@for_all(60, old=keys, new=keys, algorithm=st.sampled_from(ALGORITHMS), aging=st.sampled_from(["16", "64", "64MB"]))
def test_duplicates_are_refused_by_every_algorithm(old: list[int], new: list[int], algorithm: str, aging: str) -> None:
    sides = [table(side, [3 * key + place % 2 for place, key in enumerate(side)]) for side in (old, new)]

    def changes() -> sl.Changes:
        return sl.diff(sides[0], sides[1], key="k", algorithm=algorithm, runner="inline", aging=aging, block="16")

    if max((*Counter(old).values(), *Counter(new).values()), default=0) > 1:
        with pytest.raises(KeysError, match="holds keys more than once"):
            changes()
        return
    before, after = (dict(zip(*side.to_pydict().values(), strict=True)) for side in sides)
    expected = {
        (key, before.get(key), after.get(key)) for key in {*before, *after} if before.get(key) != after.get(key)
    }
    rows = changes().to_arrow().to_pylist()
    assert {(row["k"], (row["_before"] or {}).get("v"), row["v"]) for row in rows} == expected


@for_all(60, old=st.sets(st.integers(0, 40)), new=st.permutations(range(0, 40, 2)), aging=st.sampled_from(["16", "96"]))
def test_the_windows_own_messages_lead_to_the_new_snapshot_in_their_order(
    old: set[int], new: list[int], aging: str
) -> None:
    """The paper: useless insert-delete pairs compromise correctness, so deletes are sent first."""
    messages = window_raw(table(sorted(old)), table(new, [-key for key in new]), "k", aging=aging, block="16").rows
    rows: dict[int, Any] = {key: key for key in old}
    for message in messages.to_pylist():
        if message["_change"] == "delete":
            del rows[message["k"]]
        else:
            assert (message["_change"] == "insert") != (message["k"] in rows)
            rows[message["k"]] = message["v"]
    assert rows == {key: -key for key in new}


numbers = st.lists(st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), max_size=30)


@for_all(60, runs=st.lists(numbers, max_size=5), room=st.integers(1, 8), text=st.booleans())
def test_hashes_tell_which_keys_are_there_twice(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[int | None]], room: int, text: bool
) -> None:
    folder = tmp_path_factory.mktemp("hashes")

    def hashes(values: list[int | None]) -> Hashes:
        texts = pa.array([None if value is None else str(value) for value in values], pa.string())
        return key_hashes(pa.table({"k": texts if text else pa.array(values, pa.int64())}))

    for number, values in enumerate(runs):
        writer = HashWriter(str(folder / str(number)), run=room)
        for place in range(0, len(values), 3):
            writer.write(hashes(values[place : place + 3]))
        writer.close()
    written = [run for number in range(len(runs)) for run in read_hashes(str(folder / str(number)))]
    assert all(np.all(run[1:] >= run[:-1]) for run in written)
    counts = Counter(value for values in runs for value in values)
    expected = {int(hashes([value])[0]) for value, count in counts.items() if count > 1}
    found = set(repeated_hashes(written, room).tolist())
    # Null and 0 share a hash: a suspicion, which keys must confirm.
    assert found - expected <= {int(hashes([None])[0])}
    assert expected <= found


def test_the_header_of_a_keyed_set_names_its_identity() -> None:
    assert keyed_header(SCHEMA, SCHEMA, ["k"]).identity == ("k",)


@pytest.mark.parametrize("runs", [[0], [2, 0], [1, 0, 2, 1, 0], [0, 1, 2, 0, 1, 2]])
@pytest.mark.parametrize("length", [1, 7, SHORT_RUN, 2 * SHORT_RUN])
def test_rows_of_one_rank_keep_their_order_whether_runs_are_moved_or_rows_taken(runs: list[int], length: int) -> None:
    rank = np.repeat(np.array(runs, dtype=np.int64), length)
    rows = pa.table({"place": np.arange(len(rank)), "rank": rank})
    expected = sorted(zip(rank.tolist(), range(len(rank)), strict=True))
    ordered = in_order(rows, rank)
    assert list(zip(ordered["rank"].to_pylist(), ordered["place"].to_pylist(), strict=True)) == expected


def test_no_rows_are_in_order() -> None:
    assert len(in_order(pa.table({"place": pa.array([], pa.int64())}), np.array([], dtype=np.int64))) == 0
