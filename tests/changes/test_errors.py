"""What the verbs refuse, and what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.model import Satisfies, kinds_of, relation_of

import strandline as sl
from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.consolidate import consolidate
from strandline.changes.conversion import to_counted, to_keyed
from strandline.changes.invert import invert
from strandline.changes.project import project
from strandline.changes.restrict import restrict
from strandline.changes.shape import ChangeSet, finish
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError, InputError, KeysError, NoBeforeImages, SchemaError
from strandline.values import reads_fixed_size_lists


def table(rows: dict[int, str | None]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "v": pa.array(list(rows.values()), pa.string())})


def change(old: dict[int, str | None], new: dict[int, str | None]) -> ChangeSet:
    return difference(table(old), table(new), ["id"])


def without_before(changes: ChangeSet, *, changed: bool = False) -> ChangeSet:
    header = replace(changes.header, has_before=False, has_changed=changed)
    return finish(header, changes.rows.select(header.rows_schema.names))


NOTHING: dict[int, str | None] = {}


def test_duplicate_keys_are_shown_up_to_ten() -> None:
    twice = pa.table({"id": [*range(20), *range(20)], "v": ["x"] * 40})
    with pytest.raises(KeysError, match="the old side holds keys more than once") as caught:
        difference(twice, table({1: "a"}), ["id"])
    assert caught.value.why.count("id=") == 10
    with pytest.raises(KeysError, match="the new side"):
        difference(table({1: "a"}), twice, ["id"])
    nulls = pa.table({"id": pa.array([None, None], pa.int64()), "v": ["a", "b"]})
    with pytest.raises(KeysError, match="id=None"):
        difference(nulls, table({1: "a"}), ["id"])


def test_a_key_that_is_not_there_is_told_with_the_nearest_name() -> None:
    with pytest.raises(KeysError, match="'order_id'") as caught:
        difference(pa.table({"order_id": [1]}), pa.table({"order_id": [1]}), ["orderid"])
    assert "Did you mean 'order_id'?" in caught.value.hint
    for wrong in ([], ["id", "id"]):
        with pytest.raises(KeysError, match="no key"):
            difference(table({1: "a"}), table({1: "a"}), wrong)


def test_a_key_whose_types_do_not_meet_is_refused() -> None:
    with pytest.raises(KeysError, match="int64 on one side and string on the other"):
        difference(table({1: "a"}), pa.table({"id": ["1"], "v": ["a"]}), ["id"])


@pytest.mark.parametrize("name", ["_change", "_before", "_changed", "_count", "_row"])
def test_names_that_change_sets_use_themselves_are_refused(name: str) -> None:
    with pytest.raises(SchemaError, match=f"'{name}'") as caught:
        difference(pa.table({"id": [1], name: [1]}), pa.table({"id": [1], name: [1]}), ["id"])
    assert "Rename it" in caught.value.hint


def test_tables_without_columns_or_with_one_name_twice_are_refused() -> None:
    with pytest.raises(SchemaError, match="no columns"):
        difference(pa.table({}), pa.table({}))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(SchemaError, match="more than once"):
        difference(twice, twice)
    with pytest.raises(SchemaError, match="no column in common"):
        difference(pa.table({"a": [1]}), pa.table({"b": [1]}))


@pytest.mark.parametrize(
    ("old", "new", "base", "told"),
    [
        (NOTHING, {1: "a"}, {1: "z"}, "inserts keys that are already there"),
        ({1: "a"}, {1: "b"}, NOTHING, "updates keys that are not there"),
        ({1: "a"}, NOTHING, NOTHING, "deletes keys that are not there"),
    ],
)
def test_a_keyed_set_that_does_not_fit_shows_its_keys(old: Any, new: Any, base: Any, told: str) -> None:
    changes = change(old, new)
    with pytest.raises(ChangesError, match=rf"{told}: \(id=1\)"):
        apply(table(base), changes)
    assert relation_of(apply(table(base), changes, lenient=True), ["id"]) == relation_of(table(new), ["id"])


def test_at_most_ten_keys_are_shown_and_the_rest_counted() -> None:
    changes = change(NOTHING, dict.fromkeys(range(25), "a"))
    with pytest.raises(ChangesError, match="and 15 more") as caught:
        apply(table(dict.fromkeys(range(25), "z")), changes)
    assert caught.value.why.count("id=") == 10


def test_a_counted_set_that_does_not_fit_shows_the_rows() -> None:
    changes = difference(table({1: "a", 2: "b"}), table({2: "b"}))
    with pytest.raises(ChangesError, match=r"removes rows that are not there: \(id=1, v='a'\)"):
        apply(table({2: "b"}), changes)
    assert apply(table({2: "b"}), changes, lenient=True) == table({2: "b"})


def test_a_base_whose_touched_key_is_not_unique_is_refused() -> None:
    base = pa.table({"id": [1, 1], "v": ["a", "b"]})
    with pytest.raises(KeysError, match="more than once"):
        apply(base, change({1: "a"}, {1: "c"}))


def test_another_schema_is_refused_showing_both() -> None:
    changes = change({1: "a"}, {1: "b"})
    with pytest.raises(ChangesError, match="extra differ") as caught:
        apply(table({1: "a"}).append_column("extra", pa.array([1])), changes)
    assert "relation:" in caught.value.why
    with pytest.raises(ChangesError, match="v differ"):
        apply(pa.table({"id": [1], "v": [1]}), changes)


STEPS: list[tuple[Any, Any, Any, Any, str]] = [
    (NOTHING, {1: "a"}, NOTHING, {1: "b"}, "insert after insert"),
    ({1: "a"}, NOTHING, {1: "a"}, {1: "b"}, "update after delete"),
    ({1: "a"}, NOTHING, {1: "a"}, NOTHING, "delete after delete"),
    ({1: "a"}, {1: "b"}, NOTHING, {1: "c"}, "insert after update"),
]


@pytest.mark.parametrize(("a", "b", "c", "d", "told"), STEPS)
def test_sequences_that_cannot_have_happened_are_refused(a: Any, b: Any, c: Any, d: Any, told: str) -> None:
    first, then = change(a, b), change(c, d)
    with pytest.raises(ChangesError, match=rf"{told} of one key can't have happened: \(id=1\)"):
        compose(first, then)
    raw = ChangeSet(first.header, pa.concat_tables([first.rows, then.rows]))
    with pytest.raises(ChangesError, match=told):
        consolidate(raw)


def test_sets_of_other_forms_keys_or_schemas_do_not_compose() -> None:
    changes = change({1: "a"}, {1: "b"})
    with pytest.raises(ChangesError, match="keyed by id, the later one counted"):
        compose(changes, difference(table({1: "b"}), table({1: "c"})))
    with pytest.raises(ChangesError, match="keyed by id, the later one keyed by v"):
        compose(changes, difference(table({1: "b"}), table({1: "c"}), ["v"]))
    with pytest.raises(ChangesError, match="another schema"):
        compose(changes, difference(pa.table({"id": [1]}), pa.table({"id": [2]}), ["id"]))


def test_verbs_that_need_before_images_say_so() -> None:
    bare = without_before(change({1: "a", 2: "b"}, {1: "c", 3: "d"}))
    for verb in (invert, to_counted):
        with pytest.raises(NoBeforeImages, match="no before images"):
            verb(bare)
    with pytest.raises(NoBeforeImages):
        restrict(bare, Satisfies(["v"], lambda _row: True))
    with pytest.raises(NoBeforeImages):
        project(bare, ["v"])
    with pytest.raises(NoBeforeImages, match="neither before images nor"):
        project(bare, ["id"])


def test_without_before_images_a_condition_on_the_key_still_restricts() -> None:
    bare = without_before(change({1: "a", 2: "b"}, {1: "c", 3: "d"}))
    result = restrict(bare, Satisfies(["id"], lambda row: row["id"] > 1))
    assert kinds_of(result) == {(2,): "delete", (3,): "insert"}


def test_without_before_images_the_names_of_changed_columns_still_project() -> None:
    old = pa.table({"id": [1, 2], "v": ["a", "b"], "w": [1, 2]})
    new = pa.table({"id": [1, 2], "v": ["a", "c"], "w": [5, 2]})
    bare = without_before(difference(old, new, ["id"]), changed=True)
    assert kinds_of(project(bare, ["id", "v"])) == {(2,): "update"}


def test_a_delete_and_a_later_insert_collapse_only_with_a_before_image() -> None:
    first, then = change({1: "a"}, NOTHING), change(NOTHING, {1: "b"})
    assert kinds_of(compose(first, then)) == {(1,): "update"}
    assert kinds_of(compose(first, change(NOTHING, {1: "a"}))) == {}
    with pytest.raises(NoBeforeImages, match=r"deleted and inserted again: \(id=1\)"):
        compose(without_before(first), then)
    bare = compose(first, without_before(then))
    assert kinds_of(bare) == {(1,): "update"}
    assert not bare.header.has_before


def test_updates_compose_without_before_images() -> None:
    first, then = change({1: "a"}, {1: "b"}), change({1: "b"}, {1: "c"})
    both = compose(without_before(first, changed=True), without_before(then, changed=True))
    assert kinds_of(both) == {(1,): "update"}
    assert not both.header.has_changed
    assert both.rows.column("v").to_pylist() == ["c"]


def test_counts_that_are_no_changes_of_keys_are_shown() -> None:
    counted = difference(pa.table({"id": [1], "v": ["a"]}), pa.table({"id": [1, 1], "v": ["b", "c"]}))
    with pytest.raises(ChangesError, match="more than one row of a key"):
        to_keyed(counted, ["id"])
    double = difference(table(NOTHING), pa.table({"id": [1, 1], "v": ["b", "b"]}))
    with pytest.raises(ChangesError, match="more than one row of a key"):
        to_keyed(double, ["id"])
    with pytest.raises(KeysError, match="'nr'"):
        to_keyed(counted, ["nr"])
    keyed = change({1: "a"}, {1: "b"})
    assert to_keyed(keyed, ["id"]) is keyed
    with pytest.raises(ChangesError, match="not by v"):
        to_keyed(keyed, ["v"])


def test_projections_and_conditions_over_unknown_columns_are_refused() -> None:
    changes = change({1: "a"}, {1: "b"})
    with pytest.raises(SchemaError, match="'w' is not there"):
        project(changes, ["id", "w"])
    for wrong in ([], ["id", "id"]):
        with pytest.raises(InputError, match="no choice of columns"):
            project(changes, wrong)
    with pytest.raises(SchemaError, match="'w' is not there"):
        restrict(changes, Satisfies(["w"], lambda _row: True))


def test_the_inexact_mark_survives_compose_and_the_others() -> None:
    exact = change({1: "a"}, {1: "b"})
    inexact = ChangeSet(replace(exact.header, inexact=True), exact.rows)
    assert compose(inexact, change({1: "b"}, {1: "c"})).header.inexact
    assert compose(change({1: "0"}, {1: "a"}), inexact).header.inexact
    assert invert(inexact).header.inexact
    assert to_counted(inexact).header.inexact


def test_where_a_set_comes_from_and_leads_to_follows_the_verbs() -> None:
    first, then = change({1: "a"}, {1: "b"}), change({1: "b"}, {1: "c"})
    first = ChangeSet(replace(first.header, source="monday", target="tuesday"), first.rows)
    then = ChangeSet(replace(then.header, source="tuesday", target="wednesday"), then.rows)
    both = compose(first, then).header
    assert (both.source, both.target) == ("monday", "wednesday")
    assert (invert(first).header.source, invert(first).header.target) == ("tuesday", "monday")


def test_a_table_of_nothing_but_keys_needs_no_before_images() -> None:
    old, new = pa.table({"id": [1, 2]}), pa.table({"id": [2, 3]})
    changes = difference(old, new, ["id"])
    assert changes.rows.column_names == ["_change", "id", "_changed"]
    bare = without_before(changes)
    assert apply(new, invert(bare)).to_pydict() == {"id": [2, 1]}
    assert len(compose(bare, invert(bare))) == 0
    assert len(to_counted(bare)) == 2


def test_declared_not_null_columns_are_nullable_in_the_set_and_come_back_on_apply() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
    old, new = table({1: "a", 2: "b"}).cast(schema), table({2: "c"}).cast(schema)
    changes = difference(old, new, ["id"])
    assert all(field.nullable for field in changes.rows.schema)
    assert changes.header.schema == schema
    assert apply(old, changes).schema == schema


def test_fixed_size_lists_are_carried_or_refused_by_name() -> None:
    rows = pa.table({"id": [1, 2], "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))})
    if reads_fixed_size_lists():
        assert sl.diff(rows, rows.slice(1), key="id", runner="inline").to_arrow()["v"].to_pylist() == [None]
    else:
        with pytest.raises(SchemaError, match=r"column 'v' is fixed_size_list.*PyArrow 26 can"):
            sl.diff(rows, rows.slice(1), key="id", runner="inline")
