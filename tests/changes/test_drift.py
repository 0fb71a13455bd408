"""Schema drift: columns added, removed and retyped between the two sides."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from tests.model import keyed_of, kinds_of, relation_of

from strandline.changes import Changes
from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.conversion import to_counted
from strandline.changes.fill import fill
from strandline.changes.invert import invert
from strandline.changes.project import project
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
    with pytest.raises(ChangesError, match="removed by the first set and added again"):
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
