"""When two values count as the same although they are not equal: comparators by column or by type.

Two kinds. **Normalising** ones (`trim`, `casefold`, `empty`) map both values to a common form; what they call the
same is an equivalence relation, so they work with signatures too, before hashing. **Tolerances** (`abs:0.01`,
`rel:1e-6`, `time:2s`) are no equivalence relation (1.0 ~ 1.1 ~ 1.2): they need both values at hand, force exact
comparison, and mark the change set inexact. Integers, decimals, dates and instants are held against a tolerance
exactly, also where the types of both sides differ; floats with what their own rounding adds. The bound is included,
and excluded by `abs:<0.01`. An infinity is the same as itself alone.

A rule is text: one comparator or several, as in `trim casefold` or `abs:0.01`. Rules are given by column name, by
type (`string`, `number`, `time`) or for all (`*`); the column's own rule wins over its type's, that over `*`. A key
column takes `trim` and `casefold`, by its own name alone: rows are then matched by what these make of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import InputError
from strandline.values import ArrowColumn, Flags, comparable, is_number, is_plain_text, is_text, unequal

NORMALISING = ("trim", "casefold", "empty")
TOLERANCES = ("abs", "rel", "time")
_SECONDS = {
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    **{name: Fraction(seconds) for name, seconds in (("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86400))},
}
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPS = float(np.finfo(np.float64).eps)
_HINT = "Rules are trim, casefold, empty, abs:0.01, abs:<0.01, rel:1e-6, time:2s; several are separated by spaces"


@dataclass(frozen=True)
class Comparator:
    """The rule of one column: normalisations first, then at most one tolerance (an amount, or seconds)."""

    normalise: tuple[str, ...] = ()
    tolerance: str | None = None
    amount: Fraction = Fraction(0)
    exclusive: bool = False

    @property
    def is_equivalence(self) -> bool:
        return self.tolerance is None

    def normalised(self, column: ArrowColumn) -> ArrowColumn:
        """The column as normalising comparators see it."""
        for name in self.normalise:
            column = _NORMALISERS[name](column)
        return column

    def unequal(self, a: ArrowColumn, b: ArrowColumn) -> Flags:
        """True where the values of two columns do not count as the same."""
        a, b = self.normalised(a), self.normalised(b)
        if self.tolerance is None:
            return unequal(a, b)
        return _beyond(self, a, b)

    def __str__(self) -> str:
        bound = "<" if self.exclusive else ""
        tolerance = [f"{self.tolerance}:{bound}{float(self.amount):g}"] if self.tolerance else []
        return " ".join([*self.normalise, *tolerance])


def parse_comparator(rule: str) -> Comparator:
    """The comparator that a rule describes.

    >>> parse_comparator("trim casefold")
    Comparator(normalise=('trim', 'casefold'), tolerance=None, amount=Fraction(0, 1), exclusive=False)
    """
    normalise: list[str] = []
    tolerance: tuple[str, Fraction, bool] | None = None
    for word in rule.replace(",", " ").split():
        name, _, amount = word.partition(":")
        if name in NORMALISING and not amount:
            normalise.append(name)
        elif name in TOLERANCES and tolerance is None:
            bound = amount.removeprefix("<")
            tolerance = (name, _amount(name, bound, rule), bound != amount)
        else:
            raise InputError(f"{word!r} in the rule {rule!r} is no comparator", doing="reading --compare", hint=_HINT)
    if not normalise and tolerance is None:
        raise InputError(f"the rule {rule!r} is empty", doing="reading --compare", hint=_HINT)
    if tolerance is not None and tolerance[2] and not tolerance[1]:
        raise InputError(f"nothing is nearer than 0, as {rule!r} asks", doing="reading --compare", hint=_HINT)
    return Comparator(tuple(normalise), *(tolerance or ()))


def comparators_for(schema: pa.Schema, rules: Mapping[str, str]) -> dict[str, Comparator]:
    """The comparator of each column that has one; a rule that fits no column, or not its type, is refused."""
    unknown = [name for name in rules if name not in (*schema.names, *RULES_OF_KINDS)]
    if unknown:
        raise InputError(
            f"there is no column {unknown[0]!r} to compare by {rules[unknown[0]]!r}",
            doing="reading --compare",
            hint=f"The columns are {', '.join(schema.names)}; the kinds are {', '.join(_KINDS)} and *",
        )
    chosen: dict[str, Comparator] = {}
    for field in schema:
        kind = next((kind for kind, holds in _KINDS.items() if holds(field.type)), None)
        if field.name in rules:
            chosen[field.name] = _fitting(parse_comparator(rules[field.name]), field, named=True)
        elif kind in rules:
            chosen[field.name] = _fitting(parse_comparator(rules[str(kind)]), field, named=True)
        elif "*" in rules:
            chosen[field.name] = _fitting(parse_comparator(rules["*"]), field, named=False)
    return {name: comparator for name, comparator in chosen.items() if comparator != Comparator()}


def key_comparators(schema: pa.Schema, rules: Mapping[str, str]) -> dict[str, Comparator]:
    """The comparators of key columns, which are those of `schema`: normalising ones, given by name."""
    chosen = {}
    for field in schema:
        if field.name in rules:
            comparator = _fitting(parse_comparator(rules[field.name]), field, named=True)
            if comparator.tolerance or "empty" in comparator.normalise:
                raise InputError(
                    f"the rule {rules[field.name]!r} is not for key column {field.name!r}: rows are matched by values "
                    "that are the same or not",
                    doing="reading --compare",
                    hint="Keys take trim and casefold",
                )
            chosen[field.name] = comparator
    return chosen


def _fitting(comparator: Comparator, field: pa.Field, *, named: bool) -> Comparator:
    """The comparator, if it fits the column's type; a rule for all columns is cut down to what fits."""
    text = _is_text(field.type)
    tolerance_fits = comparator.tolerance is None or _tolerance_fits(comparator.tolerance, field.type)
    if (text or not comparator.normalise) and tolerance_fits:
        return comparator
    if named:
        raise InputError(
            f"the rule {str(comparator)!r} does not fit column {field.name!r}, which is {field.type}",
            doing="reading --compare",
            hint="trim, casefold and empty are for text; abs and rel for numbers; time for dates and instants",
        )
    kept: tuple[Any, ...] = ()
    if tolerance_fits and comparator.tolerance:
        kept = (comparator.tolerance, comparator.amount, comparator.exclusive)
    return Comparator(comparator.normalise if text else (), *kept)


