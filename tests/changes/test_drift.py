"""Schema drift: columns added, removed and retyped between the two sides."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model import keyed_of, kinds_of, relation_of

import strandline as sl
from strandline.changes import Changes
from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.conversion import to_counted
from strandline.changes.fill import fill
from strandline.changes.invert import invert
from strandline.changes.project import project
from strandline.changes.shape import ChangeSet
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError, InputError

A = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "gone": [1, 2, 3], "t": [1, 2, 3]})
B = pa.table({"id": [2, 3, 4], "t": ["2", "3", "4"], "v": ["b", "C", "d"], "note": ["x", "y", "z"]})
C = pa.table({"id": [2, 3, 5], "t": ["2", "7", "5"], "v": ["b", "C", "e"], "note": ["n", "y", "z"]})


def test_a_set_over_drift_compares_the_common_columns_and_is_partial() -> None:
    changes = difference(A, B, ["id"])
    header = changes.header
    assert (header.added, header.removed, header.retyped) == (("note",), ("gone",), ("t",))
    assert header.partial
    assert header.columns == ("id", "v")
    assert kinds_of(changes) == {(1,): "delete", (3,): "update", (4,): "insert"}


def test_a_partial_set_is_refused_naming_the_columns() -> None:
    changes = difference(A, B, ["id"])
    for attempt in (lambda: apply(A, changes), lambda: compose(changes, difference(B, C, ["id"]))):
        with pytest.raises(ChangesError, match="added note; removed gone; retyped t") as caught:
            attempt()
        assert "fill={'note': …, 't': …}" in caught.value.hint


def test_a_partial_set_applies_when_told_what_added_columns_hold() -> None:
    changes = difference(A, B, ["id"])
    result = apply(A, changes, fill={"note": "none", "t": "0"})
    assert result.schema == B.schema
    assert result.to_pydict() == {"id": [2, 3, 4], "t": ["0"] * 3, "v": ["b", "C", "d"], "note": ["none"] * 3}
    through = Changes.of(changes).apply(A, fill={"note": "none", "t": "0"})
    assert through.to_arrow() == result


def test_a_set_that_only_loses_columns_applies_when_told_that_nothing_is_added() -> None:
    changes = difference(A, A.drop_columns(["gone"]), ["id"])
    with pytest.raises(ChangesError, match="removed gone"):
        apply(A, changes)
    assert apply(A, changes, fill={}) == A.drop_columns(["gone"])


def test_fill_must_cover_the_added_columns_and_no_others() -> None:
    changes = difference(A, B, ["id"])
    with pytest.raises(ChangesError, match="nothing says what t holds"):
        fill(changes, {"note": "x"})
    with pytest.raises(InputError, match="'v' is not one that was added"):
        fill(changes, {"note": "x", "t": "0", "v": "?"})
    with pytest.raises(InputError, match="does not fit"):
        fill(changes, {"note": 1.5, "t": "0"})
    widened = difference(A, A.append_column("n", pa.array([1] * len(A))), ["id"])
    with pytest.raises(InputError, match=r"1\.5 is more than int64 can hold"):
        fill(widened, {"n": 1.5})


def test_composing_over_drift_is_applying_in_turn() -> None:
    first, then = (
        difference(A, B.drop_columns(["t"]), ["id"]),
        difference(B.drop_columns(["t"]), C.drop_columns(["t"]), ["id"]),
    )
    held = {"note": "none"}
    both = compose(first, then, fill=held)
    expected = apply(apply(A, first, fill=held), then, lenient=True)
    assert relation_of(apply(A, both), ["id"]) == relation_of(expected, ["id"])
    through = Changes.of(first).compose(Changes.of(then), fill=held)
    assert relation_of(through.apply(A).to_arrow(), ["id"]) == relation_of(expected, ["id"])
    assert keyed_of(compose(fill(first, held), then)) == keyed_of(both)


def test_columns_added_by_the_later_set_hold_their_fill_from_the_start() -> None:
    middle = A.drop_columns(["gone", "t"])
    first, then = (
        difference(middle, middle.slice(1), ["id"]),
        difference(middle.slice(1), B.drop_columns(["t"]), ["id"]),
    )
    both = compose(first, then, fill={"note": "none"})
    assert apply(middle, both).column("note").to_pylist() == ["none"] * 3
    assert not both.header.partial


def test_a_column_removed_and_added_again_does_not_compose() -> None:
    without = A.drop_columns(["gone"])
    first, then = difference(A, without, ["id"]), difference(without, A, ["id"])
    with pytest.raises(ChangesError, match="'gone' is removed on the way and added again"):
        compose(first, then, fill={"gone": 0})


def test_the_inverse_of_a_filled_set_leaves_its_columns_out_again() -> None:
    held = {"note": "none"}
    narrow, wide = A.drop_columns(["gone", "t"]), B.drop_columns(["t"])
    first = fill(difference(narrow, wide, ["id"]), held)
    then = difference(wide, wide.set_column(2, "note", pa.array(["n", "y", "z"])), ["id"])
    back = invert(compose(first, then))
    assert back.header.removed == ("note",)
    assert kinds_of(back) == {(1,): "insert", (3,): "update", (4,): "delete"}
    assert relation_of(apply(wide, back, fill={}), ["id"]) == relation_of(narrow, ["id"])


def test_types_that_hold_the_same_values_are_no_drift() -> None:
    old = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))})
    new = pa.table({"id": pa.array([1, 3], pa.int64()), "v": pa.array([Decimal("1.5"), None], pa.decimal128(9, 1))})
    changes = difference(old, new, ["id"])
    assert not changes.header.partial
    assert kinds_of(changes) == {(2,): "delete", (3,): "insert"}
    assert apply(old, changes) == new
    assert apply(new, invert(changes)).schema == old.schema
    assert len(compose(changes, invert(changes))) == 0
    assert len(to_counted(changes)) == 2
    assert apply(old, difference(old, new)).schema == new.schema


def test_projecting_drift_away_makes_a_set_whole() -> None:
    whole = project(difference(A, B, ["id"]), ["id", "v"])
    assert not whole.header.partial
    assert relation_of(apply(A.select(["id", "v"]), whole), ["id"]) == relation_of(B.select(["id", "v"]), ["id"])


TYPES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [1, 2],
    pa.string(): ["1", "x"],
    pa.float64(): [1.0, 0.5],
    pa.decimal128(5, 2): [Decimal(1), Decimal("0.5")],
    pa.list_(pa.int64()): [[], [1]],
}
Values = dict[str, pa.DataType]


@st.composite
def drifting(draw: st.DrawFn) -> list[pa.Table]:
    """Three states of a relation: rows come, go and change, and so do the columns and their types."""
    types: Values = {name: draw(st.sampled_from(list(TYPES))) for name in "abc"}
    rows: dict[int, dict[str, Any]] = {}
    states: list[pa.Table] = []
    for _ in range(3):
        if states:
            fresh = {
                name: draw(st.sampled_from(list(TYPES))) for name in draw(st.sets(st.sampled_from("abcd"), max_size=1))
            }
            types = {name: kind for name, kind in (types | fresh).items() if draw(st.integers(0, 5)) or name == "a"}
            rows = {key: {name: row.get(name) for name in types if name not in fresh} for key, row in rows.items()}
        for key in draw(st.sets(st.integers(0, 4))):
            rows[key] = {name: draw(st.sampled_from([None, *TYPES[kind]])) for name, kind in types.items()}
        gone = draw(st.sets(st.integers(0, 4), max_size=2))
        rows = {key: row for key, row in rows.items() if key not in gone}
        held = [{"id": key, **row} for key, row in rows.items()]
        states.append(pa.Table.from_pylist(held, pa.schema({"id": pa.int64(), **types})))
    return states


def filled(old: pa.Table, new: pa.Table, key: list[str] | None, draw: st.DataObject) -> ChangeSet:
    """The set between two states, told what the columns that were added hold."""
    changes = difference(old, new, key)
    names = (*changes.header.added, *changes.header.retyped)
    held = {name: draw.draw(st.sampled_from([None, *TYPES[new.schema.field(name).type]])) for name in names}
    return fill(changes, held) if changes.header.partial else changes


@given(states=drifting(), data=st.data(), key=st.sampled_from([["id"], None]))
def test_sets_over_any_drift_compose(states: list[pa.Table], data: st.DataObject, key: list[str] | None) -> None:
    first = filled(states[0], states[1], key, data)
    between = apply(states[0], first)
    then = filled(between, states[2], key, data)
    anew = {*first.header.removed, *first.header.retyped, *then.header.retyped}
    if anew & set(difference(states[0], states[2], key).header.columns):
        with pytest.raises(ChangesError, match="is removed on the way and added again"):
            compose(first, then)
        return
    both, through = compose(first, then), Changes.of(first).compose(Changes.of(then))
    expected = relation_of(apply(between, then), ["id"])
    assert relation_of(apply(states[0], both), ["id"]) == expected
    assert relation_of(through.apply(states[0]).to_arrow(), ["id"]) == expected


@given(states=drifting(), data=st.data(), key=st.sampled_from([["id"], None]))
def test_the_inverse_of_a_filled_set_counts_the_rows_that_it_leaves(
    states: list[pa.Table], data: st.DataObject, key: list[str] | None
) -> None:
    first = filled(states[0], states[1], key, data)
    after = apply(states[0], first)
    back = invert(first)
    through = Changes.of(first).invert()
    direct = difference(after, states[0], key)
    assert back.header.counts == through.header.counts == direct.header.counts


def test_a_column_made_anew_in_another_type_holds_its_fill_in_rows_that_the_first_set_changed() -> None:
    old = pa.table({"id": [1, 2, 3], "n": ["1", "2", "x"]})
    middle = pa.table({"id": [1, 2, 3], "n": ["1", "7", "y"]})
    new = pa.table({"id": [1, 2, 3], "n": [1, None, 3]})
    first, then = sl.diff(old, middle, key="id"), sl.diff(middle, new, key="id", carry=True)
    assert first.compose(then).apply(old).to_arrow().to_pylist() == new.to_pylist()


def test_a_column_whose_types_meet_at_both_ends_but_not_between_does_not_compose() -> None:
    types = (pa.int64(), pa.decimal128(5, 2), pa.float64())
    whole, exact, rough = (pa.table({"id": [1], "n": pa.array([1], each)}) for each in types)
    first, then = difference(whole, exact, ["id"]), fill(difference(exact, rough, ["id"]), {"n": 5.0})
    with pytest.raises(ChangesError, match="'n' is removed on the way and added again"):
        compose(first, then)
