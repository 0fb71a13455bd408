"""What counts as a change: comparators, columns, conditions, duplicates, drift, formats."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import model
from tests.examples import LAWS, examples
from tests.random_tables import Case, cases

import strandline as sl
from strandline.changes.shape import ChangeSet
from strandline.differential.differential import Differential, find_changes
from strandline.differential.window.options import WindowOptions
from strandline.errors import GuardTripped, InputError, SchemaError

EXACT = ("merge", "hash", "window")
ALL = ("merge", "hash", "kb", "kbp", "window")


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def kinds(found: Differential) -> dict[Any, str]:
    told = model.kinds_of(ChangeSet(found.header, found.to_arrow()))
    return {key[0] if len(key) == 1 else key: kind for key, kind in told.items()}


def changed(found: Differential) -> dict[Any, list[str]]:
    rows = found.to_arrow().to_pylist()
    return {row[found.key[0]]: row["_changed"] for row in rows if row["_change"] == "update"}


# Comparators

NOON = datetime.datetime(2024, 5, 1, 12)
COMPARED: dict[str, tuple[str, list[Any], list[Any], set[int]]] = {
    "abs": ("abs:0.01", [1.0, 2.0, 3.0, None], [1.009, 2.02, float("nan"), None], {2, 3}),
    "rel": ("rel:0.1", [100.0, 100.0, 0.0, 5.0], [109.0, 120.0, 0.0, None], {2, 4}),
    "time": ("time:2s", [NOON, NOON], [NOON.replace(second=1), NOON.replace(second=3)], {2}),
    "trim": ("trim", [" a ", "b", None], ["a", "c", ""], {2, 3}),
    "casefold": ("casefold", ["Ab", "b"], ["aB", "c"], {2}),
    "empty": ("empty", ["", None, "x"], [None, "", ""], {3}),
    "several": ("trim casefold empty", [" A ", " ", "x"], ["a", None, "y"], {3}),
}


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("case", COMPARED)
def test_a_comparator_says_what_counts_as_the_same(case: str, algorithm: str) -> None:
    rule, before, after, differ = COMPARED[case]
    ids = list(range(1, len(before) + 1))
    found = sl.diff(table(id=ids, v=before), table(id=ids, v=after), "id", compare={"v": rule}, algorithm=algorithm)
    assert set(kinds(found)) == differ
    assert found.header.counts.unchanged == len(ids) - len(differ)


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
@pytest.mark.parametrize("case", ["trim", "casefold", "empty", "several"])
def test_a_normalising_comparator_works_on_signatures_too(case: str, algorithm: str, tmp_path: Path) -> None:
    rule, before, after, differ = COMPARED[case]
    ids = list(range(1, len(before) + 1))
    options: dict[str, Any] = {"compare": {"v": rule}, "algorithm": algorithm, "state": str(tmp_path / "s")}
    sl.diff(None, table(id=ids, v=before), "id", **options)
    assert set(kinds(sl.diff(None, table(id=ids, v=after), "id", **options))) == differ


def test_a_tolerance_marks_the_set_inexact_and_normalising_does_not() -> None:
    a, b = table(id=[1], v=[1.0], w=["x"]), table(id=[1], v=[1.1], w=["X"])
    near = sl.diff(a, b, "id", compare={"v": "abs:0.5"})
    assert near.header.inexact
    assert any("inexact" in warning for warning in near.run.warnings)
    assert not sl.diff(a, b, "id", compare={"w": "casefold"}).header.inexact


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
def test_a_tolerance_refuses_signatures(algorithm: str) -> None:
    a, b = table(id=[1], v=[1.0]), table(id=[1], v=[1.1])
    with pytest.raises(InputError, match="tolerances need both values"):
        sl.diff(a, b, "id", compare={"v": "abs:0.5"}, algorithm=algorithm)


def test_a_columns_own_rule_wins_over_its_kinds_and_that_over_all() -> None:
    a = table(id=[1], n=[1.0], m=[1.0], s=["a "])
    b = table(id=[1], n=[1.4], m=[1.4], s=["a"])
    rules = {"n": "abs:0.1", "number": "abs:0.5", "*": "trim"}
    assert changed(sl.diff(a, b, "id", compare=rules)) == {1: ["n"]}


def test_without_a_key_text_is_normalised_before_rows_are_counted() -> None:
    a, b = table(s=["a", "A", "b"]), table(s=["A", "A", "c"])
    counts = {row["s"]: row["_count"] for row in sl.diff(a, b, compare={"s": "casefold"}).to_arrow().to_pylist()}
    assert counts == {"b": -1, "c": 1}
    with pytest.raises(InputError, match="tolerances need a key"):
        sl.diff(table(v=[1.0]), table(v=[1.1]), compare={"v": "abs:1"})


# Columns and conditions

OLD = table(id=[1, 2, 3], name=["a", "b", "c"], qty=[1, 2, 3], note=["x", "y", "z"])
NEW = table(id=[1, 2, 4], name=["A", "b", "d"], qty=[1, 20, 4], note=["x", "Y", "w"])


@pytest.mark.parametrize("algorithm", ALL)
def test_only_chosen_columns_are_compared(algorithm: str) -> None:
    found = sl.diff(OLD, NEW, "id", columns=["qty"], algorithm=algorithm)
    assert kinds(found) == {2: "update", 3: "delete", 4: "insert"}
    assert found.header.columns == ("id", "qty")


@pytest.mark.parametrize("algorithm", ALL)
def test_ignored_columns_are_left_out(algorithm: str) -> None:
    found = sl.diff(OLD, NEW, "id", ignore=["qty", "note"], algorithm=algorithm)
    assert kinds(found) == {1: "update", 3: "delete", 4: "insert"}
    assert found.header.columns == ("id", "name")


def test_chosen_columns_decide_without_a_key_too() -> None:
    found = sl.diff(OLD, NEW, columns=["note"])
    assert Counter({row["note"]: row["_count"] for row in found.to_arrow().to_pylist()}) == Counter(
        {"y": -1, "z": -1, "Y": 1, "w": 1}
    )


@pytest.mark.parametrize("algorithm", ALL)
def test_a_column_of_the_old_side_meets_its_new_name(algorithm: str) -> None:
    old = OLD.rename_columns(["number", "title", "qty", "note"])
    found = sl.diff(old, NEW, "id", rename={"number": "id", "title": "name"}, algorithm=algorithm)
    assert kinds(found) == {1: "update", 2: "update", 3: "delete", 4: "insert"}
    assert (found.header.added, found.header.removed) == ((), ())


def test_names_may_be_exchanged() -> None:
    old = OLD.rename_columns(["id", "note", "qty", "name"])
    found = sl.diff(old, NEW, "id", rename={"note": "name", "name": "note"})
    assert changed(found) == {1: ["name"], 2: ["qty", "note"]}


@pytest.mark.parametrize("algorithm", ALL)
def test_a_condition_restricts_both_sides(algorithm: str) -> None:
    found = sl.diff(OLD, NEW, "id", where="qty < 10", algorithm=algorithm)
    assert kinds(found) == {1: "update", 2: "delete", 3: "delete", 4: "insert"}


def test_a_condition_may_speak_of_columns_that_are_not_compared() -> None:
    found = sl.diff(OLD, NEW, "id", columns=["name"], where="qty > :least and note <> 'w'", params={"least": 1})
    assert kinds(found) == {3: "delete"}


def test_a_condition_speaks_of_the_new_names() -> None:
    old = OLD.rename_columns(["id", "name", "amount", "note"])
    found = sl.diff(old, NEW, "id", rename={"amount": "qty"}, where="qty = 1")
    assert changed(found) == {1: ["name"]}


# Keys


@pytest.mark.parametrize("algorithm", ALL)
def test_composite_keys_are_never_put_together_as_text(algorithm: str) -> None:
    old = table(a=["1", "11"], b=["11", "1"], v=[1, 2])
    new = table(a=["1", "11"], b=["11", "1"], v=[1, 3])
    assert kinds(sl.diff(old, new, ["a", "b"], algorithm=algorithm)) == {("11", "1"): "update"}


@pytest.mark.parametrize("algorithm", ALL)
def test_null_is_a_value_of_a_key(algorithm: str) -> None:
    old = table(a=[1, None, None], b=["x", "x", None], v=[1, 2, 3])
    new = table(a=[None, None, 1], b=["x", None, None], v=[2, 30, 4])
    found = sl.diff(old, new, ["a", "b"], algorithm=algorithm)
    assert kinds(found) == {(1, "x"): "delete", (None, None): "update", (1, None): "insert"}


# Duplicates


def paired(found: Differential) -> list[tuple[Any, ...]]:
    """Each change with its images, without the number of the pair."""
    rows = found.to_arrow().to_pylist()
    return sorted(
        (row["_change"], row["id"], str(row["_before"]), str({n: row[n] for n in found.header.values})) for row in rows
    )


@settings(LAWS, max_examples=examples(25))
@given(
    old=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc"), st.integers(0, 2)), max_size=8),
    new=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc"), st.integers(0, 2)), max_size=8),
    seed=st.integers(0, 1000),
)
def test_pairing_does_not_depend_on_the_order_of_rows(
    old: list[tuple[int, str, int]], new: list[tuple[int, str, int]], seed: int
) -> None:
    def of(rows: list[tuple[int, str, int]]) -> pa.Table:
        fields = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
        return pa.Table.from_pylist([dict(zip(("id", "s", "n"), row, strict=True)) for row in rows], fields)

    chance = random.Random(seed)
    found = sl.diff(of(old), of(new), "id", duplicates="pair", runner="inline")
    turned = sl.diff(
        of(chance.sample(old, len(old))), of(chance.sample(new, len(new))), "id", duplicates="pair", runner="inline"
    )
    assert paired(found) == paired(turned)
    both = Counter(old) & Counter(new)
    assert found.header.counts.unchanged == sum(both.values()), "equal rows are partners first"
    left, right = Counter(row[0] for row in old), Counter(row[0] for row in new)
    assert found.summary().deleted == sum((left - right).values()), "every row that can have a partner has one"
    assert found.summary().inserted == sum((right - left).values())


def test_pairing_takes_the_nearest() -> None:
    old = table(id=[1, 1], a=["x", "y"], b=[1, 2], c=[1, 2])
    new = table(id=[1, 1], a=["y", "x"], b=[2, 1], c=[3, 1])
    found = sl.diff(old, new, "id", duplicates="pair")
    assert (found.summary().updated, found.header.counts.unchanged) == (1, 1)
    assert changed(found) == {1: ["c"]}
    assert found.key == ("id", "_copy")


def test_counting_compares_a_multiset() -> None:
    old, new = table(id=[1, 1, 1, 1, 2]), table(id=[1, 1, 2, 3])
    found = sl.diff(old, new, "id", duplicates="count")
    assert {row["id"]: row["_count"] for row in found.to_arrow().to_pylist()} == {1: -2, 3: 1}
    assert found.form == "counted"


# Drift


def test_added_and_removed_columns_are_told_and_the_rest_compares() -> None:
    new = NEW.drop_columns(["note"]).append_column("shade", pa.array(["r", "g", "b"]))
    found = sl.diff(OLD, new, "id")
    assert (found.header.added, found.header.removed) == (("shade",), ("note",))
    assert changed(found) == {1: ["name"], 2: ["qty"]}
    assert found.header.partial


@pytest.mark.parametrize("algorithm", ALL)
def test_a_retyped_column_is_told_and_the_rest_compares(algorithm: str) -> None:
    new = NEW.set_column(2, "qty", pa.array(["1", "2", "4"]))
    found = sl.diff(OLD, new, "id", algorithm=algorithm)
    assert found.header.retyped == ("qty",)
    assert kinds(found) == {1: "update", 2: "update", 3: "delete", 4: "insert"}


@pytest.mark.parametrize("algorithm", ALL)
def test_a_wider_type_is_no_drift(algorithm: str) -> None:
    narrow = table(id=pa.array([1, 2], pa.int32()), v=pa.array([1.5, 2.5], pa.float32()))
    wide = table(id=pa.array([1, 2], pa.int64()), v=pa.array([1.5, 2.75], pa.float64()))
    found = sl.diff(narrow, wide, "id", algorithm=algorithm)
    assert not found.header.retyped
    assert kinds(found) == {2: "update"}


def test_a_renamed_column_is_suggested_by_its_content() -> None:
    rows = 50
    old = table(id=list(range(rows)), mail=[f"{n}@x" for n in range(rows)], gone=[n % 3 for n in range(rows)])
    new = table(id=list(range(rows)), email=[f"{n}@x" for n in range(rows)], come=[n % 7 + 9 for n in range(rows)])
    found = sl.diff(old, new, "id")
    assert found.run.renames == (("mail", "email"),)
    assert len(sl.diff(old, new, "id", rename={"mail": "email"}, ignore=["gone", "come"])) == 0


def test_a_strict_schema_makes_drift_an_error() -> None:
    new = NEW.drop_columns(["note"]).append_column("shade", pa.array(["r", "g", "b"]))
    with pytest.raises(SchemaError, match=r"shade was added, note was removed"):
        sl.diff(OLD, new, "id", strict_schema=True)
    with pytest.raises(SchemaError, match="qty went from int64 to int32"):
        sl.diff(OLD, NEW.set_column(2, "qty", NEW["qty"].cast(pa.int32())), "id", strict_schema=True)
    assert len(sl.diff(OLD, NEW, "id", strict_schema=True)) == 4


# Thresholds


def test_more_changes_than_are_believable_stop_the_run(tmp_path: Path) -> None:
    for limit in ("30%", 0.3):
        with pytest.raises(GuardTripped, match=r"suspect reload: 4 of 3 rows changed \(133.3%; allowed are 30.0%\)"):
            sl.diff(OLD, NEW, "id", fail_over=limit, save_state=str(tmp_path / "s"))
    assert not (tmp_path / "s").exists()
    assert len(sl.diff(OLD, NEW, "id", fail_over="150%")) == 4


# Nested values


def test_changes_inside_nested_values_are_named_by_their_path() -> None:
    from strandline.report.layouts import column_by_column

    kind = pa.struct([("zip", pa.int64()), ("lines", pa.list_(pa.struct([("qty", pa.int64())])))])
    old = pa.table({"id": [1], "v": pa.array([{"zip": 1, "lines": [{"qty": 1}, {"qty": 2}]}], kind)})
    new = pa.table({"id": [1], "v": pa.array([{"zip": 2, "lines": [{"qty": 1}, {"qty": 3}]}], kind)})
    found = sl.diff(old, new, "id")
    cells = column_by_column(ChangeSet(found.header, found.to_arrow())).to_pylist()
    assert [cell["_column"] for cell in cells] == ["v.zip", "v.lines[1].qty"]


# Formats


def as_json_lines(rows: pa.Table, path: str) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))


def as_delta(rows: pa.Table, path: str) -> None:
    from deltalake import write_deltalake

    write_deltalake(path, rows)


WRITERS: dict[str, Callable[[pa.Table, str], None]] = {
    "parquet": lambda rows, path: pq.write_table(rows, path),
    "csv": lambda rows, path: pc.write_csv(rows, path),
    "jsonl": as_json_lines,
    "arrow": lambda rows, path: pf.write_feather(rows, path),
    "delta": as_delta,
}


@pytest.mark.parametrize("new", WRITERS)
@pytest.mark.parametrize("old", WRITERS)
def test_formats_mix(tmp_path: Path, old: str, new: str) -> None:
    before, after = str(tmp_path / f"old.{old}"), str(tmp_path / f"new.{new}")
    WRITERS[old](OLD, before)
    WRITERS[new](NEW, after)
    found = sl.diff(before, after, "id")
    assert changed(found) == {1: ["name"], 2: ["qty", "note"]}
    assert kinds(found) == {1: "update", 2: "update", 3: "delete", 4: "insert"}
    assert (found.header.added, found.header.removed, found.header.retyped) == ((), (), ())


# The window


@settings(LAWS, max_examples=examples(25))
@given(case=cases(), aging=st.sampled_from([1, 40, 400]), block=st.sampled_from([1, 64]))
def test_a_window_with_tiny_buffers_finds_what_merge_finds(case: Case, aging: int, block: int) -> None:
    old, new = case.states
    options: dict[str, Any] = {"algorithm": "window", "aging": aging, "block": block, "runner": "inline"}
    found = sl.diff(old, new, case.key, **options)
    expected = sl.diff(old, new, case.key, algorithm="merge", runner="inline")
    answers = [model.keyed_of(ChangeSet(each.header, each.to_arrow())) for each in (found, expected)]
    assert answers[0] == answers[1]
    assert str(found.summary()) == str(expected.summary())


def test_a_window_reports_what_outgrew_it() -> None:
    ids = list(range(2_000))
    old = table(id=ids, v=ids)
    new = table(id=ids[::-1], v=ids[::-1])
    found = sl.diff(old, new, "id", algorithm="window", aging=1_000, block=100, slices=1)
    assert len(found) == 0
    notes = found.run.work.notes
    assert notes["evicted"] > 0
    assert notes["useless pairs removed"] > 0
    assert notes["distance"] == pytest.approx(1.0)
    calm = sl.diff(old, new, "id", algorithm="window", aging=WindowOptions.aging_bytes, slices=1)
    assert calm.run.work.notes["evicted"] == 0


def test_the_sorted_new_side_is_kept_whole(tmp_path: Path) -> None:
    old = pa.table({"id": [1, 2], "v": [1, 2]})
    new = pa.table({"z": ["b", "a", "c"], "id": [2, 1, 3], "v": [2, 5, 0], "w": [1, 1, 0]})
    options: Any = {"key": "id", "where": "v > 0", "columns": ["v"], "runner": "inline"}
    found = sl.diff(old, new, keep_sorted=str(tmp_path / "kept"), **options)
    assert (found.summary().updated, found.summary().unchanged) == (1, 1)
    assert pq.read_table(tmp_path / "kept").equals(new.sort_by("id"))


def test_what_is_guarded_or_not_written_leaves_no_sorted_side(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    options: Any = {"key": "id", "runner": "inline", "keep_sorted": str(kept)}
    with pytest.raises(GuardTripped):
        sl.diff(OLD, NEW, fail_over="1%", **options)
    found = find_changes(OLD, NEW, **options)
    assert not kept.exists()
    found.keep_state()
    assert kept.is_dir()
    with pytest.raises(InputError, match="exists already"):
        sl.diff(OLD, NEW, **options)


@pytest.mark.parametrize("name", ["state", "save_state", "keep_sorted"])
def test_an_empty_name_is_no_place(name: str) -> None:
    given: Any = {name: ""}
    with pytest.raises(InputError, match=f"{name} is an empty name"):
        sl.diff(None if name == "state" else OLD, NEW, "id", runner="inline", algorithm="merge", **given)
    with pytest.raises(InputError, match="the name is empty"):
        sl.diff("", NEW, "id", runner="inline")


def test_no_columns_are_not_all_columns() -> None:
    one = pa.table({"id": [1], "v": [1]})
    for columns in ([], "", [""]):
        with pytest.raises(InputError, match="names no column"):
            sl.diff(one, one, key="id", columns=columns, runner="inline")


def test_pairs_are_found_among_keys_that_are_all_null() -> None:
    sides = [pa.table({"id": pa.array([None, None], pa.int64()), "v": values}) for values in ([1, 2], [2, 3])]
    counts = sl.diff(sides[0], sides[1], "id", duplicates="pair", runner="inline").summary()
    assert (counts.updated, counts.unchanged) == (1, 1)


def test_a_state_goes_on_when_the_column_of_its_condition_is_renamed(tmp_path: Path) -> None:
    options: Any = {"key": "id", "state": str(tmp_path / "state"), "runner": "inline"}
    sl.diff(None, pa.table({"id": [1, 2], "q": [1, 5]}), where="q > 2", **options)
    new = pa.table({"id": [1, 2], "qty": [1, 6]})
    found = sl.diff(None, new, where="qty > 2", rename={"q": "qty"}, **options)
    assert found.to_arrow()["id"].to_pylist() == [2]
    assert found.summary().updated == 1


def test_keys_of_json_without_a_value_take_the_other_sides_type(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "n": null, "m": 2.5}\n')
    (tmp_path / "b.jsonl").write_text('{"id": 1, "n": 5, "m": null}\n')
    for old, new in (("a", "b"), ("b", "a")):
        found = sl.diff(tmp_path / f"{old}.jsonl", tmp_path / f"{new}.jsonl", key="id", runner="inline")
        assert not found.header.retyped
        assert found.to_arrow()["_changed"].to_pylist() == [["n", "m"]]


def test_a_set_that_empties_a_column_is_applied() -> None:
    old, new = pa.table({"id": [1, 2], "v": pa.array([None, 5])}), pa.table({"id": [1, 2], "v": pa.nulls(2)})
    assert sl.diff(old, new, key="id", runner="inline").apply(old, runner="inline").to_arrow().equals(new)
