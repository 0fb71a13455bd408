"""What a set of signatures was made with, so that saved ones are compared only with their like; and how likely it is
that signatures hide an update (Labio and Garcia-Molina, section 3.2, equations 1 and 2).

A `Scheme` names the algorithm, the seed, the number of bits, the columns in order, each column's *kind* (its
type as far as hashing is concerned) and the normalisation that ran before hashing. Two signatures may be
compared only if their schemes are equal; `differences` says in words why they are not.

Kinds forget what hashing does not see: the width and sign of integers, the unit of times, the precision and scale of
decimals, the order of a struct's fields, large, view and dictionary encodings. A column of nothing but nulls (`null`)
hashes as nulls of any kind.

Two different records get the same signature of n bits with probability E = 2⁻ⁿ. A run that compares the
signatures of `records` matching records overlooks nothing with probability (1 − E)^records, and the number of
runs up to and including the first that overlooks something has the mean 1 / (1 − (1 − E)^records). Only records that
really changed can be overlooked. The paper counts every record of the file, as if all had changed; a caller who knows
the number of updates may pass that instead.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.errors import InputError, SchemaError, StateError
from strandline.values.type_unification import is_bytes, is_list, is_text

SIGNATURE_ALGORITHM = "sl3"
DEFAULT_SEED = 0x737472616E640001
MINIMUM_BITS = 32
MAXIMUM_BITS = 128
_DOING = "computing row signatures"


@dataclass(frozen=True)
class Scheme:
    """Everything that decides the value of a signature, besides the row.

    `normalisation` holds (column, rule) pairs in the order in which the rules ran; the rules themselves run
    before hashing and are not this module's business.
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    seed: int = DEFAULT_SEED
    bits: int = 64
    normalisation: tuple[tuple[str, str], ...] = ()
    algorithm: str = SIGNATURE_ALGORITHM

    def __post_init__(self) -> None:
        if not MINIMUM_BITS <= self.bits <= MAXIMUM_BITS:
            raise InputError(
                f"a signature has {MINIMUM_BITS} to {MAXIMUM_BITS} bits, not {self.bits}",
                doing=_DOING,
                hint="64 suits most tables",
            )
        if not 0 <= self.seed < 2**64:
            raise InputError(f"the seed {self.seed} is no unsigned 64-bit number", doing=_DOING)
        if len(self.columns) != len(self.kinds):
            raise InputError("a scheme needs one kind for each column", doing=_DOING)

    @property
    def fingerprint(self) -> str:
        """A short digest of the columns and their kinds, in order."""
        named = json.dumps([self.columns, self.kinds], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(named.encode()).hexdigest()[:16]

    @property
    def words(self) -> int:
        """How many 64-bit words one signature takes: 1 or 2."""
        return 1 if self.bits <= 64 else 2

    def to_json(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "seed": f"{self.seed:016x}",
            "bits": self.bits,
            "columns": list(self.columns),
            "kinds": list(self.kinds),
            "normalisation": [list(pair) for pair in self.normalisation],
            "fingerprint": self.fingerprint,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Scheme:
        """The scheme that `to_json` described; an unknown algorithm or a wrong fingerprint is refused."""
        if record.get("algorithm") != SIGNATURE_ALGORITHM:
            raise StateError(
                f"the signatures were made by {record.get('algorithm')!r}; this version knows {SIGNATURE_ALGORITHM!r}",
                doing="reading saved signatures",
                hint="Compare the old extract itself once more, and write a new state with --save-state",
            )
        try:
            scheme = Scheme(
                columns=tuple(str(name) for name in record["columns"]),
                kinds=tuple(str(kind) for kind in record["kinds"]),
                seed=int(str(record["seed"]), 16),
                bits=int(record["bits"]),
                normalisation=tuple((str(column), str(rule)) for column, rule in record["normalisation"]),
            )
        except (KeyError, TypeError, ValueError) as problem:
            raise StateError(
                f"the description of the signatures can't be read ({problem!r})",
                doing="reading saved signatures",
                hint="Compute them anew from the old extract",
            ) from problem
        if record.get("fingerprint") != scheme.fingerprint:
            raise StateError(
                "the description of the signatures contradicts its own fingerprint",
                doing="reading saved signatures",
                hint="Compute them anew from the old extract",
            )
        return scheme

    def differences(self, other: Scheme) -> tuple[str, ...]:
        """What keeps signatures of `self` (the saved ones) from being compared with those of `other`."""
        reasons = [
            f"{what}: {mine} was saved, {theirs} is asked for"
            for what, mine, theirs in (
                ("algorithm", self.algorithm, other.algorithm),
                ("seed", f"{self.seed:016x}", f"{other.seed:016x}"),
                ("bits", self.bits, other.bits),
                ("normalisation", _rules(self.normalisation), _rules(other.normalisation)),
            )
            if mine != theirs
        ]
        return (*reasons, *_column_differences(self, other))


def scheme_of(
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    seed: int = DEFAULT_SEED,
    bits: int = 64,
    normalisation: Sequence[tuple[str, str]] = (),
) -> Scheme:
    """The scheme for `columns` of a schema (all of them unless said), in the given order."""
    names = tuple(schema.names if columns is None else columns)
    missing = [name for name in names if schema.get_field_index(name) < 0]
    if missing:
        raise SchemaError(
            f"no single column is named {', '.join(map(repr, missing))} among {', '.join(schema.names)}",
            doing=_DOING,
        )
    return Scheme(
        columns=names,
        kinds=tuple(kind_of(schema.field(name).type) for name in names),
        seed=seed,
        bits=bits,
        normalisation=tuple(normalisation),
    )


def kind_of(type_: pa.DataType) -> str:
    """A type as far as hashing sees it.

    >>> kind_of(pa.int16()), kind_of(pa.large_list(pa.decimal128(9, 2)))
    ('integer', 'list<decimal>')
    """
    simple = _simple_kind(type_)
    if simple is not None:
        return simple
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return kind_of(type_.storage_type)
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return kind_of(type_.value_type)
    if types.is_map(type_):
        return f"map<{kind_of(type_.key_type)}, {kind_of(type_.item_type)}>"
    if is_list(type_):
        return f"list<{kind_of(type_.value_type)}>"
    if types.is_struct(type_):
        fields = [type_.field(place) for place in fields_by_name(type_)]
        return f"struct<{', '.join(f'{json.dumps(field.name)}: {kind_of(field.type)}' for field in fields)}>"
    raise SchemaError(f"values of type {type_} have no signature", doing=_DOING, hint="Leave the column out")


def _simple_kind(type_: pa.DataType) -> str | None:
    types = pa.types
    if types.is_timestamp(type_):
        return "instant" if type_.tz else "timestamp"
    tests = (
        ("integer", types.is_integer),
        ("decimal", types.is_decimal),
        ("float", types.is_floating),
        ("boolean", types.is_boolean),
        ("date", types.is_date),
        ("time", types.is_time),
        ("duration", types.is_duration),
        ("string", is_text),
        ("binary", is_bytes),
        ("null", types.is_null),
    )
    return next((kind for kind, test in tests if test(type_)), None)


def fields_by_name(type_: pa.StructType) -> list[int]:
    """The places of a struct's fields in the order of their names; fields of one name stay as they stand."""
    return sorted(range(type_.num_fields), key=lambda place: type_.field(place).name)


def kinds_meet(saved: str, asked: str) -> bool:
    """Whether signatures of two kinds may be compared: of one kind, or where one side has nulls alone."""
    return saved == asked or "null" in (saved, asked)


def _rules(normalisation: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{column} {rule}" for column, rule in normalisation) or "none"


def _column_differences(saved: Scheme, asked: Scheme) -> list[str]:
    before, after = (
        dict(zip(saved.columns, saved.kinds, strict=True)),
        dict(zip(asked.columns, asked.kinds, strict=True)),
    )
    reasons = [f"column {name} was saved and is not asked for" for name in saved.columns if name not in after]
    reasons += [f"column {name} is asked for and was not saved" for name in asked.columns if name not in before]
    reasons += [
        f"column {name}: {kind} was saved, {after[name]} is asked for"
        for name, kind in before.items()
        if name in after and not kinds_meet(kind, after[name])
    ]
    if not reasons and saved.columns != asked.columns:
        reasons.append(f"column order: {', '.join(saved.columns)} was saved, {', '.join(asked.columns)} is asked for")
    return reasons


def error_of_one_comparison(bits: int) -> float:
    """E: the probability that two different records have the same signature."""
    return 2.0**-bits


def miss_probability(records: int, error: float) -> float:
    """The probability that a run overlooks at least one update: 1 less equation 1, exact where that rounds to 1."""
    return -math.expm1(records * math.log1p(-error))


def expected_runs_to_first_miss(records: int, error: float) -> float:
    """Equation 2: how many runs pass, on average, up to the first that overlooks an update."""
    miss = miss_probability(records, error)
    return 1 / miss if miss else math.inf


def bits_for(records: int, target: float) -> int:
    """The fewest bits with which a run over so many records overlooks an update with at most `target`."""
    if not 0 < target < 1:
        raise InputError(
            f"a probability of {target} can't be aimed at",
            doing="choosing the bits of signatures",
            hint="Give a number between 0 and 1, such as 1e-6",
        )
    for bits in range(MINIMUM_BITS, MAXIMUM_BITS + 1):
        if miss_probability(records, error_of_one_comparison(bits)) <= target:
            return bits
    raise InputError(
        f"not even {MAXIMUM_BITS} bits make a miss among {records:,} records as unlikely as {target}",
        doing="choosing the bits of signatures",
        hint="Compare whole records instead, or verify the result",
    )
