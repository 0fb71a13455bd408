"""What errors say, and what survives a trip as JSON."""

from __future__ import annotations

import re
from pathlib import Path

import strandline.errors
from strandline.errors import Conflict, NotFound, SchemaError, StrandlineError, did_you_mean


def test_a_hint_names_what_is_spelled_alike_best_first() -> None:
    assert did_you_mean("prize", ["state", "prices", "price"]) == "Did you mean 'price' or 'prices'?"
    assert did_you_mean("prize", ["state", "prices", "price"], most=1) == "Did you mean 'price'?"
    assert did_you_mean("dif", ["diff"], shown=str) == "Did you mean diff?"
    assert did_you_mean("id", ["idx", "ID"]) == "Did you mean 'ID' or 'idx'?"


def test_a_hint_is_empty_where_nothing_is_near() -> None:
    assert did_you_mean("prize", ["state"]) == did_you_mean("prize", []) == ""
    assert did_you_mean("ordrs", ["o"], cutoff=0.9) == ""


def test_an_error_comes_back_from_json_as_it_was() -> None:
    error = NotFound("there is no table 'ordrs'", doing="reading a table", hint="Did you mean 'orders'?")
    back = StrandlineError.from_json(error.to_json())
    assert (type(back), str(back), back.hint) == (NotFound, str(error), error.hint)
    assert type(StrandlineError.from_json({"error": "os.system", "why": "?"})) is StrandlineError
    assert Conflict.retryable
    assert not NotFound.retryable


def test_what_drivers_quote_is_cut_in_the_middle() -> None:
    error = StrandlineError(f"no number: '{'x' * 1_000_000}' in row 7", doing="reading", hint="Mend it")
    assert len(error.why) == 2_000
    assert str(error).startswith("reading: no number: 'xxx")
    assert str(error).endswith("x' in row 7. Mend it.")
    assert str(StrandlineError.from_json(error.to_json())) == str(error)


def test_what_was_being_done_starts_small_everywhere() -> None:
    source = Path(strandline.errors.__file__).parent
    capital = re.compile(r"""\bdoing ?= ?f?"[A-Z][a-z]""")
    assert [str(file) for file in source.rglob("*.py") if capital.search(file.read_text("utf-8"))] == []


def test_a_hint_stands_below_a_reason_of_several_lines() -> None:
    assert str(SchemaError("a is b\nthe table: a int64", hint="Rename a")).splitlines()[-1] == "Rename a."
    assert str(SchemaError("a is b", hint="Rename a")) == "a is b. Rename a."
