"""Where two nested values differ, as paths: `address.zip`, `items[2].qty`, `tags['x']`.

Equality is by value: null = null, NaN = NaN, −0.0 = 0.0, decimals by value, instants by instant, maps unordered.
Elements of lists meet by position, entries of maps by key, fields of structs by name. What only one side has is
named as a whole; so are values of which one is null.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from strandline.report.values import Instant, TimeSpan, is_map, text

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Difference:
    """One place where two values differ; None stands for null and for what a side does not have."""

    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, name: str = "") -> list[Difference]:
    """The places at which two Python values differ, with what stands there, in the order of the values.

    >>> differences({"zip": 1, "city": "Oslo"}, {"zip": 2, "city": "Oslo"}, "address")
    [Difference(path='address.zip', before=1, after=2)]
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return _in_structs(before, after, name)
    if _both_maps(before, after):
        return _in_maps(before, after, name)
    if isinstance(before, list) and isinstance(after, list):
        return _in_lists(before, after, name)
    return [] if same(before, after) else [Difference(name, before, after)]


def same(one: Any, other: Any) -> bool:
    """Whether two Python values are equal by value."""
    if type(one) is type(other) and isinstance(one, (str, int)):
        return bool(one == other)
    return bool(canonical(one) == canonical(other))


def canonical(value: Any) -> Any:
    """A hashable stand-in: two values are equal by value exactly where their stand-ins are equal."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else value
    if isinstance(value, Decimal):
        return ("nan",) if value.is_nan() else value
    if isinstance(value, (datetime.datetime, datetime.time, datetime.timedelta, Instant, TimeSpan)):
        return _ticks(value)
    if isinstance(value, dict):
        return ("struct", frozenset((name, canonical(inner)) for name, inner in value.items()))
    if is_map(value) and value:
        return ("map", frozenset(Counter((canonical(key), canonical(inner)) for key, inner in value).items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(canonical(inner) for inner in value))
    return value


def _ticks(value: Any) -> tuple[str, int]:
    """What kind of time it is, and nanoseconds."""
    if isinstance(value, Instant):
        return ("instant" if value.aware else "clock", value.ns)
    if isinstance(value, TimeSpan):
        return ("span", value.ns)
    if isinstance(value, datetime.timedelta):
        return ("span", (value // _MICROSECOND) * 1000)
    if isinstance(value, datetime.time):
        return ("span", ((value.hour * 60 + value.minute) * 60 + value.second) * 10**9 + value.microsecond * 1000)
    if value.tzinfo is None:
        return ("clock", ((value - _EPOCH) // _MICROSECOND) * 1000)
    return ("instant", ((value - _EPOCH.replace(tzinfo=datetime.UTC)) // _MICROSECOND) * 1000)


def _both_maps(before: Any, after: Any) -> bool:
    """Whether both are maps; an empty list beside a map is an empty map."""
    return all(is_map(value) or value == [] for value in (before, after)) and (is_map(before) or is_map(after))


def _in_structs(before: dict[str, Any], after: dict[str, Any], name: str) -> list[Difference]:
    places = []
    for field in dict.fromkeys((*before, *after)):
        path = f"{name}.{field}" if _PLAIN_NAME.fullmatch(field) else f"{name}.`{field}`"
        if field in before and field in after:
            places += differences(before[field], after[field], path)
        else:
            places.append(Difference(path, before.get(field), after.get(field)))
    return places


def _in_lists(before: list[Any], after: list[Any], name: str) -> list[Difference]:
    places = []
    for place in range(max(len(before), len(after))):
        path = f"{name}[{place}]"
        if place < min(len(before), len(after)):
            places += differences(before[place], after[place], path)
        else:
            places.append(Difference(path, *(side[place] if place < len(side) else None for side in (before, after))))
    return places


def _in_maps(before: list[Any], after: list[Any], name: str) -> list[Difference]:
    sides = _by_key(before), _by_key(after)
    places = []
    for key in dict.fromkeys((*sides[0], *sides[1])):
        mine, theirs = sides[0].get(key, []), sides[1].get(key, [])
        original = (mine or theirs)[0][0]
        path = f"{name}[{_quoted(original)}]"
        if len(mine) == len(theirs) == 1:
            places += differences(mine[0][1], theirs[0][1], path)
        elif Counter(canonical(entry) for entry in mine) != Counter(canonical(entry) for entry in theirs):
            places.append(Difference(path, _items(mine), _items(theirs)))
    return places


def _by_key(entries: list[Any]) -> dict[Any, list[tuple[Any, Any]]]:
    grouped: dict[Any, list[tuple[Any, Any]]] = {}
    for key, value in entries:
        grouped.setdefault(canonical(key), []).append((key, value))
    return grouped


def _items(entries: list[tuple[Any, Any]]) -> Any:
    """What stands under one key: nothing, one value, or (a key that is there several times) all of them."""
    return entries[0][1] if len(entries) == 1 else [value for _, value in entries] or None


def _quoted(key: Any) -> str:
    if isinstance(key, str):
        return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text(key)
