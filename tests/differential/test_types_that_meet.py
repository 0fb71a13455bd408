"""Types that meet: nights of one table whose columns change their width, unit, scale, encoding and even their storage.

Rows are plain Python values; each night is stored in types drawn from the families below, some in Parquet and some in
memory, and compared with the night before: by saved signatures, and row by row. What changed is computed here from the
values alone. Some nights hold a file twice: they must be refused and leave the state as it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from tests.oracles.canonical_values import NANOSECONDS, canonical, canonical_float
from tests.values.properties import for_all

import strandline as sl
from strandline.differential import signature_diff
from strandline.differential.plan import DiffPlan
from strandline.errors import KeysError, StrandlineError

_TICKS = [0, 1, 999, 1_000, -1_000, 1_000_000, -1_000_000_000, 86_400_000_000_000, 1_700_000_000_123_456_789]
_CLOCK = [tick for tick in _TICKS if 0 <= tick < 86_400_000_000_000]
_UNITS = ("s", "ms", "us", "ns")
_TEXTS = ["", "a", "ä" * 9, "\0", "long enough for no inline view"]
FAMILIES: dict[str, tuple[list[pa.DataType], list[Any]]] = {
    "integer": (
        [
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            pa.dictionary(pa.int8(), pa.int64()),
        ],
        [-(2**63), -200, -1, 0, 1, 127, 200, 2**31, 2**63 - 1, 2**63, 2**64 - 1],
    ),
    "float": (
        [pa.float16(), pa.float32(), pa.float64()],
        [0.0, 1.5, -1.5, 0.1, 65504.0, 1e30, "nan", float("inf"), 2.0**-24],
    ),
    "decimal": (
        [
            *(pa.decimal32(9, 2), pa.decimal64(18, 1), pa.decimal128(9, 2), pa.decimal128(38, 10)),
            *(pa.decimal128(20, 0), pa.decimal256(60, 4)),
        ],
        [Fraction(n) for n in ("0", "1.5", "-1.5", "0.01", "100", "1234567890123456789012345678", "-0.0001")],
    ),
    "timestamp": ([pa.timestamp(unit) for unit in _UNITS], _TICKS),
    "instant": ([pa.timestamp(unit, zone) for unit in _UNITS for zone in ("UTC", "Europe/Paris")], _TICKS),
    "duration": ([pa.duration(unit) for unit in _UNITS], _TICKS),
    "time": ([pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], _CLOCK),
    "date": ([pa.date32(), pa.date64()], [-400_000, -1, 0, 1, 20_000]),
    "text": (
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
        [text.encode() for text in _TEXTS],
    ),
    "binary": ([pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view()], [b"", b"ab", b"cd", bytes(9)]),
    "boolean": ([pa.bool_()], [False, True]),
}
NAMES = ("id", "pointer", "_copy", "_position", "number", "k0", "low", "c0", "file", "row", "segment", "x", "Ä \"'")


def fits(value: Any, type_: pa.DataType) -> bool:
    return stored(value, type_) is not None


def stored(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """A value in a type, or None if the type does not hold it exactly."""
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    try:
        if pa.types.is_decimal(plain):
            number = Decimal(value.numerator) / Decimal(value.denominator)
            scalar = pa.scalar(number, pa.decimal256(76, 10)).cast(plain)
        elif pa.types.is_temporal(plain) and not pa.types.is_date(plain):
            if value % NANOSECONDS[plain.unit]:
                return None
            ticks = pa.scalar(value // NANOSECONDS[plain.unit], pa.int32() if plain.bit_width == 32 else pa.int64())
            scalar = ticks.cast(plain)
        elif pa.types.is_date(plain):
            scalar = pa.scalar(value, pa.int32()).cast(pa.date32()).cast(plain)
        elif pa.types.is_floating(plain):
            scalar = pa.scalar(float(value), pa.float64()).cast(plain)
        elif isinstance(value, bytes):
            scalar = pa.scalar(value.decode() if "str" in str(plain) else value, plain)
        else:
            scalar = pa.scalar(value, plain)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    same = canonical(scalar) == (canonical_float(value) if isinstance(value, float) else value)
    return scalar if same else None


def column(values: list[Any], type_: pa.DataType) -> pa.Array:
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    scalars = [pa.scalar(None, plain) if value is None else stored(value, type_) for value in values]
    array = pa.concat_arrays([pa.nulls(0, plain), *(pa.repeat(scalar, 1) for scalar in scalars)])
    return array.dictionary_encode().cast(type_) if plain != type_ else array


@dataclass(frozen=True)
class Night:
    """The rows of one night: values by key, the types that hold them, and whether a file stands there twice."""

    rows: dict[tuple[Any, ...], Any]
    types: list[pa.DataType]
    in_parquet: bool
    twice: bool

    def table(self, names: list[str]) -> pa.Table:
        lines = [(*key, value) for key, value in self.rows.items()]
        columns = [column([line[place] for line in lines], type_) for place, type_ in enumerate(self.types)]
        return pa.table(columns, names=names)

    @contextmanager
    def source(self, names: list[str], folder: str) -> Iterator[Any]:
        """Something that `diff` reads; a Parquet night is a folder of one file, or of the same file twice."""
        table = self.table(names)
        if not self.in_parquet:
            yield pa.concat_tables([table, table]) if self.twice else table
            return
        place = tempfile.mkdtemp(dir=folder)
        pq.write_table(table, os.path.join(place, "1.parquet"), row_group_size=3)
        if self.twice:
            shutil.copy(os.path.join(place, "1.parquet"), os.path.join(place, "2.parquet"))
        yield place


def nights(draw: st.DrawFn) -> tuple[list[str], list[Night]]:
    families = draw(st.lists(st.sampled_from(sorted(FAMILIES)), min_size=2, max_size=3))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=len(families), max_size=len(families), unique=True))
    rows: dict[tuple[Any, ...], Any] = {}
    drawn = []
    for _ in range(draw(st.integers(2, 4))):
        types = [draw(st.sampled_from(FAMILIES[family][0])) for family in families]
        possible = [
            st.none() | st.sampled_from([value for value in FAMILIES[family][1] if fits(value, type_)])
            for family, type_ in zip(families, types, strict=True)
        ]
        lines = draw(st.lists(st.tuples(*possible), max_size=6))
        kept = {
            key: value
            for key, value in rows.items()
            if all(part is None or fits(part, type_) for part, type_ in zip((*key, value), types, strict=True))
        }
        rows = {**kept, **{line[:-1]: line[-1] for line in lines}}
        for gone in draw(st.lists(st.sampled_from(sorted(rows, key=repr)), max_size=2)) if rows else ():
            rows.pop(gone, None)
        twice = bool(rows) and draw(st.sampled_from([False, False, False, True]))
        drawn.append(Night(dict(rows), types, draw(st.booleans()), twice))
    return names, drawn


def expected(old: Night, new: Night) -> tuple[set[Any], int]:
    """The changes, each with its key and its new value, and how many rows are the same."""
    changes: set[Any] = {("delete", key, None) for key in old.rows if key not in new.rows}
    changes |= {("insert", key, value) for key, value in new.rows.items() if key not in old.rows}
    common = [key for key in new.rows if key in old.rows]
    changes |= {("update", key, new.rows[key]) for key in common if new.rows[key] != old.rows[key]}
    return changes, sum(new.rows[key] == old.rows[key] for key in common)


def observed(changes: sl.Changes, names: list[str]) -> tuple[set[Any], int]:
    table = changes.to_arrow()
    values = [[canonical(scalar) for scalar in table.column(name)] for name in names]
    rows = list(zip(table.column("_change").to_pylist(), zip(*values[:-1], strict=True), values[-1], strict=True))
    assert len(set(rows)) == len({key for _, key, _ in rows}) == table.num_rows
    return set(rows), changes.summary().unchanged or 0


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as path:
        yield path


EMPTY = Night({}, [], in_parquet=False, twice=False)


@contextmanager
def work_items(count: int) -> Iterator[None]:
    """Differentials inside are cut into so many work items, however small they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiffPlan, "pieces", lambda *_: count)
        patch.setattr(DiffPlan, "large_pieces", lambda *_: count)
        patch.setattr(DiffPlan, "held_whole", False)
        yield


