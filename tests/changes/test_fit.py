"""Whether a set fits what it is applied to: before images, rows that are there already, types that narrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.values.properties import for_all

import strandline as sl
from strandline.changes import Changes
from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.shape import ChangeSet
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError

Rows = dict[int, int]
WIDE = (pa.int64(), pa.float64(), pa.decimal128(20, 4), pa.int32())
NARROW = (pa.int16(), pa.int8(), pa.float32(), pa.decimal128(9, 2))
BIG = st.integers(-(2**31), 2**31 - 1)
SMALL = st.integers(-100, 100)


def table(rows: Rows, kind: pa.DataType = WIDE[0]) -> pa.Table:
    values = pa.array(list(rows.values()), pa.int64())
    wide = values.cast(pa.decimal128(38, 0)).cast(kind) if pa.types.is_decimal(kind) else values.cast(kind)
    return pa.table({"k": pa.array(list(rows), pa.int64()), "v": wide})


def held(rows: pa.Table) -> Rows:
    return {row["k"]: int(row["v"]) for row in rows.to_pylist()}


def changes(old: Rows, new: Rows, *, before: bool = True) -> ChangeSet:
    made = difference(table(old), table(new), ["k"])
    if before:
        return made
    from dataclasses import replace

    header = replace(made.header, has_before=False)
    return ChangeSet(header, made.rows.select(header.rows_schema.names))


def expected(base: Rows, old: Rows, new: Rows, *, before: bool) -> Rows | None:
    """The base after the changes from `old` to `new`, in plain Python; None where they don't fit."""
    result = dict(base)
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key in old and (key not in base or (before and base[key] != old[key])):
            return None
        if key not in old and key in base and base[key] != new[key]:
            return None
        result.pop(key, None)
        if key in new:
            result[key] = new[key]
    return result


relations = st.dictionaries(st.integers(0, 4), st.integers(0, 2), max_size=5)


@for_all(100, base=relations, old=relations, new=relations, before=st.booleans())
def test_a_strict_set_is_applied_to_the_rows_it_was_made_from_or_refused(
    base: Rows, old: Rows, new: Rows, before: bool
) -> None:
    made, wanted = changes(old, new, before=before), expected(base, old, new, before=before)
    if wanted is None:
        with pytest.raises(ChangesError, match="the change set"):
            apply(table(base), made)
    else:
        assert held(apply(table(base), made)) == wanted
    lenient = {**{key: value for key, value in base.items() if key not in old or key in new}, **_changed(old, new)}
    lenient |= {key: base[key] for key in base if old.get(key) == new.get(key)}
    assert held(apply(table(base), made, lenient=True)) == lenient


def _changed(old: Rows, new: Rows) -> Rows:
    return {key: value for key, value in new.items() if old.get(key) != value}


@for_all(
    60, base=relations, old=relations, new=relations, large=st.booleans(), where=st.sampled_from(["table", "idea"])
)
def test_tables_and_what_ifs_take_and_refuse_the_same_sets(
    tmp_path_factory: pytest.TempPathFactory, base: Rows, old: Rows, new: Rows, large: bool, where: str
) -> None:
    with sl.create(tmp_path_factory.mktemp("fit") / "shop") as store, pytest.MonkeyPatch.context() as patch:
        target: Any = store.create_table("t", table(base), key="k")
        if where == "idea":
            target = target.what_if("idea")
        made: Any = changes(old, new)
        if large:
            made = Changes.of(made)
            patch.setattr("strandline.tables.bulk_write.LARGE_ROWS", 0)
        wanted = expected(base, old, new, before=True)
        if wanted is None:
            with pytest.raises(ChangesError, match="the change set"):
                target.apply(made)
            assert held(target.to_arrow()) == base
        else:
            target.apply(made)
            assert held(target.to_arrow()) == wanted


@for_all(80, base=relations, first=relations, second=relations, then=relations)
def test_composition_does_what_one_after_the_other_does(base: Rows, first: Rows, second: Rows, then: Rows) -> None:
    """`second` need not be where the first set leads to: what both insert alike is no collision."""
    one, two = changes(base, first), changes(second, then)
    after = expected(first, second, then, before=True)
    if after is None:
        return
    assert held(apply(apply(table(base), one), two)) == after
    assert held(apply(table(base), compose(one, two))) == after


def test_two_sets_that_insert_the_same_row_are_no_collision() -> None:
    insert = changes({}, {1: 1})
    assert compose(insert, insert).rows.equals(insert.rows)
    assert held(apply(table({1: 1}), insert)) == {1: 1}
    with pytest.raises(ChangesError, match="insert after insert"):
        compose(insert, changes({}, {1: 2}))
    with pytest.raises(ChangesError, match="inserts keys that are already there"):
        apply(table({1: 2}), insert)


def test_a_stale_before_image_is_refused_and_lenient_overrules(tmp_path: Path) -> None:
    made = changes({1: 1, 2: 2}, {1: 5})
    for base, key in (({1: 7, 2: 2}, 1), ({1: 1, 2: 7}, 2)):
        with pytest.raises(ChangesError, match=rf"something else than its before images: \(k={key}\)"):
            apply(table(base), made)
        assert held(apply(table(base), made, lenient=True)) == {1: 5}


@for_all(
    80,
    wide=st.sampled_from(WIDE),
    narrow=st.sampled_from(NARROW),
    gone=st.dictionaries(st.integers(0, 9), BIG, max_size=4),
    old=st.dictionaries(st.integers(10, 19), SMALL, max_size=4),
    new=st.dictionaries(st.integers(5, 19), SMALL, max_size=6),
)
def test_types_that_narrow_and_widen_keep_the_laws(
    wide: pa.DataType, narrow: pa.DataType, gone: Rows, old: Rows, new: Rows
) -> None:
    """Rows that are deleted or replaced need not fit the narrower type; what stays is equal on both sides."""
    a, b = table({**gone, **old}, wide), table(new, narrow)
    for key in (["k"], None):
        forth, back = difference(a, b, key), difference(b, a, key)
        if forth.header.partial:  # decimals and floats don't meet
            continue
        there, here = apply(a, forth), apply(b, back)
        assert (there.schema, here.schema) == (b.schema, a.schema)
        assert (held(there), held(here)) == (held(b), held(a))
