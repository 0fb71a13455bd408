"""What is compared with what: which columns of two sides meet, by which key, and what counts as the same.

A `Comparison` is plain facts and travels to kernels as JSON. A `Side` is what one kernel reads of one relation: scans,
which of their columns, and what these are called here. `read_side` gives the rows as the comparison sees them, and
`compare` is the step that every exact algorithm ends in: two tables in memory, one change set.

Where keys may repeat (`pair`), rows of a key are numbered on both sides so that partners share a number: identical rows
first, then the pairs that differ in the fewest columns; what finds no partner gets numbers of its own. The numbers
depend on the rows' values alone, never on their order in the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes import COUNTED, ChangeSet, Header, counted_header, difference, keyed_difference, keyed_header
from strandline.differential.comparators import Comparator, comparators_for, key_comparators
from strandline.relations import Scan, read_scan, read_table
from strandline.storage import JsonRecord, cached_property
from strandline.values import Numbers, comparable, free_name, key_numbers, no_rows, parse_condition

COPY = "_copy"
EXHAUSTIVE = 4096
"""Up to so many possible pairs of one key all are weighed; beyond, rows are paired in the order of their values."""


def number_copies(old: pa.Table, new: pa.Table, key: Sequence[str], column: str) -> tuple[pa.Table, pa.Table]:
    """Both tables with a `column` that makes the key unique: 0, or the number of the pair within the key."""
    old_numbers, new_numbers = key_numbers(old.select(key), new.select(key))
    copies = np.zeros(len(old), dtype=np.int32), np.zeros(len(new), dtype=np.int32)
    shared = [name for name in old.column_names if name in new.column_names and name not in key]
    repeated = np.union1d(_repeated(old_numbers), _repeated(new_numbers))
    groups = [_groups(numbers, repeated) for numbers in (old_numbers, new_numbers)]
    rows = [
        _values(table, other, shared, np.concatenate([*group.values(), np.empty(0, np.int64)]).astype(np.int64))
        for table, other, group in ((old, new, groups[0]), (new, old, groups[1]))
    ]
    nothing = np.empty(0, dtype=np.int64)
    for number in repeated.tolist():
        mine, theirs = groups[0].get(number, nothing), groups[1].get(number, nothing)
        for side, positions, numbers in zip(
            (0, 1), (mine, theirs), _pair([rows[0][p] for p in mine], [rows[1][p] for p in theirs]), strict=True
        ):
            copies[side][positions] = numbers
    return old.append_column(column, pa.array(copies[0])), new.append_column(column, pa.array(copies[1]))


def _pair(old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> tuple[list[int], list[int]]:
    """Numbers for the rows of one key, equal for partners."""
    numbers: tuple[dict[int, int], dict[int, int]] = {}, {}
    given = 0
    order = sorted(range(len(old)), key=lambda n: repr(old[n])), sorted(range(len(new)), key=lambda n: repr(new[n]))
    waiting: dict[str, list[int]] = {}
    for n in order[1]:
        waiting.setdefault(repr(new[n]), []).append(n)
    for n in order[0]:
        if partners := waiting.get(repr(old[n])):
            numbers[0][n], numbers[1][partners.pop(0)] = given, given
            given += 1
    left = [n for n in order[0] if n not in numbers[0]]
    right = [n for n in order[1] if n not in numbers[1]]
    for a, b in _closest(left, right, old, new):
        numbers[0][a], numbers[1][b] = given, given
        given += 1
    for side, rest in ((0, left), (1, right)):
        for n in rest:
            if n not in numbers[side]:
                numbers[side][n] = given
                given += 1
    return [numbers[0][n] for n in range(len(old))], [numbers[1][n] for n in range(len(new))]


def _closest(
    left: list[int], right: list[int], old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]
) -> list[tuple[int, int]]:
    """Pairs of the rows that are left, those that differ least first; ties go by the order of values."""
    if len(left) * len(right) > EXHAUSTIVE:
        return list(zip(left, right, strict=False))
    weighed = sorted(
        (sum(repr(x) != repr(y) for x, y in zip(old[a], new[b], strict=True)), i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
    )
    taken: tuple[set[int], set[int]] = set(), set()
    pairs = []
    for _, i, j in weighed:
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            pairs.append((left[i], right[j]))
    return pairs


def _repeated(numbers: Numbers) -> Numbers:
    values, counts = np.unique(numbers, return_counts=True)
    return values[counts > 1]


def _groups(numbers: Numbers, wanted: Numbers) -> dict[int, Numbers]:
    """The positions of each wanted number."""
    places = np.flatnonzero(np.isin(numbers, wanted))
    positions_of: dict[int, list[int]] = {}
    for place, number in zip(places.tolist(), numbers[places].tolist(), strict=True):
        positions_of.setdefault(number, []).append(place)
    return {number: np.asarray(positions, dtype=np.int64) for number, positions in positions_of.items()}


def _values(table: pa.Table, other: pa.Table, names: Sequence[str], places: Numbers) -> dict[int, tuple[Any, ...]]:
    """Canonical values of the rows at these places, by place: equal exactly where the values are equal."""
    if not len(places):
        return {}
    chosen = table.select(names).take(pa.array(places))
    columns = [comparable(chosen.column(name), other.schema.field(name).type).to_pylist() for name in names]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(places))
    return dict(zip(places.tolist(), rows, strict=True))


@dataclass(frozen=True)
class Comparison(JsonRecord):
    """What is compared. `old_schema` and `new_schema` are the sides' columns that take part, under their common names.

    Without a key rows are compared as a whole and counted. `rules` are comparators by column, kind or `*`; those of key
    columns fold the keys of both sides, which stand folded in the result. With `pair`
    the key need not be unique: rows of one key are paired by likeness, and `_copy` numbers them in the result.
    """

    old_schema: pa.Schema
    new_schema: pa.Schema
    key: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    pair: bool = False

    @cached_property
    def header(self) -> Header:
        """The header of the resulting change set, its counts still empty."""
        return self.check_schemas()

    def check_schemas(self) -> Header:
        """The header, once it is sure that schemas and key fit together."""
        if not self.key:
            return counted_header(self.old_schema, self.new_schema)
        old, new, key, derived = self.old_schema, self.new_schema, self.key, tuple(self.folding)
        if self.pair:
            derived = (*derived, self.copy_column)
            copy = pa.field(self.copy_column, pa.int32())
            old, new, key = old.append(copy), new.append(copy), (*key, self.copy_column)
        header = replace(keyed_header(old, new, key), derived_key=derived)
        return replace(header, inexact=any(not rule.is_equivalence for rule in self._comparators(header).values()))

    @cached_property
    def comparators(self) -> dict[str, Comparator]:
        """The comparator of each value column that has one."""
        return self._comparators(self.header)

    @cached_property
    def folding(self) -> dict[str, Comparator]:
        """The comparator of each key column that has one: its values are folded before anything else is done."""
        sides = [pa.schema([side.field(name) for name in self.key]) for side in (self.old_schema, self.new_schema)]
        return [key_comparators(side, self.rules) for side in sides][1]

    def _comparators(self, header: Header) -> dict[str, Comparator]:
        rules = {name: rule for name, rule in self.rules.items() if name not in self.key}
        if not rules:
            return {}
        values = pa.schema(
            [field for field in header.after_schema if header.form == COUNTED or field.name in header.values]
        )
        return comparators_for(values, rules)

    @cached_property
    def copy_column(self) -> str:
        """What numbers the rows of one key, with `pair`: `_copy`, or the like where a side has such a column."""
        return free_name(COPY, (*self.old_schema.names, *self.new_schema.names))

    @cached_property
    def old_schema_shared(self) -> pa.Schema:
        """The old side's columns that are compared."""
        return pa.schema([self.old_schema.field(name) for name in self.header.columns if name != self.copy_column])

    @cached_property
    def new_schema_shared(self) -> pa.Schema:
        """The new side's columns that are compared."""
        return pa.schema([self.new_schema.field(name) for name in self.header.columns if name != self.copy_column])


