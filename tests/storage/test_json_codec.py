"""Records as JSON: what is written, byte for byte, and what is read back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline.storage import JsonRecord, JsonRow, text_form


@dataclass(frozen=True)
class Inner(JsonRecord):
    name: str
    pair: tuple[int, str]


@dataclass(frozen=True)
class Outer(JsonRecord):
    day: dt.date
    inner: Inner | None
    many: tuple[Inner, ...]
    names: tuple[str, ...] | None = None
    by_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    ratio: float = 0.5
    kept_open: object = field(default=None, compare=False)


text_form(dt.date, dt.date.isoformat, dt.date.fromisoformat)

SMALL = Outer(dt.date(2024, 2, 29), None, ())
LARGE = Outer(
    dt.date(2024, 2, 29),
    Inner("a", (1, "x")),
    (Inner("b", (2, "y")),),
    ("n",),
    {"k": ("v", "w")},
    {"f": [1, None]},
    2.0,
)


def test_a_record_is_written_field_by_field_in_order() -> None:
    assert json.dumps(SMALL.to_json()) == (
        '{"day": "2024-02-29", "inner": null, "many": [], "names": null, "by_name": {}, "facts": {}, "ratio": 0.5}'
    )
    assert json.dumps(LARGE.to_json()) == (
        '{"day": "2024-02-29", "inner": {"name": "a", "pair": [1, "x"]}, "many": [{"name": "b", "pair": [2, "y"]}], '
        '"names": ["n"], "by_name": {"k": ["v", "w"]}, "facts": {"f": [1, null]}, "ratio": 2.0}'
    )


@pytest.mark.parametrize("record", [SMALL, LARGE])
def test_a_record_comes_back_as_it_was(record: Outer) -> None:
    assert Outer.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_an_absent_field_takes_its_default_and_an_unknown_one_is_left_out() -> None:
    assert Outer.from_json({"day": "2024-02-29", "inner": None, "many": [], "newer": 1}) == SMALL
    with pytest.raises(KeyError, match="many"):
        Outer.from_json({"day": "2024-02-29", "inner": None})


@pytest.mark.parametrize(
    "damage", [{"many": 3}, {"by_name": 3}, {"by_name": "x"}, {"inner": {"name": "a", "pair": [1]}}, {"day": "x"}]
)
def test_what_is_no_such_record_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Outer.from_json({**LARGE.to_json(), **damage})


@dataclass(frozen=True)
class Row(JsonRow):
    name: str
    chosen: frozenset[int] | None
    inner: Inner | None = None


def test_a_row_is_a_list_of_values_and_sets_are_written_in_order() -> None:
    row = Row("r", frozenset((3, 1, 2)), Inner("a", (1, "x")))
    assert json.dumps(row.to_json()) == '["r", [1, 2, 3], {"name": "a", "pair": [1, "x"]}]'
    assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row
    assert Row.from_json(["r", None]) == Row("r", None)