def _amount(name: str, text: str, rule: str) -> Fraction:
    parsed = re.fullmatch(r"([0-9.]+(?:e[-+]?\d{1,3})?)(us|ms|s|min|m|h|d)?", text)
    try:
        amount = Fraction(parsed[1]) if parsed else Fraction(-1)
    except ValueError:
        amount = Fraction(-1)
    if parsed is None or not 0 <= amount < 10**300 or (parsed[2] is not None) != (name == "time"):
        example = "time:2s" if name == "time" else f"{name}:0.01"
        raise InputError(
            f"{text!r} is no amount for {name} in {rule!r}", doing="reading --compare", hint=f"As {example}"
        )
    return amount * _SECONDS[parsed[2]] if parsed[2] else amount


def _beyond(comparator: Comparator, a: ArrowColumn, b: ArrowColumn) -> Flags:
    """True where two values are further apart than the tolerance. Null equals null alone, NaN equals NaN alone."""
    (a, per_a), (b, per_b) = _numbers(a), _numbers(b)
    exact = per_a == per_b and comparator.tolerance != "rel"
    null_a, null_b = _nulls(a), _nulls(b)
    if exact and pt.is_integer(a.type) and a.type == b.type:
        far = _beyond_as_integers(comparator, a, b, per_a)
    else:
        far = _beyond_as_doubles(comparator, (a, per_a), (b, per_b), known=~(null_a | null_b))
    result: Flags = np.where(null_a | null_b, null_a != null_b, far)
    return result


