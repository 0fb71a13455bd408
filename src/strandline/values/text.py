"""Text to values, one definition for all: CSV fields, the values of hive folders, JSON strings given a type.

What a column of text may be is guessed over *all* its values, by the first of these that holds them all:
`bool` (true, false), `int64`, `float64`, `date`, `timestamp[us]`, `timestamp[us, tz=UTC]`, both with `ns` when a
fraction needs it, else `string`. A number with a leading zero or a plus sign, a whole number beyond 64 bits, and more
digits than a float64 keeps are all text, since reading them as numbers would lose something. An empty field is null
unless the column is text. A column without any value is text.
"""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.errors import SchemaError
from strandline.values.type_unification import is_variable_width

_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{%s})?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FLOAT = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|nan|-?inf|-?Infinity)$"
_BOOLS = ["true", "false", "True", "False", "TRUE", "FALSE"]
# Microseconds from 1970 that 64 bits of nanoseconds hold, too; exclusive.
_NANO_LIMIT = (1 << 63) // 1000

# Chains of types, each holding all values of the one before it (where `_widens` agrees); no value fits two chains.
_CHAINS: tuple[tuple[pa.DataType, ...], ...] = (
    (pa.bool_(),),
    (pa.int64(), pa.float64()),
    (pa.date32(), pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
)
_GLANCE = 64


class TextGuess:
    """What a column of text may still be, narrowed batch by batch.

    The first values choose a chain of types; later ones only move up it. Nothing is looked at twice: moving up is
    allowed only if all values seen so far, whose extremes are remembered, fit the wider type too.
    """

    def __init__(self) -> None:
        self._left: tuple[pa.DataType, ...] | None = None
        self._least: int | None = None
        self._greatest: int | None = None

    def narrow(self, values: pa.Array) -> None:
        """Takes more of the column's values into account; nulls and empty fields tell nothing."""
        if self._left == ():
            return
        values = values.filter(pc.not_equal(values, ""))
        if len(values) == 0:
            return
        if self._left is None:
            self._left = _chain_of(values.slice(0, _GLANCE))
        while self._left:
            typed = _values(values, self._left[0])
            if typed is not None:
                self._remember(typed)
                return
            self._widen()

    @property
    def type(self) -> pa.DataType:
        return self._left[0] if self._left else pa.string()

    @property
    def is_open(self) -> bool:
        """Whether no value was seen at all."""
        return self._left is None

    def _remember(self, typed: pa.Array) -> None:
        if not (pat.is_int64(typed.type) or pat.is_date32(typed.type) or pat.is_timestamp(typed.type)):
            return
        if not pat.is_int64(typed.type):
            typed = typed.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        ends = pc.min_max(typed)
        least, greatest = ends["min"].as_py(), ends["max"].as_py()
        self._least = least if self._least is None else min(self._least, least)
        self._greatest = greatest if self._greatest is None else max(self._greatest, greatest)

    def _widen(self) -> None:
        wider = self._left[1:] if self._left else ()
        if wider and self._least is not None and self._greatest is not None:
            wider = wider if _widens(wider[0], self._least, self._greatest) else ()
        self._left = wider


def _chain_of(values: pa.Array) -> tuple[pa.DataType, ...]:
    for chain in _CHAINS:
        for place, kind in enumerate(chain):
            if _values(values, kind) is not None:
                return chain[place:]
    return ()


def _widens(to: pa.DataType, least: int, greatest: int) -> bool:
    """Whether all numbers, or times in microseconds, from `least` to `greatest` keep their meaning in `to`."""
    if pat.is_floating(to):
        return least > -(10**15) and greatest < 10**15
    if pat.is_timestamp(to) and to.unit == "ns":
        return least > -_NANO_LIMIT and greatest < _NANO_LIMIT
    return True


def _values(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values, if every text is one of `kind` and keeps all that it says; else None."""
    if pat.is_boolean(kind):
        return text if pc.all(pc.is_in(text, pa.array(_BOOLS))).as_py() else None
    if pat.is_floating(kind) and not (_all_match(text, _FLOAT) and _keeps_digits(text)):
        return None
    if pat.is_timestamp(kind) and not _all_match(text, _time_pattern(kind)):
        return None
    try:
        typed = _convert(text, kind)
    except pa.ArrowInvalid:
        return None
    if (pat.is_integer(kind) or pat.is_date(kind)) and not typed.cast(pa.string()).equals(text):
        return None
    if pat.is_floating(kind) and not _in_range(text, typed):
        return None
    return typed


def _time_pattern(kind: pa.DataType) -> str:
    clock = _CLOCK % ("1,9" if kind.unit == "ns" else "1,6")
    return f"^{_DAY}({clock})?$" if kind.tz is None else f"^{_DAY}{clock}{_ZONE}$"


def _all_match(text: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False


def _in_range(text: pa.Array, floats: pa.Array) -> bool:
    """Whether what became infinite or zero was so in the text: 1e400 and 1e-400 are beyond a float64."""
    infinite, zero = text.filter(pc.is_inf(floats)), text.filter(pc.equal(floats, 0.0))
    return _all_match(pc.utf8_lower(infinite), r"^-?inf") and _all_match(pc.utf8_lower(zero), r"^-?0(\.0+)?(e.*)?$")


def _keeps_digits(text: pa.Array) -> bool:
    """Whether a float64 keeps every digit: 17 significant ones, 15 in whole numbers."""
    if pc.max(pc.binary_length(text)).as_py() <= 15:
        return True
    mantissa = pc.replace_substring_regex(text, r"[eE].*$", "")
    digits = pc.replace_substring_regex(pc.replace_substring_regex(mantissa, r"[-.]", ""), r"^0+", "")
    allowed = pc.if_else(pc.match_substring_regex(text, r"^-?[0-9]+$"), 15, 17)
    return pc.all(pc.less_equal(pc.utf8_length(digits), allowed)).as_py() is not False


def guess_type(values: list[str | None]) -> pa.DataType:
    """The type of a few values of text.

    >>> guess_type(["1", "2"]), guess_type(["01", "02"]), guess_type(["2024-02-29", None])
    (DataType(int64), DataType(string), DataType(date32[day]))
    """
    guess = TextGuess()
    guess.narrow(pa.array(values, pa.string()))
    return guess.type


_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds_of(given: float | str) -> float | None:
    """A length of time in seconds, from a number of them or from text; None where it is none.

    >>> seconds_of("36h"), seconds_of("1.5 min"), seconds_of(1e-6), seconds_of("a while"), seconds_of(float("nan"))
    (129600.0, 90.0, 1e-06, None, None)
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given) if 0 <= given < math.inf else None
    parsed = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-z]*)\s*", str(given))
    return float(parsed[1]) * _SECONDS[parsed[2]] if parsed and parsed[2] in _SECONDS else None


