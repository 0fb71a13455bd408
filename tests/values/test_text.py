"""Guessing types of text: the same however a column is cut into batches, and nothing is lost."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import SchemaError
from strandline.values.text import TextGuess, convert_text, guess_type

numbers = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(-5, 5).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[-+]?[0-9]{0,3}\.?[0-9]{0,20}(e-?[0-9]{1,3})?", fullmatch=True),
)
times = st.one_of(
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda moment: moment.isoformat() + "789"),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.sampled_from(["0000-01-01", "1677-09-21", "1677-09-22", "2262-04-11", "2262-04-12", "9999-12-31"]),
)
columns = st.one_of(
    st.lists(numbers), st.lists(times), st.lists(st.one_of(numbers, times, st.sampled_from(["", "true", "x"])))
)


@settings(deadline=None, max_examples=examples(100))
@given(columns, st.integers(1, 5))
def test_a_guess_does_not_depend_on_how_a_column_is_cut(values: list[str], size: int) -> None:
    cut = TextGuess()
    for start in range(0, len(values), size):
        cut.narrow(pa.array(values[start : start + size], pa.string()))
    assert cut.type == guess_type(list(values))


@settings(deadline=None, max_examples=examples(100))
@given(columns)
def test_every_value_can_be_read_in_the_guessed_type_and_numbers_are_kept(values: list[str]) -> None:
    kind = guess_type(list(values))
    found = convert_text(pa.array(values, pa.string()), kind, "v")
    assert found.null_count == (0 if pat.is_string(kind) else values.count(""))
    for text, value in zip(values, found, strict=True):
        if pat.is_string(kind):
            assert value.as_py() == text
        elif pat.is_integer(kind) and text:
            assert str(value.as_py()) == text
        elif pat.is_floating(kind) and text:
            assert value.as_py() == float(text) or value.as_py() != value.as_py()


@pytest.mark.parametrize(
    ("value", "hint"), [("NA", "--nulls NA "), ("1x", "--types v=string"), ("unknown", "--types v=string")]
)
def test_text_that_is_no_number_is_told_with_what_to_write(value: str, hint: str) -> None:
    with pytest.raises(SchemaError, match=f"'{value}' in row 2") as told:
        convert_text(pa.array(["1.5", value]), pa.float64(), "v")
    assert hint in told.value.hint