def _beyond_as_integers(comparator: Comparator, a: ArrowColumn, b: ArrowColumn, per_second: Fraction) -> Flags:
    """Integers, dates and instants of one type: the difference of two 64-bit numbers is exact as one without a sign."""
    x, y = (np.array(pc.fill_null(column, 0)) for column in (a, b))
    within = comparator.amount * per_second
    if comparator.exclusive:
        within = Fraction(-(-within.numerator // within.denominator) - 1)  # the largest whole number below it
    apart = np.where(x > y, x.view(np.uint64) - y.view(np.uint64), y.view(np.uint64) - x.view(np.uint64))
    result: Flags = apart > np.uint64(min(within.numerator // within.denominator, 2**64 - 1))
    return result


def _beyond_as_doubles(
    comparator: Comparator, a: tuple[ArrowColumn, Fraction], b: tuple[ArrowColumn, Fraction], *, known: Flags
) -> Flags:
    """Doubles decide where they can tell; what lies near the bound is computed exactly, unless both are floats."""
    sides = ((pc.fill_null(column.cast(pa.float64(), safe=False), 0.0), float(per_one)) for column, per_one in (a, b))
    x, y = (np.asarray(doubles, dtype=np.float64) / per_one for doubles, per_one in sides)
    relative, amount = comparator.tolerance == "rel", float(comparator.amount)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(x), np.abs(y))
        margin = np.abs(x - y) - amount * (size if relative else 1.0)
        floats = all(pt.is_floating(column.type) for column, _ in (a, b))
        # What the doubles' own rounding adds to a difference must not push it over a bound that is included, and what
        # it takes away not below one that is excluded.
        rounding = (4 if floats else 8 * (1 + amount)) * _EPS * size
        far = (margin >= -rounding) & (x != y) if comparator.exclusive else margin > rounding
    finite = np.isfinite(x) & np.isfinite(y)
    if not floats:
        near = np.flatnonzero(known & finite & ~(np.abs(margin) > rounding))
        pairs = zip(_exact(a, near), _exact(b, near), strict=True)
        far[near] = [_beyond_exactly(comparator, before, after) for before, after in pairs]
    result: Flags = np.where(finite, far, (x != y) & ~(np.isnan(x) & np.isnan(y)))
    return result


def _beyond_exactly(comparator: Comparator, a: tuple[Fraction, Fraction], b: tuple[Fraction, Fraction]) -> bool:
    """Two finite values, each with how far it may lie from the number that it was rounded from."""
    (left, slack), (right, more) = a, b
    apart = abs(left - right)
    bound = comparator.amount * (max(abs(left), abs(right)) if comparator.tolerance == "rel" else 1)
    if comparator.exclusive:
        return apart > 0 and apart >= bound - slack - more
    return apart > bound + slack + more


def _exact(column: tuple[ArrowColumn, Fraction], places: Any) -> Iterator[tuple[Fraction, Fraction]]:
    """The values at these places, each with half the gap between doubles there if it is a fraction of a float: whole
    numbers, which all large floats are, are taken as they are.
    """
    values, per_one = column
    for value in values.take(pa.array(places)).to_pylist():
        rounded = isinstance(value, float) and not value.is_integer()
        yield Fraction(value) / per_one, Fraction(math.ulp(value) / 2 if rounded else 0)


def _numbers(column: ArrowColumn) -> tuple[ArrowColumn, Fraction]:
    """The column as numbers, integers of 64 bits, and how many of them make one: for times, a second."""
    type_ = column.type
    if pt.is_timestamp(type_):
        return column.cast(pa.int64()), Fraction(_TICKS[type_.unit])
    if pt.is_date(type_):  # a date is its day, whatever its milliseconds
        return comparable(column, pa.date32()).cast(pa.int64()), Fraction(1, 86400)
    if pt.is_integer(type_):
        column = column.cast(pa.uint64() if type_ == pa.uint64() else pa.int64())
    return column, Fraction(1)


def _nulls(column: ArrowColumn) -> Flags:
    return np.asarray(column.is_null(), dtype=np.bool_)


def _is_text(type_: pa.DataType) -> bool:
    return is_text(type_.value_type if pt.is_dictionary(type_) else type_)


def _is_time(type_: pa.DataType) -> bool:
    return bool(pt.is_timestamp(type_) or pt.is_date(type_))


def _tolerance_fits(tolerance: str, type_: pa.DataType) -> bool:
    return _is_time(type_) if tolerance == "time" else is_number(type_)


def _text(column: ArrowColumn) -> ArrowColumn:
    return column if is_plain_text(column.type) else column.cast(pa.large_string())


def _casefolded(column: ArrowColumn) -> ArrowColumn:
    """Unicode's case folding, which Arrow does not have: ß is ss, final sigma is sigma, and İ is no I."""
    if pc.all(pc.string_is_ascii(column)).as_py() is not False:
        return pc.ascii_lower(column)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_casefolded(chunk) for chunk in column.chunks], column.type)
    distinct = column.dictionary_encode()
    folded = pa.array([text.casefold() for text in distinct.dictionary.to_pylist()], column.type)
    return folded.take(distinct.indices)


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {"string": _is_text, "number": is_number, "time": _is_time}
RULES_OF_KINDS = (*_KINDS, "*")
"""What a rule may be for, instead of a column."""
_NORMALISERS: dict[str, Callable[[ArrowColumn], ArrowColumn]] = {
    "trim": lambda column: pc.utf8_trim_whitespace(_text(column)),
    "casefold": lambda column: _casefolded(_text(column)),
    "empty": lambda column: pc.if_else(pc.equal(pc.utf8_length(_text(column)), 0), None, _text(column)),
}
