"""Text to values, one definition for all: CSV fields, the values of hive folders, JSON strings given a type.

What a column of text may be is guessed over *all* its values, by the first of these that holds them all:
`bool` (true, false), `int64`, `float64`, `date`, `timestamp[us]`, `timestamp[us, tz=UTC]`, both with `ns` when a
fraction needs it, else `string`. A number with a leading zero or a plus sign, a whole number beyond 64 bits, and more
digits than a float64 keeps are all text, since reading them as numbers would lose something. An empty field is null
unless the column is text. A column without any value is text.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.errors import SchemaError

_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{%s})?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_WHOLE = r"^(0|-?[1-9][0-9]*)$"

# In order of preference: the type, and the pattern that every value must match before conversion is tried.
_CANDIDATES: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), r"^(true|false|True|False|TRUE|FALSE)$"),
    (pa.int64(), _WHOLE),
    (pa.float64(), r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|nan|-?inf|-?Infinity)$"),
    (pa.date32(), f"^{_DAY}$"),
    (pa.timestamp("us"), f"^{_DAY}({_CLOCK % '1,6'})?$"),
    (pa.timestamp("us", "UTC"), f"^{_DAY}{_CLOCK % '1,6'}{_ZONE}$"),
    (pa.timestamp("ns"), f"^{_DAY}({_CLOCK % '1,9'})?$"),
    (pa.timestamp("ns", "UTC"), f"^{_DAY}{_CLOCK % '1,9'}{_ZONE}$"),
)
_ALL = tuple(range(len(_CANDIDATES)))
_GLANCE = 64


class TextGuess:
    """What a column of text may still be, narrowed batch by batch."""

    def __init__(self) -> None:
        self._left = _ALL
        self._seen = False

    def narrow(self, values: pa.Array) -> None:
        """Takes more of the column's values into account; nulls and empty fields tell nothing."""
        if not self._left:
            return
        values = pc.unique(values)
        values = values.filter(pc.not_equal(values, ""))
        if len(values):
            self._seen = True
            self._left = tuple(number for number in self._left if _holds(number, values))

    @property
    def type(self) -> pa.DataType:
        return _CANDIDATES[self._left[0]][0] if self._seen and self._left else pa.string()


def guess_type(values: list[str | None]) -> pa.DataType:
    """The type of a few values of text.

    >>> guess_type(["1", "2"]), guess_type(["01", "02"]), guess_type(["2024-02-29", None])
    (DataType(int64), DataType(string), DataType(date32[day]))
    """
    guess = TextGuess()
    guess.narrow(pa.array(values, pa.string()))
    return guess.type


def convert_text(text: pa.Array, to: pa.DataType, column: str, before: int = 0) -> pa.Array:
    """The values that `text` means in the type `to`; `before` counts the rows already read, for the message."""
    try:
        return _convert(text, to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        bad = _first_bad(text, to)
        shown = f"{text[bad].as_py()!r} in row {before + bad + 1}" if bad is not None else str(error)
        raise SchemaError(
            f"the column {column!r} can't be read as {to}: {shown}",
            doing="reading text",
            hint=f"Give the column another type, for example types={{{column!r}: 'string'}}",
        ) from None


def _convert(text: pa.Array, to: pa.DataType) -> pa.Array:
    if pat.is_string(to) or pat.is_large_string(to) or pat.is_binary(to) or pat.is_large_binary(to):
        return text.cast(to)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
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


def _holds(number: int, values: pa.Array) -> bool:
    kind, pattern = _CANDIDATES[number]
    return all(
        pc.all(pc.match_substring_regex(some, pattern)).as_py() is not False
        for some in (values.slice(0, _GLANCE), values.slice(_GLANCE))
    ) and (_keeps_digits(values) if pat.is_floating(kind) else not _fails(values, kind))


def _keeps_digits(values: pa.Array) -> bool:
    """Whether a float64 keeps every digit: 17 significant ones, 15 in whole numbers."""
    mantissa = pc.replace_substring_regex(values, r"[eE].*$", "")
    digits = pc.replace_substring_regex(pc.replace_substring_regex(mantissa, r"[-.]", ""), r"^0+", "")
    allowed = pc.if_else(pc.match_substring_regex(values, _WHOLE), 15, 17)
    return pc.all(pc.less_equal(pc.utf8_length(digits), allowed)).as_py() is not False
