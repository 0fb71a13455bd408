"""*Irrelevant* is never wrong: whatever types meet, in whatever comparison, DuckDB's own join is asked."""

from __future__ import annotations

from random import Random

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given, note, settings
from tests.examples import examples
from tests.views.mixed_types import COLUMNS, conditions, mixed_rows
from tests.views.relevance_cases import definition_of

from strandline.values import plain
from strandline.views.relevance.relevance import mask

_oracle = duckdb.connect(":memory:", config={"threads": 1})
_oracle.execute("SET TimeZone = 'UTC'")


def joining(condition: str, changed: pa.Table, others: pa.Table) -> set[int] | None:
    """The changed rows that join with another one, by DuckDB alone; None if it refuses the condition."""
    _oracle.register("a", _in_duckdb(changed).append_column("number", pa.array(range(len(changed)))))
    _oracle.register("b", _in_duckdb(others))
    try:
        rows = _oracle.execute(f"SELECT DISTINCT a.number FROM a, b WHERE {condition}").fetchall()
    except duckdb.Error:
        return None
    return {number for (number,) in rows}


def _in_duckdb(rows: pa.Table) -> pa.Table:
    """DuckDB reads no instants in nanoseconds; these hold whole microseconds."""
    place = rows.column_names.index("tzn")
    return plain(rows).set_column(place, "tzn", rows.column("tzn").cast(pa.timestamp("us", "UTC")))


def irrelevant(condition: str, changed: pa.Table, others: pa.Table) -> set[int]:
    view = definition_of(condition, a="a", b="b")
    relevant = mask(view, {"a": changed.schema, "b": others.schema}, "a", changed).to_pylist()
    return {number for number, one in enumerate(relevant) if not one}


@settings(max_examples=examples(60))
@given(conditions(), mixed_rows(12), mixed_rows(12))
def test_a_row_that_joins_is_never_irrelevant(condition: str, changed: pa.Table, others: pa.Table) -> None:
    met = joining(condition, changed, others)
    assume(met is not None)
    assert met is not None
    note(condition)
    assert not met & irrelevant(condition, changed, others)


@pytest.mark.parametrize(
    "condition",
    [
        # All operands are compared as DOUBLE, in which 2⁵³ + 1 is 2⁵³.
        "b.i64 BETWEEN a.i64 AND 9007199254740992e0 AND b.i64 < a.i64",
        "b.i64 IN (a.i64, 0.5e0) AND b.i64 < a.i64",
        # The text is read as an instant, not as a date.
        "b.dt IN (a.ts) AND '2020-01-01 12:00:00+00' NOT BETWEEN a.tz AND b.dt",
        "b.s = a.s COLLATE NOCASE AND b.s = 'A'",
        "b.f32 = a.i32 AND b.f32 < 16777217",
        "b.f64 = -a.f64 AND b.f64 = 0",
    ],
)
def test_comparisons_that_round_are_left_to_the_join(condition: str) -> None:
    random = Random(1)
    every, changed = (
        pa.table({name: pa.array(random.choices(values, k=60), kind) for name, (kind, values) in COLUMNS.items()})
        for _ in range(2)
    )
    met = joining(condition, changed, every)
    assert met, "the case is one in which rows join"
    assert not met & irrelevant(condition, changed, every)