@for_all(
    examples=50,
    drawn=st.composite(nights)(),
    algorithm=st.sampled_from(["kb", "kbp"]),
    items=st.integers(1, 3),
)
def test_nights_by_saved_signatures(
    folder: str, drawn: tuple[list[str], list[Night]], algorithm: str, items: int
) -> None:
    with work_items(items):
        by_saved_signatures(folder, drawn, algorithm)


def by_saved_signatures(folder: str, drawn: tuple[list[str], list[Night]], algorithm: str) -> None:
    names, table_nights = drawn
    state = os.path.join(tempfile.mkdtemp(dir=folder), "state")
    before = EMPTY
    for night in table_nights:
        with night.source(names, folder) as source:
            if night.twice:
                with pytest.raises(KeysError, match=r"more than one row|nothing but nulls"):
                    sl.diff(None, source, key=names[:-1], state=state, algorithm=algorithm)
                continue
            differential = sl.diff(None, source, key=names[:-1], state=state, algorithm=algorithm)
            assert observed(differential, names) == expected(before, night)
            before = night


@for_all(examples=30, drawn=st.composite(nights)(), algorithm=st.sampled_from(["auto", "hash", "kb", "kbp", "window"]))
def test_nights_side_by_side(folder: str, drawn: tuple[list[str], list[Night]], algorithm: str) -> None:
    names, table_nights = drawn
    before = None
    for night in table_nights:
        if night.twice:
            continue
        if before is not None:
            with before.source(names, folder) as old, night.source(names, folder) as new:
                differential = sl.diff(old, new, key=names[:-1], algorithm=algorithm)
            assert observed(differential, names) == expected(before, night)
        before = night


