"""The paper's figures and Table 1, on the core that knows no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.tables.page import Columns
from strandline.values import Flags
from strandline.whatif.seen_ids import IdSet, SeenIds, seen
from strandline.whatif.table_1 import ACCEPT, SEE, TABLE_1, Lines, differential_lines, line_of
from strandline.whatif.tuples import (
    ANY,
    CHANGED,
    INFINITY,
    LEVEL,
    MAXDATE,
    MINDATE,
    OWN_FIELDS,
    PLACE,
    TUPNUM,
    TYPE,
    Type,
)
from strandline.whatif.visibility import DifferentialRelation, VisibleTuples, ids_of, table_1_lines, visible_tuples
from strandline.whatif.visible_rows import interleaved_rows


def base_lines(was_seen: Flags) -> Lines:
    """The line of Table 1 for each tuple at level 0."""
    return np.where(was_seen, 1, 2).astype(np.int8)


A, R, D, F = Type.APPEND, Type.REPLACE, Type.DELETE, Type.FORWARD
DATA = [pa.field("name", pa.string()), pa.field("salary", pa.int64())]
NOW = 1000

Tuple = tuple[str | None, int | None, int, int, int, int, Type]
"""Name, salary, mindate, maxdate, level, tupnum, type: a line of the paper's figures."""


def base(*rows: tuple[int, str, int]) -> pa.Table:
    """Rows of a real relation with their numbers."""
    numbers, names, salaries = zip(*rows, strict=True) if rows else ((), (), ())
    schema = pa.schema([pa.field("_row", pa.int64()), *DATA])
    return pa.table(
        [pa.array(numbers, pa.int64()), pa.array(names, pa.string()), pa.array(salaries, pa.int64())], schema=schema
    )


def differential(level: int, tuples: Sequence[Tuple], scan: int = NOW) -> DifferentialRelation:
    rows = [
        {PLACE: 0, "name": t[0], "salary": t[1], MINDATE: t[2], MAXDATE: t[3]}
        | {LEVEL: t[4], TUPNUM: t[5], TYPE: int(t[6]), CHANGED: ANY}
        for t in tuples
    ]
    table = pa.Table.from_pylist(rows, schema=pa.schema([*OWN_FIELDS, *DATA]))
    found = DifferentialRelation(level, table, SeenIds())
    return replace(found, ids=ids_of(level, found.fields, scan))


def shown(found: VisibleTuples) -> list[tuple[str, int]]:
    return [(row["name"], row["salary"]) for row in found.visible.rows.to_pylist()]


def names_of(found: VisibleTuples) -> set[str]:
    return {name for name, _ in shown(found)}


def figure_13() -> list[Tuple]:
    return [
        ("nancy", 5000, 30, 60, 1, 0, A),
        ("sally", 8000, 40, 50, 0, 1, R),
        (None, None, 50, INFINITY, 0, 1, D),
        ("billy", 5000, 60, INFINITY, 1, 0, R),
    ]


FIGURE_6 = base((0, "fred", 4000), (1, "sally", 8000))


@pytest.mark.parametrize("line", TABLE_1, ids=lambda line: f"line {line.number}")
def test_each_line_of_table_1_is_the_one_that_applies_where_its_conditions_hold(line: Any) -> None:
    for level0, newest, was_seen, kind, samelevel in product(
        (False, True), (False, True), (False, True), Type, (False, True)
    ):
        if line.holds(level0, newest, was_seen, kind, samelevel):
            case = (level0, newest, was_seen, kind, samelevel)
            assert [other.number for other in TABLE_1 if other.holds(*case)] == [line.number]
            assert line_of(*case) == line.number
            if level0:
                found = base_lines(np.array([was_seen]))
            else:
                found = differential_lines(
                    np.array([newest]),
                    np.array([was_seen]),
                    np.array([int(kind)], dtype=np.int8),
                    np.array([samelevel]),
                )
            assert found.tolist() == [line.number]


def test_table_1_has_the_papers_actions() -> None:
    accepted = [number for number in range(1, 11) if ACCEPT[number]]
    assert accepted == [2, 6, 7, 9]
    assert [number for number in range(1, 11) if SEE[number]] == [8, 9, 10]


def test_only_an_append_to_another_level_has_no_line() -> None:
    cases = product((False, True), (False, True), (False, True), Type, (False, True))
    assert [case for case in cases if line_of(*case) == 0] == [(False, True, False, A, False)]


def test_figure_13_tuple_by_tuple() -> None:
    one = differential(1, figure_13())
    assert table_1_lines(1, one.fields, NOW, []).tolist() == [3, 3, 8, 6]
    assert list(one.ids) == [(0, 1)]
    assert base_lines(seen([one.ids], 0, np.array([0, 1]))).tolist() == [2, 1]
    assert shown(visible_tuples([one], FIGURE_6, ["name"], NOW)) == [("billy", 5000), ("fred", 4000)]


@pytest.mark.parametrize(
    ("scan", "names"),
    [
        (29, {"fred", "sally"}),
        (30, {"fred", "sally", "nancy"}),
        (40, {"fred", "sally", "nancy"}),
        (50, {"nancy", "fred"}),
        (60, {"billy", "fred"}),
    ],
)
def test_figure_13_as_of_each_date(scan: int, names: set[str]) -> None:
    assert names_of(visible_tuples([differential(1, figure_13(), scan)], FIGURE_6, ["name"], scan)) == names


