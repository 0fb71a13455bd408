"""Every algorithm gives the changes that the model gives, whatever the types, the order and the cuts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import model
from tests.examples import LAWS, examples
from tests.random_tables import Case, cases

import strandline as sl
from strandline.changes.shape import ChangeSet
from strandline.differential import partitioned_hash
from strandline.differential.plan import DiffPlan
from strandline.errors import KeysError, SchemaError
from strandline.relations.formats import spooled

ALGORITHMS = ("merge", "hash", "kb", "kbp", "window")
WITH_BEFORE = ("merge", "hash", "kbp", "window")


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny inputs in several parts, and several work items: what large inputs come to."""
    monkeypatch.setattr(spooled, "PART_ROWS", 2)
    monkeypatch.setattr(DiffPlan, "pieces", lambda *_: 3)
    monkeypatch.setattr(DiffPlan, "large_pieces", lambda *_: 3)
    monkeypatch.setattr(DiffPlan, "held_whole", False)
    return


@pytest.fixture(params=["in memory", "in files"])
def held_in_buckets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny inputs held by one work item in many buckets, for which there is room in memory or none."""
    monkeypatch.setattr(spooled, "PART_ROWS", 2)
    monkeypatch.setattr(partitioned_hash, "HELD_BYTES", 1)
    monkeypatch.setattr(partitioned_hash, "HELD_ROWS", 1)
    monkeypatch.setattr(partitioned_hash, "BUCKET_BYTES", 16)
    if request.param == "in files":
        monkeypatch.setattr(partitioned_hash, "ROOM_DIVISOR", 1 << 60)


def changed(case: Case, algorithm: str, **options: Any) -> ChangeSet:
    old, new = case.states
    found = sl.diff(old, new, key=case.key, algorithm=algorithm, runner="inline", **options)
    return ChangeSet(found.header, found.to_arrow())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@LAWS
@given(case=cases())
def test_an_algorithm_finds_what_the_model_finds(algorithm: str, case: Case) -> None:
    old, new = (model.relation_of(table, case.key) for table in case.states)
    expected = model.difference(old, new)
    found = changed(case, algorithm)
    assert model.kinds_of(found) == {key: change.kind for key, change in expected.items()}
    if algorithm in WITH_BEFORE:
        assert model.keyed_of(found) == expected
    assert found.header.counts.unchanged == len(new) - sum(change.kind != "delete" for change in expected.values())


@pytest.mark.usefixtures("many_pieces")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@LAWS
@given(case=cases())
def test_cutting_into_pieces_changes_nothing(algorithm: str, case: Case) -> None:
    old, new = (model.relation_of(table, case.key) for table in case.states)
    expected = model.difference(old, new)
    found = changed(case, algorithm)
    assert model.kinds_of(found) == {key: change.kind for key, change in expected.items()}
    if algorithm in WITH_BEFORE:
        assert model.keyed_of(found) == expected


@pytest.mark.usefixtures("held_in_buckets")
@LAWS
@given(case=cases())
def test_sides_that_are_held_in_buckets_are_compared_as_the_model_does(case: Case) -> None:
    old, new = (model.relation_of(table, case.key) for table in case.states)
    expected = model.difference(old, new)
    found = changed(case, "hash")
    assert model.keyed_of(found) == expected
    assert found.header.counts.unchanged == len(new) - sum(change.kind != "delete" for change in expected.values())


@pytest.mark.usefixtures("held_in_buckets")
@LAWS
@given(case=cases())
def test_rows_without_a_key_are_counted_in_buckets_that_are_held(case: Case) -> None:
    twice = [pa.concat_tables([table, table.slice(0, 2)]) for table in case.states]
    found = sl.diff(*twice, algorithm="hash", runner="inline")
    assert model.counted_of(ChangeSet(found.header, found.to_arrow())) == model.counted_difference(
        *(model.bag_of(table) for table in twice)
    )


@pytest.mark.usefixtures("held_in_buckets")
def test_a_key_that_a_held_side_repeats_is_told() -> None:
    rows = pa.table({"k": np.arange(100) % 99, "v": np.arange(100)})
    with pytest.raises(KeysError, match=r"the new side holds keys more than once: .*0"):
        sl.diff(rows.slice(1), rows, key="k", algorithm="hash", runner="inline")
    paired = sl.diff(rows.slice(1), rows, key="k", algorithm="hash", runner="inline", duplicates="pair")
    assert (paired.summary().inserted, paired.summary().unchanged) == (1, 99)


def _moved(rows: pa.Table, steps: list[int]) -> pa.Table:
    """Each row moved on by some places: the steps are gone through in turn, again and again."""
    places = np.arange(len(rows)) + np.resize(steps, len(rows))
    return rows.take(pa.array(np.argsort(places, kind="stable")))


_steps = st.lists(st.integers(0, 6), min_size=1, max_size=9)


@pytest.mark.usefixtures("many_pieces")
@settings(max_examples=examples(12))
@given(steps=st.tuples(_steps, _steps), gone=st.sets(st.integers(0, 299)), come=st.sets(st.integers(0, 299)))
def test_sides_nearly_in_key_order_are_merged_by_ranges(
    steps: tuple[list[int], list[int]], gone: set[int], come: set[int]
) -> None:
    keys = np.arange(300)
    rows = pa.table({"k": keys, "v": np.where(np.isin(keys, [*come]), 1, 0)})
    old = _moved(pa.table({"k": keys, "v": np.zeros(300, np.int64)}), steps[0])
    new = _moved(rows.filter(pa.array(~np.isin(keys, [*gone]))), steps[1])
    found = sl.diff(old, new, key="k", runner="inline")
    assert found.run.algorithm == "merge"
    assert found.run.why.startswith(("both sides are stored in key order", "both sides are stored nearly in key order"))
    expected = model.difference(*(model.relation_of(side, ("k",)) for side in (old, new)))
    assert model.keyed_of(ChangeSet(found.header, found.to_arrow())) == expected


@pytest.mark.usefixtures("many_pieces")
def test_sides_in_no_order_meet_by_hash() -> None:
    rows = pa.table({"k": np.arange(300) * 37 % 300, "v": np.arange(300)})
    found = sl.diff(rows, rows.slice(1), key="k", runner="inline")
    assert (found.run.algorithm, found.summary().deleted) == ("hash", 1)
    assert "shuffled by the key's hash" in found.run.why


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_table_with_uuids_that_did_not_change_has_no_changes(algorithm: str) -> None:
    same = pa.table({"id": [1, 2], "u": pa.array([b"\x00" * 16, b"a" * 16], pa.uuid())})
    found = sl.diff(same, same, key=["id"], algorithm=algorithm, runner="inline")
    assert found.to_arrow().num_rows == 0
    assert [field.type for field in found.to_arrow().schema if field.name == "u"] == [pa.uuid()]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.null()), [None, None]),
        (pa.list_(pa.null(), 2), [None, None]),
        (pa.map_(pa.string(), pa.struct([("a", pa.null())])), [("a", None), ("b", {"a": None})]),
        (pa.struct([("a", pa.list_(pa.dictionary(pa.int8(), pa.string()), 2))]), None),
    ],
    ids=str,
)
def test_nulls_inside_nested_values_are_carried_along(algorithm: str, kind: pa.DataType, value: Any) -> None:
    new = pa.table({"id": [1, 2], "v": pa.array([value, value], kind)})
    found = sl.diff(new.slice(0, 0), new, key=["id"], algorithm=algorithm, runner="inline").to_arrow()
    assert found.sort_by("id")["v"].to_pylist() == [value, value]


@pytest.mark.usefixtures("many_pieces")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time64("ns"), pa.duration("ms"), pa.float16(), pa.date64()], ids=str
)
def test_keys_whose_parts_have_no_bounds_are_compared_too(algorithm: str, kind: pa.DataType) -> None:
    numbers = [np.arange(first, first + 7) for first in (0, 1)]
    if kind == pa.float16():
        old, new = (pa.table({"k": pa.array(some.astype(np.float16))}) for some in numbers)
    else:
        apart = 86_400_000 if kind == pa.date64() else 1
        stored = pa.int32() if kind.bit_width == 32 else pa.int64()
        old, new = (pa.table({"k": pa.array(some * apart, stored).cast(kind)}) for some in numbers)
    found = sl.diff(old, new, key=["k"], algorithm=algorithm, runner="inline").header.counts
    assert (found.inserted, found.deleted, found.unchanged) == (1, 1, 6)


def test_column_names_are_matched_without_regard_to_case() -> None:
    old = pa.table({"ID": [1, 2], "Name": ["a", "b"], "qty": [1, 2]})
    new = pa.table({"id": [1, 2], "NAME": ["a", "c"], "qty": [1, 2]})
    found = sl.diff(old, new, key="Id", any_case=True, runner="inline")
    assert (found.header.key, found.summary().updated, found.header.after_schema.names) == (
        ("id",),
        1,
        ["id", "NAME", "qty"],
    )
    twins = pa.table({"id": [1], "NAME": ["a"], "name": ["b"]})
    with pytest.raises(SchemaError, match=r"'Name' may be any of 'NAME', 'name'.*--rename"):
        sl.diff(old, twins, key="id", any_case=True)
    chosen = sl.diff(old, twins, key="id", any_case=True, rename={"Name": "name"}, runner="inline")
    assert list(chosen.header.added) == ["NAME"]
    with pytest.raises(KeysError, match="'id'"):
        sl.diff(old, new, key="id")


def test_options_name_columns_without_regard_to_case_too() -> None:
    old = pa.table({"Id": ["A ", "b"], "Price": [1.0, 2.0], "qty": [1, 2], "First": ["x", "y"]})
    new = pa.table({"ID": ["a", "b"], "price": [1.001, 2.0], "Qty": [9, 9], "name": ["x", "y"]})
    rules = {"id": "trim casefold", "PRICE": "abs:0.01", "string": "trim"}
    how: dict[str, Any] = {"key": "id", "any_case": True, "runner": "inline", "compare": rules}
    found = sl.diff(old, new, ignore=["QTY"], rename={"first": "NAME"}, **how)
    assert (found.header.key, found.header.values) == (("ID",), ("price", "name"))
    assert found.summary().unchanged == 2
    chosen = sl.diff(old, new, columns=["id", "QTY"], **{**how, "compare": {"Id": "trim casefold"}})
    assert (chosen.header.values, chosen.summary().updated) == (("Qty",), 2)


def test_a_state_meets_names_that_differ_in_case_alone(tmp_path: Path) -> None:
    nights = [pa.table({"ID": [1, 2], "Qty": [1, 2]}), pa.table({"id": [2, 3], "qty": [5, 3]})]
    nights.append(nights[1].rename_columns(["Id", "QTY"]))
    found = [
        sl.diff(None, night, key="id", state=str(tmp_path / "state"), any_case=True, runner="inline").summary()
        for night in nights
    ]
    assert [(each.inserted, each.updated, each.deleted) for each in found] == [(2, 0, 0), (1, 1, 1), (0, 0, 0)]
