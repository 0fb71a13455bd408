"""Values that a column's type can't hold: as a parameter one equals no row, and as a row's value it is refused."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.tables.properties import given
from tests.tables.shop import shop

from strandline.errors import SchemaError, SqlError
from strandline.store import Store
from strandline.tables import TableTransaction

DAY = dt.datetime(2020, 1, 1)
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59)
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-1, 1, 2]),
    "uint8": (pa.uint8(), [0, 1, 255]),
    "int64": (pa.int64(), [1, 2, 1 << 53, (1 << 53) + 1]),
    "uint64": (pa.uint64(), [1, 2, (1 << 63) + 5]),
    "float": (pa.float32(), [0.5, 1.0, 16777216.0]),
    "double": (pa.float64(), [0.5, 1.0, float(1 << 53), float("nan")]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.00"), Decimal("1.25"), Decimal(1 << 53)]),
    "date": (pa.date32(), [DAY.date(), dt.date(1969, 12, 31)]),
    "time32": (pa.time32("ms"), [dt.time(0, 0, 1), dt.time(0, 0, 1, 5000)]),
    "time64": (pa.time64("us"), [dt.time(0, 0, 1), dt.time(0, 0, 1, 5)]),
    **{
        f"timestamp {unit}{zone}": (
            pa.timestamp(unit, zone or None),
            [
                moment.replace(tzinfo=dt.UTC if zone else None)
                for moment in (DAY, dt.datetime(1969, 12, 31, 23, 59, 59))
            ],
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in ("", "UTC")
    },
    **{f"duration {unit}": (pa.duration(unit), [dt.timedelta(seconds=1)]) for unit in ("s", "ms", "us")},
}
SHIFTS = st.sampled_from([0, 0, 1, 5, 500, -1, 1000, 5000, 1_000_000]).map(lambda n: dt.timedelta(microseconds=n))
ZONES = (dt.UTC, dt.timezone(dt.timedelta(hours=1)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Any]:
    """A type, and a value of its column or one near it, in some Python type that compares with it."""
    name = draw(st.sampled_from(sorted(TYPES)))
    return name, draw(parameters(name))


@st.composite
def parameters(draw: st.DrawFn, name: str) -> Any:
    value = draw(st.sampled_from(TYPES[name][1]))
    if isinstance(value, dt.datetime):
        moment = value + draw(SHIFTS)
        return moment if moment.tzinfo is None else moment.astimezone(draw(st.sampled_from(ZONES)))
    if isinstance(value, dt.date):
        return draw(st.sampled_from([value, dt.datetime(value.year, value.month, value.day) + draw(SHIFTS)]))
    if isinstance(value, dt.time):
        return value.replace(microsecond=draw(st.sampled_from([0, 4, 5, 4999, 5000])))
    if isinstance(value, dt.timedelta):
        return value + draw(SHIFTS)
    near = [value, 300, -129, 16777217, 1 << 53, 1.5, 0.1, float(1 << 53), Decimal("1.001"), Decimal("1.50")]
    return draw(st.sampled_from(near))


def equals(held: Any, given_: Any) -> bool:
    """Python's own equality, which is exact; NaN is NaN, a date its first instant. Fractions compare as doubles."""
    if isinstance(given_, dt.datetime) and not isinstance(held, dt.datetime):
        return bool(dt.datetime(held.year, held.month, held.day) == given_)
    if isinstance(held, float) and isinstance(given_, Decimal):
        return held == float(given_)
    if isinstance(held, Decimal) and isinstance(given_, float) and not given_.is_integer():
        return float(held) == given_
    return bool(held == given_) or (held != held and given_ != given_)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with shop() as made:
        for name, (kind, values) in TYPES.items():
            rows = pa.table({"k": pa.array(values, kind), "v": pa.array(values, kind)})
            made.create_table(name, rows, key="k")
            made.table(name).what_if(f"what if {name}")
        yield made


