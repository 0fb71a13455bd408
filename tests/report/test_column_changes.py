"""What became of values, held against the rows themselves."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.values.properties import for_all

import strandline as sl
from strandline.changes import difference
from strandline.report.column_changes import column_changes
from strandline.report.run_facts import without_secrets

_VALUES = st.lists(st.tuples(*[st.sampled_from([None, 1, 2, 10**12])] * 2), max_size=12)


@for_all(60, values=_VALUES)
def test_transitions_nulls_and_shifts_are_those_of_the_rows(values: list[tuple[int | None, int | None]]) -> None:
    ids = pa.array(range(len(values)), pa.int64())
    old, new = (pa.table({"id": ids, "v": pa.array([pair[side] for pair in values], pa.int64())}) for side in (0, 1))
    pairs = [pair for pair in values if pair[0] != pair[1]]
    found = column_changes(difference(old, new, ["id"]), 100)
    if not pairs:
        assert found == []
        return
    (one,) = found
    told = {(each.before, each.after): each.count for each in one.transitions}
    assert told == Counter(tuple(None if side is None else str(side) for side in pair) for pair in pairs)
    assert one.gained_nulls == sum(after is None for _, after in pairs)
    assert one.lost_nulls == sum(before is None for before, _ in pairs)
    shifts = [after - before for before, after in pairs if before is not None and after is not None]
    assert one.least_shift == (min(shifts) if shifts else None)
    assert one.mean_shift == (pytest.approx(sum(shifts) / len(shifts)) if shifts else None)


def test_nested_values_and_the_first_key_are_told() -> None:
    old = pa.table({"id": [1, 2], "v": [[1], [1]]})
    new = pa.table({"id": [1, 2], "v": [[2], [2]]})
    (one,) = column_changes(difference(old, new, ["id"]))
    assert [(each.before, each.after, each.count, each.key) for each in one.transitions] == [("[1]", "[2]", 2, "1")]


def test_a_page_tells_rows_command_version_and_as_many_examples_as_asked() -> None:
    old = pa.table({"id": range(20), "v": [1] * 20})
    new = pa.table({"id": range(20), "v": range(20)})
    changes = sl.diff(old, new, key="id", runner="inline")
    page = changes.to_html(limit=2)
    assert "20 before, 20 after" in page
    assert sl.__version__ in page
    assert page.count("<article") == 2
    assert "and 17 other pairs of values" in page
    assert "<article" not in changes.to_html(limit=0)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("diff 'postgresql://me:p@ss@host/db?password=x#t' a.csv", "diff 'postgresql://me@host/db?password=…#t' a.csv"),
        ("diff 'adbc:x:me:p@ss@acc/db?adbc.auth=y#t' a.csv", "diff 'adbc:x:me@acc/db?adbc.auth=…#t' a.csv"),
        ("diff a.csv b.csv --key id", "diff a.csv b.csv --key id"),
    ],
)
def test_no_password_is_on_a_page(command: str, shown: str) -> None:
    assert without_secrets(command) == shown