@dataclass(frozen=True)
class Side(JsonRecord):
    """Scans of one relation. `columns` are read from the files and come out under the names in `names`.

    `where` is the condition that rows must meet; it may speak of columns that are not compared, which then stand
    in `columns` too and are dropped by `schema`.
    """

    scans: tuple[Scan, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...]
    schema: pa.Schema
    where: str | None = None

    def with_scans(self, scans: Sequence[Scan]) -> Side:
        return replace(self, scans=tuple(scans))

    @property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)


def read_side(side: Side) -> pa.Table:
    """The rows of a side as the comparison sees them: renamed, filtered, only the columns that take part."""
    if not side.scans:
        return no_rows(side.schema)
    return _as_compared(read_table(side.scans, side.columns), side)


def read_side_in_batches(side: Side, batch_rows: int) -> Iterator[pa.Table]:
    """The same rows, in file order, in tables of at most `batch_rows` rows."""
    for scan in side.scans:
        for batch in read_scan(scan, side.columns, batch_rows):
            yield _as_compared(pa.Table.from_batches([batch]), side)


def _as_compared(table: pa.Table, side: Side) -> pa.Table:
    table = table.rename_columns(list(side.names))
    if side.where is not None:
        table = table.filter(parse_condition(side.where, table.schema).mask(table))
    return table.select(side.schema.names)


def compare(comparison: Comparison, old: pa.Table, new: pa.Table, *, alone: bool = False) -> ChangeSet:
    """The change set from `old` to `new`, both as `read_side` gives them; `alone` compares on all processors."""
    if not comparison.key:
        return _counted(comparison, old, new)
    if comparison.pair:
        old, new = number_copies(old, new, comparison.key, comparison.copy_column)
    rules = {name: rule.unequal for name, rule in comparison.comparators.items()}
    return keyed_difference(comparison.header, old, new, rules, alone=alone)


def _counted(comparison: Comparison, old: pa.Table, new: pa.Table) -> ChangeSet:
    """Without a key rows are counted; normalising comparators then change what counts as one row."""
    for name, rule in comparison.comparators.items():
        place_old, place_new = old.schema.get_field_index(name), new.schema.get_field_index(name)
        old = old.set_column(place_old, name, rule.normalised(old.column(place_old)))
        new = new.set_column(place_new, name, rule.normalised(new.column(place_new)))
    counted = difference(old, new)
    return replace(counted, header=replace(comparison.header, counts=counted.header.counts))