@given(cases(), st.sampled_from(["{} = :p", ":p = {}", "{} in (:p)"]), st.sampled_from("kv"))
def test_a_parameter_that_a_type_cant_hold_equals_no_row(
    store: Store, case: tuple[str, Any], form: str, column: str
) -> None:
    name, value = case
    where, params = form.format(column), {"p": value}
    held = pa.array(TYPES[name][1], TYPES[name][0]).to_pylist()
    expected = sum(equals(one, value) for one in held)
    assert len(store.table(name).to_arrow(where=where, params=params)) == expected
    assert len(store.what_if(f"what if {name}").to_arrow(where=where, params=params)) == expected
    with taken_back(store) as tx:
        assert len(tx.to_arrow(name, where=where, params=params)) == expected
        assert tx.update(name, where=where, params=params, values={"v": held[0]}) == expected
    with taken_back(store) as tx:
        assert tx.delete(name, where=where, params=params) == expected


def test_columns_of_each_type_are_set_by_a_parameter_and_by_expressions_of_their_own() -> None:
    types = TYPES | {"uuid": (pa.uuid(), [uuid.UUID(int=1), uuid.UUID(int=1 << 127)])}
    values = {name: pa.array(some[:2] if len(some) > 1 else some * 2, kind) for name, (kind, some) in types.items()}
    with shop() as store:
        table = store.create_table("t", pa.table({"key": [0, 1], **values}), key="key")
        for name, held in values.items():
            for text, params in [("coalesce(NULL, t)", {}), (":p", {"p": held[1].as_py()})]:
                table.update(set={name: text.replace("t)", f'"{name}")')}, params=params)
                expected = held if not params else held.take([1, 1])
                assert table.to_arrow(columns=[name])[name].to_pylist() == expected.to_pylist(), (name, text)


def test_a_duration_is_reckoned_with(store: Store) -> None:
    with taken_back(store) as tx:
        tx.update("duration us", set={"v": "v + INTERVAL 1 DAY"})
        assert tx.to_arrow("duration us")["v"].to_pylist() == [dt.timedelta(days=1, seconds=1)]
    with taken_back(store) as tx, pytest.raises(SqlError, match="months has no length"):
        tx.update("duration us", set={"v": "v + INTERVAL 1 MONTH"})


@given(cases(), st.sampled_from("kv"))
def test_a_row_with_a_value_that_a_type_cant_hold_is_refused_by_name(
    store: Store, case: tuple[str, Any], column: str
) -> None:
    name, value = case
    kind, values = TYPES[name]
    row = {"k": values[0], "v": values[0], column: value}
    with taken_back(store) as tx:
        try:
            tx.upsert(name, [row])
        except SchemaError as error:
            refused = str(error)
        else:
            kept = [one[column] for one in tx.to_arrow(name).to_pylist()]
            assert isinstance(kept[0], float) or any(equals(one, value) for one in kept)
            return
    assert repr(column) in refused
    assert str(kind) in refused
    with pytest.raises(SchemaError, match=column):
        store.what_if(f"what if {name}").upsert([row])


@contextmanager
def taken_back(store: Store) -> Iterator[TableTransaction]:
    """A transaction that leaves nothing behind."""
    tx = store.transaction()
    try:
        yield tx
    finally:
        tx.abort()