def test_figure_1_a_deleted_tuple_can_be_appended_again() -> None:
    one = differential(1, [(None, None, 1, INFINITY, 0, 0, D), ("eric", 10000, 2, INFINITY, 1, 0, A)])
    assert shown(visible_tuples([one], base((0, "eric", 10000)), ["name"], NOW)) == [("eric", 10000)]


def test_figures_2_and_3_a_tuple_changed_above_is_not_changed_from_below() -> None:
    upper = differential(2, [("eric", 12000, 10, INFINITY, 0, 0, R)])
    real = base((0, "eric", 10000))
    assert shown(visible_tuples([upper, differential(1, [])], real, ["name"], NOW)) == [("eric", 12000)]
    lower = differential(1, [("eric", 15000, 20, INFINITY, 0, 0, R)])
    assert shown(visible_tuples([upper, lower], real, ["name"], NOW)) == [("eric", 12000)]
    assert shown(visible_tuples([lower], real, ["name"], NOW)) == [("eric", 15000)]


def figure_16() -> list[Tuple]:
    return [(None, None, 100, INFINITY, 0, 0, F), ("kelly", 3000, 100, INFINITY, 0, 0, R)]


def test_figure_16_a_forward_does_not_hide_its_own_replace() -> None:
    one = differential(1, figure_16())
    # Without a key: the paper's kellys are two.
    found = visible_tuples([one], base((0, "suzy", 3000), (1, "kelly", 25)), [], NOW)
    assert sorted(shown(found)) == [("kelly", 25), ("kelly", 3000)]


def test_figure_15_restricted_to_its_bucket_the_moved_tuple_is_hidden_by_the_forward_alone() -> None:
    bucket = differential(1, figure_16()[:1])
    assert shown(visible_tuples([bucket], base((0, "suzy", 3000)), ["name"], NOW)) == []
    without = differential(1, [])
    assert shown(visible_tuples([without], base((0, "suzy", 3000)), ["name"], NOW)) == [("suzy", 3000)]


def test_a_tuple_that_moved_away_and_back_is_there() -> None:
    one = differential(
        1,
        [
            (None, None, 10, INFINITY, 0, 0, F),
            ("kelly", 3000, 10, 20, 0, 0, R),
            (None, None, 20, INFINITY, 0, 0, F),
            ("suzy", 3000, 20, INFINITY, 0, 0, R),
        ],
    )
    assert shown(visible_tuples([one], base((0, "suzy", 3000)), ["name"], NOW)) == [("suzy", 3000)]


def test_a_range_is_read_with_the_ids_of_the_whole_differential_relation() -> None:
    whole = differential(1, [("suzy", 1, 10, INFINITY, 0, 0, R)])
    range_of_kelly = DifferentialRelation(1, whole.rows.slice(0, 0), whole.ids)
    # Meanwhile the base renamed tuple 0.
    assert shown(visible_tuples([range_of_kelly], base((0, "kelly", 3000)), ["name"], NOW)) == []


def test_the_highest_levels_key_wins_and_the_lower_row_is_hidden() -> None:
    one = differential(1, [("kelly", 3000, 10, INFINITY, 1, 0, A)])
    found = visible_tuples([one], base((0, "abe", 1), (1, "kelly", 25)), ["name"], NOW)
    assert shown(found) == [("abe", 1), ("kelly", 3000)]
    assert found.hidden.rows.to_pylist() == [{"name": "kelly", "salary": 25}]
    assert (found.hidden.level.tolist(), found.hidden.tupnum.tolist()) == ([0], [1])


def test_a_key_is_kept_from_below_by_a_tuple_that_is_deleted_further_up() -> None:
    lower = differential(1, [("kelly", 3000, 10, INFINITY, 1, 0, A)])
    upper = differential(2, [(None, None, 20, INFINITY, 1, 0, D)])
    found = visible_tuples([upper, lower], base((1, "kelly", 25)), ["name"], NOW)
    assert shown(found) == []


def test_a_plain_read_gives_the_same_rows() -> None:
    one = differential(1, figure_13())
    found = visible_tuples([one], FIGURE_6, ["name"], NOW)
    rows = interleaved_rows([one], Columns(FIGURE_6), ["name"], ["salary", "name"], NOW)
    assert rows.equals(found.visible.rows.select(["salary", "name"]))
    assert found.visible.level.tolist() == [1, 0]
    assert found.visible.physlevel.tolist() == [1, 0]
    assert found.visible.source.tolist() == [3, 0]


def test_a_bitmap_of_a_million_ids_takes_125_000_bytes() -> None:
    dense = IdSet.of(np.arange(1_000_000))
    assert dense.bits is not None
    assert (dense.bits.nbytes, dense.count) == (125_000, 1_000_000)
    sparse = IdSet.of(np.array([5, 1_000_000]))
    assert sparse.few is not None
    assert (sparse.bits, sparse.few.nbytes) == (None, 16)
    for ids in (dense, sparse):
        held = {*ids.numbers().tolist()}
        asked = np.array([5, 6, 1_000_000, 2_000_000, 7])
        assert ids.holds(asked).tolist() == [n in held for n in asked.tolist()]
        run = np.arange(999_990, 1_000_010)
        assert ids.holds(run).tolist() == [n in held for n in run.tolist()]


def test_ids_of_several_levels_are_kept_apart() -> None:
    ids = SeenIds.of(np.array([0, 1, 0]), np.array([3, 3, 9]))
    assert list(ids) == [(0, 3), (0, 9), (1, 3)]
    assert ids.holds(np.array([1, 0, 2]), np.array([9, 9, 3])).tolist() == [False, True, False]
