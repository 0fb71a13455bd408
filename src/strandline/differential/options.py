"""What a differential can be told, beyond its two sides and its key."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from strandline.differential.window import WindowOptions
from strandline.errors import InputError, did_you_mean
from strandline.relations import ReadOptions, names_of
from strandline.values import DEFAULT_SEED, MAXIMUM_BITS, MINIMUM_BITS

ALGORITHMS = ("auto", "merge", "hash", "kb", "kbp", "window")
DUPLICATES = ("error", "count", "pair")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}

LEAST_MEMORY = 64 << 20
"""What one task has at least, whatever its machine: no plan is made with less for all of them."""


@dataclass(frozen=True)
class DiffOptions:
    """The options of `diff`, each also an option of the command.

    `columns` are the only ones compared, `ignore` are left out; `rename` maps names of the old side to those of the
    new one, and `any_case` those that differ in case alone. `carry` takes the values of added columns along: the old
    side's rows count as null there. `compare` gives comparators by column, kind or `*`. `where`
    restricts both sides. `state` is a folder of
    signatures that stands for the old side and is replaced at the end; `save_state` only writes one. `bits`,
    `miss_probability` (bits from a target), `seed` and `column_signatures` shape what is written. `verify` re-checks
    a result found by signatures exactly, against the old extract. `aging`, `block`, `slices` are the window's.
    `changed` is the share of rows expected to have changed, for choosing an algorithm. `keep_sorted` is a folder for
    the new side in key order. `old_query` and `new_query` are read instead of a table of the database that a side
    names; `old_version` and `new_version` are numbers or times of Delta and Iceberg tables. `fail_over` is the share of
    changed rows beyond which there is no result.
    """

    algorithm: str = "auto"
    duplicates: str = "error"
    columns: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    compare: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    strict_schema: bool = False
    any_case: bool = False
    carry: bool = False
    state: str | None = None
    save_state: str | None = None
    bits: int | None = None
    miss_probability: float | None = None
    seed: int = DEFAULT_SEED
    column_signatures: bool = False
    verify: bool | str = False
    memory: int | None = None
    changed: float = 0.01
    aging: int = WindowOptions.aging_bytes
    block: int = WindowOptions.block_bytes
    slices: int | None = None
    keep_sorted: str | None = None
    fail_over: float | None = None
    old_format: str | None = None
    new_format: str | None = None
    old_query: str | None = None
    new_query: str | None = None
    old_version: int | str | dt.datetime | None = None
    new_version: int | str | dt.datetime | None = None
    read_old: ReadOptions = field(default_factory=ReadOptions)
    read_new: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, ALGORITHMS)
        _one_of("duplicates", self.duplicates, DUPLICATES)
        if self.columns and self.ignore:
            raise InputError(
                "columns and ignore are both given", doing="reading options", hint="Say what to compare, or what not"
            )
        if self.bits is not None and self.miss_probability is not None:
            raise InputError(
                "bits and miss_probability are both given", doing="reading options", hint="Give one of them"
            )
        if self.keep_sorted is not None and self.algorithm != "merge":
            raise InputError(
                f"keep_sorted is given, but the algorithm is {self.algorithm}",
                doing="reading options",
                hint="Only merge sorts the new side: leave the algorithm out, or say merge",
            )
        for name in ("state", "save_state", "keep_sorted"):
            if getattr(self, name) == "":
                raise InputError(f"{name} is an empty name", doing="reading options", hint="Name a folder")
        if self.duplicates == "pair" and (self.state is not None or self.save_state is not None):
            raise InputError(
                "duplicates are paired, and signatures of them are to be kept",
                doing="reading options",
                hint="Signatures need a key that is unique: leave out the state, or the pairing",
            )
        if self.slices is not None and self.slices < 1:
            raise InputError(f"slices is {self.slices}", doing="reading options", hint="Give 1 or more")
        if self.bits is not None and not MINIMUM_BITS <= self.bits <= MAXIMUM_BITS:
            raise InputError(
                f"a signature has {MINIMUM_BITS} to {MAXIMUM_BITS} bits, not {self.bits}",
                doing="reading options",
                hint="64 suits most tables",
            )
        if self.miss_probability is not None and not 0 < self.miss_probability < 1:
            raise InputError(
                f"a probability of {self.miss_probability} can't be aimed at",
                doing="reading options",
                hint="Give a number between 0 and 1, such as 1e-6",
            )
        if self.memory is not None and self.memory < LEAST_MEMORY:
            raise InputError(
                f"{self.memory:,} bytes of memory are too few to plan with: the pieces would be so small that their "
                "number is what takes time",
                doing="reading options",
                hint=f"Give {LEAST_MEMORY >> 20} MB or more, with the unit, as in 4GB; or leave it out",
            )
        if self.fail_over is not None and not self.fail_over >= 0:
            raise InputError(
                f"fail_over is {self.fail_over}", doing="reading options", hint="Give a share, such as 30%"
            )

    @property
    def reading_old(self) -> ReadOptions:
        """How the old side is read, the options for it alone included."""
        version = self.read_old.version if self.old_version is None else self.old_version
        return replace(self.read_old, query=self.old_query or self.read_old.query, version=version)

    @property
    def reading_new(self) -> ReadOptions:
        version = self.read_new.version if self.new_version is None else self.new_version
        return replace(self.read_new, query=self.new_query or self.read_new.query, version=version)

    @property
    def window(self) -> WindowOptions:
        return WindowOptions(aging_bytes=self.aging, block_bytes=self.block)


class DiffKeywords(TypedDict, total=False):
    """The options of `diff` as its keywords, for editors and type checkers: shares and sizes may be text, too."""

    algorithm: str
    duplicates: str
    columns: str | Sequence[str] | None
    ignore: str | Sequence[str]
    rename: Mapping[str, str]
    compare: Mapping[str, str]
    where: str | None
    params: Mapping[str, Any]
    strict_schema: bool
    any_case: bool
    carry: bool
    state: str | None
    save_state: str | None
    bits: int | None
    miss_probability: float | None
    seed: int
    column_signatures: bool
    verify: bool | str
    memory: int | str | None
    changed: float | str
    aging: int | str
    block: int | str
    slices: int | None
    keep_sorted: str | None
    fail_over: float | str | None
    old_format: str | None
    new_format: str | None
    old_query: str | None
    new_query: str | None
    old_version: int | str | dt.datetime | None
    new_version: int | str | dt.datetime | None
    read_old: ReadOptions
    read_new: ReadOptions


def options_from(given: Mapping[str, Any]) -> DiffOptions:
    """Options from keywords; an unknown one is refused with the nearest known. Sizes and shares may be text."""
    known = {option.name for option in fields(DiffOptions)}
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, most=1) or f"The options are {', '.join(sorted(known))}"
            raise InputError(f"unknown option {name!r}", doing="reading the options of diff", hint=hint)
    values = dict(given)
    if values.get("keep_sorted") is not None and values.get("algorithm", "auto") == "auto":
        values["algorithm"] = "merge"
    for name in ("columns", "ignore"):
        if name in values:
            values[name] = names_of(values[name])
    if given.get("columns") is not None and not any(values["columns"]):
        raise InputError(
            "columns names no column",
            doing="reading options",
            hint="Leave it out to compare all of them, or name the key to compare keys alone",
        )
    for name in ("aging", "block", "memory"):
        if values.get(name) is not None:
            values[name] = size(values[name])
    for name in ("changed", "fail_over"):
        if values.get(name) is not None:
            values[name] = share(values[name])
    return DiffOptions(**values)


def size(given: int | str) -> int:
    """Bytes, from a number or from text such as 64MB.

    >>> size("64MB"), size(100)
    (67108864, 100)
    """
    if isinstance(given, int):
        return given
    parsed = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmg]?b?)\s*", given.lower())
    if not parsed:
        raise InputError(f"{given!r} is no size", doing="reading options", hint="Say for example 64MB")
    return int(float(parsed[1]) * _UNITS[parsed[2]])


def share(given: float | str) -> float:
    """A share of rows, from a number or from text such as 30%. Above 1 only with the sign: 10 may be meant as 10%.

    >>> share("30%"), share(0.5), share("150%")
    (0.3, 0.5, 1.5)
    """
    parsed = re.fullmatch(r"\s*([0-9]*\.?[0-9]+|[0-9]+\.)(?:e-[0-9]+)?\s*(%?)\s*", str(given))
    if not parsed or isinstance(given, bool):
        raise InputError(f"{given!r} is no share", doing="reading options", hint='Say for example "30%" or 0.3')
    number = float(str(given).strip().removesuffix("%"))
    if number > 1 and not parsed[2]:
        raise InputError(
            f"{given!r} is more than all rows",
            doing="reading options",
            hint=f'Write "{number:g}%" or {number / 100:g} if that is meant, and "{number * 100:g}%" otherwise',
        )
    return number / 100 if parsed[2] else number


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"{name} is {value!r}", doing="reading options", hint=f"Choose one of {', '.join(allowed)}")