NANOSECONDS = [pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")]


@given(
    st.sampled_from(NANOSECONDS),
    st.sampled_from([lambda kind: kind, pa.list_, lambda kind: pa.struct([("x", kind)])]),
    st.integers(0, 86_399_999_999_999),
)
def test_a_value_of_arrow_keeps_every_nanosecond(kind: pa.DataType, around: Any, count: int) -> None:
    whole, nested = pa.array([count]).cast(kind), around(kind)
    if pa.types.is_list(nested):
        whole = pa.ListArray.from_arrays([0, 1], whole)
    elif pa.types.is_struct(nested):
        whole = pa.StructArray.from_arrays([whole], ["x"])
    with shop() as store:
        table = store.create_table("t", pa.table({"k": [1], "v": pa.nulls(1, nested)}), key="k")
        table.update(values={"v": whole[0]})
        table.add_column("added", nested, default=whole[0])
        made = table.to_arrow()
        assert made.column("v").combine_chunks() == made.column("added").combine_chunks() == whole


@pytest.mark.parametrize("text", ["1.5", "2020-01-01 00:00:00.0005"])
def test_text_is_not_rounded_to_the_type_of_its_column(store: Store, text: str) -> None:
    for name in TYPES:
        try:
            found = store.table(name).to_arrow(where="k = :p", params={"p": text})
        except SqlError:
            continue
        assert not len(found), name


def test_half_of_a_character_is_refused() -> None:
    with shop() as store:
        store.create_table("t", pa.table({"k": ["a"], "v": ["a"]}), key="k")
        for column in "kv":
            with pytest.raises(SqlError, match="no text"):
                store.table("t").delete(where=f"{column} = :p", params={"p": "\ud800"})
        with pytest.raises(SchemaError, match="'v'"):
            store.table("t").upsert([{"k": "b", "v": "\ud800"}])


def test_a_row_of_a_truncated_key_is_not_deleted() -> None:
    with shop() as store:
        store.create_table("t", pa.table({"k": pa.array([DAY], pa.timestamp("ms"))}), key="k")
        finer = {"k": DAY + dt.timedelta(microseconds=500)}
        assert store.table("t").delete(where="k = :k", params=finer) == 0
        with pytest.raises(SchemaError, match="'k'"):
            store.table("t").upsert([finer])
        assert store.table("t").delete(where="k = :k", params={"k": DAY}) == 1


FINE: dict[str, pa.DataType] = {
    "fine instants": pa.timestamp("ns", "UTC"),
    "fine zoned instants": pa.timestamp("ns", "Europe/Paris"),
    "fine durations": pa.duration("ns"),
}
COUNTS = [-1001, -1, 0, 1, 5, 999, 1000, 1500, 1_577_836_800_000_000_001]
FORMS: dict[str, Callable[[int, int], bool]] = {
    "{} = :p": lambda held, p: held == p,
    "not ({} <> :p)": lambda held, p: held == p,
    "{} in (:p)": lambda held, p: held == p,
    "{} is not distinct from :p": lambda held, p: held == p,
    "{} = :p or v is null": lambda held, p: held == p,
    "{} > :p": lambda held, p: held > p,
    ":p >= {}": lambda held, p: held <= p,
    "{} between :p and :p": lambda held, p: held == p,
    "{} <> :p and k = v": lambda held, p: held != p,
}


@pytest.fixture(scope="module")
def fine_store() -> Iterator[Store]:
    with shop() as made:
        for name, kind in FINE.items():
            rows = pa.table({"k": pa.array(COUNTS, kind), "v": pa.array(COUNTS, kind)})
            made.create_table(name, rows.append_column("w", pa.nulls(len(COUNTS), kind)), key="k")
        yield made


def counts(rows: pa.Table, column: str = "k") -> list[int]:
    return list(rows.column(column).cast(pa.int64()).to_pylist())


@given(
    st.sampled_from(sorted(FINE)),
    st.sampled_from(COUNTS),
    st.sampled_from([0, 0, 1, -1, 500]),
    st.sampled_from(sorted(FORMS)),
    st.sampled_from("kv"),
)
def test_conditions_see_every_nanosecond(
    fine_store: Store, name: str, count: int, shift: int, form: str, column: str
) -> None:
    value = count + shift
    where, params = form.format(column), {"p": pa.scalar(value, FINE[name]).as_py()}
    chosen = [held for held in COUNTS if FORMS[form](held, value)]
    assert counts(fine_store.table(name).to_arrow(where=where, params=params)) == chosen
    with taken_back(fine_store) as tx:
        assert tx.update(name, where=where, params=params, set={"w": "v"}) == len(chosen)
        assert counts(tx.to_arrow(name, where="w is not null"), "w") == chosen
    with taken_back(fine_store) as tx:
        assert tx.delete(name, where=where, params=params) == len(chosen)
        assert counts(tx.to_arrow(name)) == [held for held in COUNTS if held not in chosen]


@pytest.mark.parametrize("name", sorted(FINE))
def test_nanoseconds_that_an_expression_would_drop_are_refused_by_name(fine_store: Store, name: str) -> None:
    table = fine_store.table(name)
    with pytest.raises(SqlError, match="column 'v' holds nanoseconds"):
        table.to_arrow(where="coalesce(w, v) = v")
    with pytest.raises(SqlError, match="column 'v' holds nanoseconds"):
        table.update(set={"w": "coalesce(w, v)"})
    with pytest.raises(SqlError, match="has nanoseconds"):
        table.to_arrow(where="coalesce(w, :p) = w", params={"p": pa.scalar(1, FINE[name]).as_py()})


def test_text_of_an_instant_is_read_to_its_nanoseconds(fine_store: Store) -> None:
    table = fine_store.table("fine instants")
    assert counts(table.to_arrow(where="v <= '1970-01-01 00:00:00+00'")) == [-1001, -1, 0]
    assert counts(table.to_arrow(where="v = timestamptz '1970-01-01 00:00:00.000000999+00'")) == [999]
    assert counts(table.to_arrow(where="v > :p", params={"p": dt.date(2020, 1, 1)})) == [COUNTS[-1]]
    assert counts(table.to_arrow(where="v < :p", params={"p": dt.datetime(3000, 1, 1, tzinfo=dt.UTC)})) == COUNTS


def test_nanoseconds_inside_nested_values_are_refused() -> None:
    with shop() as store:
        inside = pa.StructArray.from_arrays([pa.array([1], pa.timestamp("ns", "UTC"))], ["at"])
        store.create_table("t", pa.table({"k": [1], "s": inside}), key="k")
        with pytest.raises(SqlError, match="'s'"):
            store.table("t").to_arrow(where="s.at = '1970-01-01 00:00:00+00'")


def test_rows_have_every_column_that_any_dictionary_has() -> None:
    with shop() as store:
        store.create_table("t", [{"id": 1}, {"id": 2, "note": "kept"}], key="id")
        assert store.table("t").to_arrow().to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": "kept"}]


def test_an_end_of_another_type_changes_what_the_other_one_means() -> None:
    keys = [5, *(2**64 - 1 - place for place in range(0, 4000, 500))]
    with shop() as store:
        store.create_table("t", pa.table({"k": pa.array(keys, pa.uint64())}), key="k")
        for condition in ("between {0} and {1}::double", "between {1}::double and {0}", "in ({0}, {1}::double)"):
            where = "k " + condition.format(2**64 - 1, 2**64 - 616)
            expected = store.query(f"select k from t where {where} order by k")["k"].to_pylist()
            assert store.table("t").to_arrow(where=where)["k"].to_pylist() == expected != []


def test_a_boolean_of_eight_bits_takes_truth_values_and_is_one_in_conditions() -> None:
    bits = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    with shop() as store:
        table = store.create_table("t", pa.table({"id": [1, 2, 3], "v": bits}), key="id")
        table.update(where="id = 3", values={"v": True})
        table.insert([{"id": 4, "v": False}, {"id": 5, "v": None}, {"id": 6, "v": 1}])
        table.upsert(table.to_arrow().to_pylist())
        table.add_column("w", pa.bool8(), default=True)
        what_if = table.what_if("guess")
        what_if.update(where="id = 1", values={"v": False})
        for where, ids in (("v", [1, 3, 6]), ("NOT v", [2, 4]), ("v = :p", [1, 3, 6]), ("v AND w", [1, 3, 6])):
            params = {"p": True} if ":p" in where else None
            assert table.to_arrow(where=where, params=params)["id"].to_pylist() == ids
        assert what_if.to_arrow(where="v")["id"].to_pylist() == [3, 6]
        for wrong in (2, "true", 0.5):
            with pytest.raises(SchemaError, match="does not fit column 'v'"):
                table.update(values={"v": wrong})