def convert_text(
    text: pa.Array, to: pa.DataType, column: str, before: int = 0, *, empty_is_null: bool = True
) -> pa.Array:
    """The values that `text` means in the type `to`; `before` counts the rows already read, for the message.

    An empty field of CSV or of a folder's name is null; an empty string of other formats is no number and no date.
    """
    if empty_is_null and not is_variable_width(to):
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    try:
        return _convert(text, to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        bad = _first_bad(text, to)
        shown = f"{text[bad].as_py()!r} in row {before + bad + 1}" if bad is not None else str(error)
        raise SchemaError(
            f"the column {column!r} can't be read as {to}: {shown}",
            doing="reading text",
            hint=_hint(column, text[bad].as_py() if empty_is_null and bad is not None else None),
        ) from None


def _hint(column: str, bad: str | None) -> str:
    """A short word is likely to stand for null; other text is of another type."""
    if bad is not None and len(bad) <= 4 and not any(char.isdigit() for char in bad):
        return f"If {bad!r} means null, say so: --nulls {bad} (nulls=[{bad!r}])"
    return f"Give the column another type: --types {column}=string (types={{{column!r}: 'string'}})"


def _convert(text: pa.Array, to: pa.DataType) -> pa.Array:
    if pat.is_timestamp(to) and to.tz is not None:
        return _instants(text, to)
    if pat.is_time(to):
        day = pc.binary_join_element_wise(pa.scalar("1970-01-01", text.type), text, pa.scalar(" ", text.type))
        return day.cast(pa.timestamp("ns" if to.unit == "ns" else "us")).cast(to)
    return text.cast(to)


def _instants(text: pa.Array, to: pa.DataType) -> pa.Array:
    """Times with an offset are that instant; times without one are local times of the zone asked for."""
    zoned = pc.match_substring_regex(text, f":.*{_ZONE}$")
    nothing = pa.scalar(None, text.type)
    given = pc.if_else(zoned, text, nothing).cast(to)
    local = pc.if_else(zoned, nothing, text).cast(pa.timestamp(to.unit))
    return pc.coalesce(given, pc.assume_timezone(local, to.tz))


def _first_bad(text: pa.Array, to: pa.DataType) -> int | None:
    start, length = 0, len(text)
    if not _fails(text, to):
        return None
    while length > 1:
        half = length // 2
        if _fails(text.slice(start, half), to):
            length = half
        else:
            start, length = start + half, length - half
    return start


def _fails(text: pa.Array, to: pa.DataType) -> bool:
    try:
        _convert(text, to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return True
    return False