@pytest.mark.parametrize("algorithm", ["merge", "hash", "window"])
@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (pa.array([2.0**53, 1.0]), pa.array([2**53 + 1, 1]), [0]),
        (pa.nulls(2), pa.array([5, None]), [0]),
        (pa.array([2**57, 1], pa.timestamp("us")), pa.array([1, 1000], pa.timestamp("ns")), [0]),
        (pa.array([2**64 - 1, 1], pa.uint64()), pa.array([-1, 1]), [0]),
    ],
    ids=lambda array: str(getattr(array, "type", "")),
)
def test_values_that_no_type_of_both_sides_holds_are_compared_exactly(
    old: pa.Array, new: pa.Array, changed: list[int], algorithm: str
) -> None:
    for before, after in ((old, new), (new, old)):
        tables = [
            pa.table({"id": [0, 1, place], "v": pa.concat_arrays([x, x.slice(1)])})
            for place, x in ((2, before), (3, after))
        ]
        found = sl.diff(tables[0], tables[1], key="id", algorithm=algorithm, runner="inline").to_arrow()
        kinds = dict(zip(found["id"].to_pylist(), found["_change"].to_pylist(), strict=True))
        assert kinds == {**dict.fromkeys(changed, "update"), 2: "delete", 3: "insert"}


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.array([1, 2]), pa.array([1.0, 2.0])),
        (pa.array([1, 2]), pa.array([Decimal(1), Decimal(2)])),
        (pa.array(["1", "2"]), pa.array([b"1", b"2"])),
        (pa.array([1, 2], pa.timestamp("us")), pa.array([1, 2], pa.timestamp("us", "UTC"))),
        (pa.array([1, 2]), pa.array(["1", "2"])),
    ],
    ids=lambda array: str(array.type).replace(" ", ""),
)
def test_what_signatures_cannot_compare_is_refused_by_name(
    folder: str, old: pa.Array, new: pa.Array, place: int, algorithm: str
) -> None:
    """Never told as if every row had gone and come."""
    other = pa.array([7, 8])
    names = ["a", "b"]
    before, after = (pa.table([other, x][:: 1 if place else -1], names=names) for x in (old, new))
    state = os.path.join(tempfile.mkdtemp(dir=folder), "state")
    sl.diff(None, before, key="a", state=state, algorithm=algorithm)
    with pytest.raises(StrandlineError, match=names[place]):
        sl.diff(None, after, key="a", state=state, algorithm=algorithm)


@pytest.mark.parametrize("key", [pa.string(), pa.int64()], ids=str)
def test_more_work_items_do_not_look_at_more_of_the_state(
    folder: str, key: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each item looks its own rows up, also where the numbers of its keys span the whole state."""
    count, matched = 4_096, []
    real = signature_diff.match_segments

    def matching(saved: pa.Table, mine: pa.Table, spec: Any) -> Any:
        matched.append(len(saved))
        return real(saved, mine, spec)

    monkeypatch.setattr(signature_diff, "match_segments", matching)
    ids = pa.array([place * 7_919 % 1_000_003 for place in range(count)], pa.int64()).cast(key)
    place = tempfile.mkdtemp(dir=folder)
    for name, values in (("old", range(count)), ("new", [n if n % 100 else -1 for n in range(count)])):
        table = pa.table({"id": ids, "v": pa.array(list(values))})
        pq.write_table(table, os.path.join(place, f"{name}.parquet"), row_group_size=count // 32)
    state, new = os.path.join(place, "state"), os.path.join(place, "new.parquet")
    with work_items(32):
        sl.diff(None, os.path.join(place, "old.parquet"), key="id", state=state, algorithm="kb")
        matched.clear()
        assert sl.diff(state, new, key="id", algorithm="kb").summary().updated == 41
    assert len(matched) >= 32
    assert sum(matched) <= signature_diff.SPARSE * count
