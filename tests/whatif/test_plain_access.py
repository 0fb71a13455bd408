"""Plain reads take short cuts: they must give what the walk through all levels gives."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables.shop import numbered, shop

from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.tables import Limits, page
from strandline.tables.page import Columns
from strandline.whatif import scan, tuple_reader
from strandline.whatif.seen_ids import IdSet, SeenIds
from strandline.whatif.tuples import ANY, CHANGED, INFINITY, LEVEL, MAXDATE, MINDATE, OWN_FIELDS, TUPNUM, TYPE, Type
from strandline.whatif.visibility import DifferentialRelation, ids_of, visible_tuples
from strandline.whatif.visible_rows import interleaved_rows, rows_in_place

SMALL = Limits(page_rows=64, cut_rows=48, join_rows=8, most_in_overlay=4, fewest_for_overlay=16)
DATA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int8())),
    ]
)
SCAN = 10
Level = tuple[list[dict[str, Any]], list[int]]
"""The tuples of D in a range, and the rows of the base there whose tuples stand in other ranges."""

numbers = st.lists(st.integers(0, 3000), max_size=60)


@given(several=st.lists(numbers, max_size=5), start=st.integers(0, 3000), count=st.integers(0, 300))
def test_sets_of_ids_are_united_and_counted_like_sets(several: list[list[int]], start: int, count: int) -> None:
    held = {number for one in several for number in one}
    united = IdSet.united([IdSet.of(np.array(one, dtype=np.int64)) for one in several])
    assert (united.numbers().tolist(), united.count) == (sorted(held), len(held))
    run = np.arange(start, start + count)
    assert united.count_run(start, count) == len(held & {*run.tolist()})
    assert united.holds(run).tolist() == [number in held for number in run.tolist()]
    assert united.holds(run[::-1]).tolist() == [number in held for number in run[::-1].tolist()]


rows = st.fixed_dictionaries(
    {
        "v": st.integers(-3, 3),
        "f": st.sampled_from([0.0, -0.0, math.nan, None, 1.5]),
        "s": st.sampled_from(["", "ä", None, "long enough"]),
        "t": st.sampled_from([None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
        "l": st.sampled_from([None, [], [1, None]]),
    }
)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Level]]:
    """Rows of a base with their numbers, and one or two levels, highest first."""
    count, first = draw(st.integers(0, 8)), draw(st.integers(0, 20))
    plain = draw(st.booleans())
    order = list(range(first, first + count)) if plain else draw(st.permutations(range(first, first + count)))
    gap = 1 if plain else draw(st.integers(1, 2))
    base = [{"_row": row * gap, "id": 2 * n, **draw(rows)} for n, row in enumerate(order)]
    levels = []
    for level in draw(st.sampled_from([[1], [1], [2, 1]])):
        kinds = [Type.REPLACE] if draw(st.booleans()) else list(Type)
        chosen = [one for one in base if draw(st.booleans())]
        tuples = [_changed(draw, one, draw(st.sampled_from(kinds)), level) for one in chosen]
        elsewhere = [
            row * gap
            for row, one in zip(order, base, strict=True)
            if one not in chosen and draw(st.integers(0, 5)) == 0
        ]
        levels.append((tuples, elsewhere))
    return base, levels


def _changed(draw: st.DrawFn, one: dict[str, Any], kind: Type, level: int) -> dict[str, Any]:
    """A tuple of D: many columns of many tuples are what they were."""
    row = one if draw(st.booleans()) else {**one, **draw(rows)}
    valid = draw(st.sampled_from([True, True, True, False]))
    own = {LEVEL: 0, TUPNUM: one["_row"], MINDATE: 5, MAXDATE: INFINITY if valid else 7, TYPE: int(kind)}
    if kind is Type.APPEND:
        own |= {LEVEL: level}
    # The base may have changed the key of a row since it was replaced.
    if kind is Type.APPEND or draw(st.integers(0, 9)) == 0:
        row = {**row, "id": one["id"] + 1}
    if kind > Type.REPLACE:
        row = {}
    return {**{name: row.get(name) for name in DATA.names}, **own}


def _differential(level: int, tuples: list[dict[str, Any]], elsewhere: Sequence[int] = ()) -> DifferentialRelation:
    table = pa.Table.from_pylist([{CHANGED: ANY, **one} for one in tuples], schema=pa.schema([*OWN_FIELDS, *DATA]))
    found = DifferentialRelation(level, table, SeenIds())
    others = SeenIds.of(np.zeros(len(elsewhere), dtype=np.int64), np.array(elsewhere, dtype=np.int64))
    ids = SeenIds.united([ids_of(level, found.fields, SCAN), others])
    return replace(found, ids=ids, uniform=found.fields.uniform)


def _base(rows: list[dict[str, Any]], cut: int) -> pa.Table:
    schema = pa.schema([("_row", pa.int64()), *DATA])
    return pa.concat_tables([pa.Table.from_pylist(part, schema=schema) for part in (rows[:cut], rows[cut:])])


@given(found=ranges(), cut=st.integers(0, 8), key=st.sampled_from([("id",), ()]))
def test_a_plain_read_of_a_range_gives_the_rows_that_the_walk_through_all_levels_gives(
    found: tuple[list[dict[str, Any]], list[Level]], cut: int, key: tuple[str, ...]
) -> None:
    rows, levels = found
    if not key:
        rows.sort(key=lambda one: int(one["_row"]))
    ds = [_differential(len(levels) - place, *one) for place, one in enumerate(levels)]
    expected = visible_tuples(ds, _base(rows, cut), key, SCAN).visible.rows.to_pylist()
    pages = [Columns(_base(rows, cut))]
    numbers = [row["_row"] for row in rows]
    if rows and numbers == [*range(numbers[0], numbers[0] + len(rows))]:
        pages.append(Columns(_base(rows, cut).drop_columns(["_row"]), numbers[0], fresh=True))
    for columns in pages:
        assert repr(visible_rows(ds, columns, key, DATA.names).to_pylist()) == repr(expected)


def visible_rows(ds: list[DifferentialRelation], page: Columns, key: tuple[str, ...], columns: list[str]) -> pa.Table:
    rows = rows_in_place(ds, page, key, columns, SCAN)
    return interleaved_rows(ds, page, key, columns, SCAN) if rows is None else rows


FIVE = [{"_row": n, "id": 2 * n, "v": n} for n in range(5)]


def _replaced(key: int, tupnum: int, maxdate: int = INFINITY) -> dict[str, Any]:
    return {"id": key, "v": 9, LEVEL: 0, TUPNUM: tupnum, MINDATE: 1, MAXDATE: maxdate, TYPE: int(Type.REPLACE)}


def _read(*differentials: DifferentialRelation) -> list[int]:
    page = Columns(_base(FIVE, 3).drop_columns(["_row"]), 0, fresh=True)
    found: list[int] = visible_rows([*differentials], page, ("id",), ["v"])["v"].to_pylist()
    return found


def test_rows_are_replaced_where_they_stand_only_when_nothing_else_happens_there() -> None:
    assert _read(_differential(1, [_replaced(4, 2), _replaced(8, 4)])) == [0, 1, 9, 3, 9]
    # A tuple that replaces a row of this range stands in another.
    assert _read(_differential(1, [_replaced(4, 2)], [3])) == [0, 1, 9, 4]
    assert _read(_differential(1, [], [3])) == [0, 1, 2, 4]
    # The base has changed the key of a row since: ours keeps its own, and its place by that.
    assert _read(_differential(1, [_replaced(1, 2)])) == [0, 9, 1, 3, 4]
    # A tuple that is no longer valid.
    assert _read(_differential(1, [_replaced(4, 2, 5), _replaced(8, 4)])) == [0, 1, 2, 3, 9]
    assert _read(_differential(1, [_replaced(4, 2, 5)])) == [0, 1, 2, 3, 4]
    # A higher level has deleted what this one replaces, from another range.
    assert _read(_differential(2, [], [2]), _differential(1, [_replaced(4, 2)])) == [0, 1, 3, 4]


def test_levels_that_replace_rows_where_they_stand_are_laid_over_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    below = _differential(1, [_replaced(4, 2), _replaced(6, 3), _replaced(8, 4)])
    above = _differential(2, [{**_replaced(0, 0), "v": 7}, {**_replaced(4, 2), "v": 8}])
    # A tuple that is replaced above, but stands in another range there.
    elsewhere = _differential(2, [{**_replaced(0, 0), "v": 7}], [2])
    assert _read(elsewhere, below) == [7, 1, 9, 9]
    monkeypatch.setattr("strandline.whatif.visible_rows.valid_tuples", None)  # what is in place needs no interleaving
    assert _read(above, below) == [7, 1, 8, 9, 9]
    assert _read(_differential(3, []), above, _differential(1, [])) == [7, 1, 8, 3, 4]


def test_what_is_kept_decoded_is_never_written_over() -> None:
    page = Columns(_base(FIVE, 5), fresh=False)
    found = visible_rows([_differential(1, [_replaced(4, 2)])], page, ("id",), ["v"])
    assert found["v"].to_pylist() == [0, 1, 9, 3, 4]
    assert page.table["v"].to_pylist() == [0, 1, 2, 3, 4]


def _changing(store: Store) -> list[int]:
    """A what-if after all kinds of changes, and the commits between them."""
    store.create_table("t", numbered(600), key="id")
    w, base = store.table("t").what_if("w"), store.table("t")
    commits = []
    changes: tuple[Callable[[], object], ...] = (
        lambda: w.update(where="id % 3 = 0", set={"v": "v + 1"}),
        lambda: base.update(where="id % 7 = 0", set={"v": "v - 1"}),
        lambda: w.update(where="id % 6 = 0", set={"v": "v + 1"}),
        lambda: w.update(where="id between 100 and 140 and id % 3 = 0", set={"id": "id + 1000"}),
        lambda: w.delete(where="id between 200 and 250"),
        lambda: w.insert(numbered(20, 5000)),
        lambda: base.delete(where="id between 300 and 310"),
        lambda: base.update(where="id = 31", values={"id": 9000}),
    )
    for change in changes:
        change()
        commits.append(int(store.pages.refresh_if_idle().commit))
    return commits


@pytest.mark.parametrize("columns", [None, ["v"], ["id"]])
def test_decoding_only_what_a_read_needs_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch, columns: list[str] | None
) -> None:
    monkeypatch.setattr(page, "SMALL_PAGE", 0)
    with create_on(MemoryStorage(), limits=SMALL) as store:
        commits = _changing(store)
        w = store.what_if("w")
        expected = [w.to_arrow(as_of=commit, columns=columns) for commit in commits]
        monkeypatch.setattr(tuple_reader, "KEPT_TUPLES", 0)
        monkeypatch.setattr(scan, "KEPT_ROWS", 0)
        for kept in (True, False):
            if not kept:
                store.cache.clear()
            assert [w.to_arrow(as_of=commit, columns=columns) for commit in commits] == expected
        assert w.to_arrow(columns=columns, where="id > 400") == store.what_if("w").to_arrow(
            columns=columns, where="id > 400 or id > 5000"
        )


def test_a_zero_is_shown_with_the_sign_that_the_what_if_gave_it() -> None:
    with shop() as store:
        table = store.create_table("t", pa.table({"id": [1, 2, 3], "f": [None, -0.0, 1.0]}), key="id")
        w = table.what_if("w")
        w.update(where="id = 2", values={"f": 0.0})
        assert repr(w.to_arrow()["f"].to_pylist()) == "[None, 0.0, 1.0]"
