"""Which columns get a dictionary in Parquet files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LAWS
from tests.random_tables import Case, bags

from strandline.values import plain, repeating_columns


def paths_of(table: pa.Table, dictionaries: list[str]) -> tuple[set[str], set[str]]:
    """The columns of a file as it names them, and those that have a dictionary."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_dictionary=dictionaries)
    group = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {one.path_in_schema for one in columns}, {one.path_in_schema for one in columns if one.has_dictionary_page}


def is_carried(table: pa.Table) -> bool:
    try:
        return bool(paths_of(table, [])[0])
    except pa.ArrowNotImplementedError:
        return False


def test_columns_whose_values_repeat_get_dictionaries_at_any_depth_and_no_others() -> None:
    numbers, words = np.arange(5000), [f"word {n % 7}" for n in range(5000)]
    inside = [{"n": n, "word": word} for n, word in enumerate(words)]
    table = pa.table(
        {
            "n": numbers,
            "word": words,
            "own": pa.array(inside),
            "many": pa.array([[one] for one in inside]),
            "by": pa.array([[(word, n)] for n, word in enumerate(words)], pa.map_(pa.string(), pa.int64())),
        }
    )
    expected = ["word", "own.word", "many.list.element.word", "by.key_value.key"]
    assert repeating_columns(table) == expected
    assert paths_of(table, expected)[1] == {*expected}


@given(bags(1), st.integers(0, 1))
@LAWS
def test_every_type_that_a_file_can_carry_is_looked_at_and_named_as_the_file_names_it(case: Case, cut: int) -> None:
    table = plain(case.states[0]).slice(cut)
    chosen = repeating_columns(table)
    carried = [name for name in table.column_names if is_carried(table.select([name]))]
    named, _ = paths_of(table.select(carried), [])
    assert {path for path in chosen if path.split(".")[0] in carried} <= named
