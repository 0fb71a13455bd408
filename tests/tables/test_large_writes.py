"""Large writes go to workers, by ranges of keys: the same rows as small ones make, one commit, nothing left behind."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.tables.shop import entries, numbered, shop

from strandline.changes import Changes
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError, KeysError, SchemaError
from strandline.storage import MemoryStorage
from strandline.store import Store
from strandline.tables import Limits, bulk_write, page_writer
from strandline.tables.row_locks import LockingReader

Rows = dict[tuple[Any, ...], Any]

KEYS: dict[str, tuple[pa.Schema, Callable[[int], tuple[Any, ...]]]] = {
    "numbers": (pa.schema([("a", pa.int64())]), lambda n: (n - 20,)),
    "texts": (pa.schema([("a", pa.string())]), lambda n: ("é" * (n % 3) + f"\0{n:02}"[n % 2 :],)),
    "pairs": (pa.schema([("a", pa.string()), ("b", pa.int32())]), lambda n: (f"t{n % 4}", n)),
    "decimals": (pa.schema([("a", pa.decimal128(9, 2))]), lambda n: (Decimal(n - 20) / 4,)),
    "instants": (
        pa.schema([("a", pa.timestamp("us", "Europe/Paris"))]),
        lambda n: (dt.datetime(2030, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n),),
    ),
}


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of some rows, ranges of a page or less."""
    monkeypatch.setattr(bulk_write, "LARGE_ROWS", 4)
    monkeypatch.setattr(page_writer, "BULK_ROWS", 6)
    monkeypatch.setattr(page_writer, "BULK", Limits(most_in_overlay=3, fewest_for_overlay=4, by_bytes=True))
    monkeypatch.setattr(bulk_write, "LEAST_BYTES", 1)
    monkeypatch.setattr(bulk_write, "RANGE_BYTES", 700)
    monkeypatch.setattr(bulk_write, "BUCKET_BYTES", 5000)


def table_of(kind: str, rows: dict[int, int | None]) -> pa.Table:
    schema, key = KEYS[kind]
    whole = pa.schema([*schema, ("v", pa.int64()), ("x", pa.list_(pa.float64()))])
    lists = [None if v is None else [float("nan"), float(v)] for v in rows.values()]
    columns = list(zip(*(key(n) for n in rows), strict=True)) or [()] * len(schema)
    return pa.table([*columns, list(rows.values()), lists], schema=whole)


def seen(store: Store) -> list[str]:
    return [repr(row) for row in store.table("t").to_arrow().to_pylist()]


def numbers(store: Store, key: tuple[str, ...]) -> dict[tuple[Any, ...], int]:
    found = store.table("t").to_arrow(columns=[*key, "_row"]).to_pylist()
    return {tuple(row[name] for name in key): row["_row"] for row in found}


SOME = st.dictionaries(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 3)), max_size=45)


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=examples(12))
@given(first=SOME, second=SOME, small=SOME)
def test_large_writes_end_in_the_rows_that_they_mean(
    kind: str, first: dict[int, int | None], second: dict[int, int | None], small: dict[int, int | None]
) -> None:
    key = tuple(KEYS[kind][0].names)
    with shop() as store:
        store.create_table("t", table_of(kind, first), key=key)
        assert seen(store) == seen_of(kind, first)
        before = numbers(store, key)
        commit = store.pages.view().commit
        store.table("t").upsert(table_of(kind, second))
        assert store.pages.view().commit - commit <= 1
        assert seen(store) == seen_of(kind, {**first, **second})
        kept = numbers(store, key)
        assert {one: kept[one] for one in before} == before
        assert len({*kept.values()}) == len(kept)
        # One transaction: rows kept apart, a large write over them, and more rows.
        with store.transaction() as tx:
            tx.delete("t")
            tx.upsert("t", table_of(kind, dict(list(small.items())[:3])))
            tx.overwrite("t", table_of(kind, second))
            tx.upsert("t", table_of(kind, dict(list(first.items())[:2])))
            inside = tx.to_arrow("t").to_pylist()
        wanted = {**second, **dict(list(first.items())[:2])}
        assert [repr(row) for row in inside] == seen(store) == seen_of(kind, wanted)
        last = numbers(store, key)
        assert {one: row for one, row in last.items() if one in kept} == {one: kept[one] for one in last if one in kept}
        store.table("t").apply(Changes.of(difference(table_of(kind, wanted), table_of(kind, small), key)))
        assert seen(store) == seen_of(kind, small)


def seen_of(kind: str, rows: dict[int, int | None]) -> list[str]:
    ordered = sorted(rows, key=KEYS[kind][1])
    return [repr(row) for row in table_of(kind, {n: rows[n] for n in ordered}).to_pylist()]


def without_key(values: list[int]) -> pa.Table:
    nan, zero = float("nan"), -0.0
    lists = pa.array([None if v == 3 else [nan, zero * v] for v in values], pa.list_(pa.float64()))
    return pa.table({"v": pa.array([v or None for v in values], pa.int64()), "x": lists})


def told(store: Store) -> list[tuple[int, int]]:
    return [(row["_row"], row["v"] or 0) for row in store.table("t").to_arrow(columns=["_row", "v"]).to_pylist()]


FEW = {"old": st.lists(st.integers(0, 4), max_size=20), "new": st.lists(st.integers(0, 9), max_size=20)}


@settings(max_examples=examples(12))
@given(**FEW)
def test_tables_without_a_key_take_large_writes_too(old: list[int], new: list[int]) -> None:
    with shop() as store:
        store.create_table("t", without_key(old))
        before = told(store)
        store.table("t").insert(without_key(new))
        found = told(store)
        assert found[: len(before)] == before
        assert [v for _, v in found] == old + new
        assert len(dict(found)) == len(found)
        assert store.table("t").overwrite(without_key(new)) == len(old)
        left = told(store)
        assert sorted(v for _, v in left) == sorted(new)
        assert {*left} <= {*found}, "rows that stay keep their numbers"
        # Nothing of these stands there: all of them come, in the order that they were given.
        assert store.table("t").overwrite(without_key([v + 20 for v in new])) == 2 * len(new)
        assert [v for _, v in told(store)] == [v + 20 for v in new]
        assert store.check().ok


@settings(max_examples=examples(12))
@given(**FEW)
def test_large_counted_changes_are_applied_by_value(old: list[int], new: list[int]) -> None:
    with shop() as store:
        store.create_table("t", without_key(old))
        before = {*told(store)}
        changes = difference(without_key(old), without_key(new))
        assert store.table("t").apply(Changes.of(changes)) == int(abs(np.asarray(changes.rows["_count"])).sum())
        assert sorted(v for _, v in told(store)) == sorted(new)
        same = Counter(old) & Counter(new)
        assert len(before & {*told(store)}) == same.total(), "rows that stay keep their numbers"
        assert store.check().ok


def test_large_counted_changes_of_a_table_with_a_key_keep_the_numbers_of_its_rows() -> None:
    with shop() as store:
        store.create_table("t", numbered(40), key="id")
        changed = numbered(40).set_column(1, "v", pa.array([n * 10 if n % 3 else -1 for n in range(40)]))
        wanted = pa.concat_tables([changed.slice(5), numbered(3, 100)])
        store.table("t").apply(Changes.of(difference(numbered(40), wanted)))
        assert store.table("t").to_arrow().to_pylist() == wanted.to_pylist()
        assert store.table("t").to_arrow(columns=["_row"])["_row"].to_pylist()[:35] == list(range(5, 40))
        again = Changes.of(difference(numbered(40), wanted))
        with pytest.raises(ChangesError, match=r"removes rows that are not there: \(id=\d+, v=\d+\)"):
            store.table("t").apply(again)
        with pytest.raises(KeysError, match=r"already: \(id="):
            store.table("t").apply(again, lenient=True)
        assert store.table("t").to_arrow().to_pylist() == wanted.to_pylist()


def test_a_large_table_is_overwritten_by_few_rows_without_having_it_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with shop() as store:
        store.create_table("t", without_key([*range(1, 100)]))
        store.create_table("k", numbered(100), key="id")

        def refuse(*_: Any) -> None:
            raise AssertionError("all rows of the table were asked for")

        monkeypatch.setattr(LockingReader, "select", refuse)
        assert store.table("k").overwrite(numbered(2)) == 98
        with store.transaction() as tx:
            tx.apply("t", difference(without_key([7]), without_key([8])))
            tx.insert("t", without_key([50]))
            tx.overwrite("t", without_key([50, 6, 8, 8, 100]))
        monkeypatch.undo()
        assert [v for _, v in told(store)] == [6, 8, 8, 50, 100]
        assert store.table("k").to_arrow().to_pylist() == numbered(2).to_pylist()


def test_rows_behind_all_others_are_shared_out_among_ranges() -> None:
    with shop() as store:
        store.create_table("t", numbered(5), key="id")
        store.table("t").insert(numbered(200, 1000))
        assert store.table("t").to_arrow()["id"].to_pylist() == [*range(5), *range(1000, 1200)]
        assert all(entry.rows <= 12 for entry in entries(store, "t"))
        store.table("t").overwrite(numbered(9, 1100))
        assert store.table("t").to_arrow()["id"].to_pylist() == list(range(1100, 1109))


def test_only_pages_with_changes_are_written() -> None:
    with shop() as store:
        store.create_table("t", numbered(300), key="id")
        before = {entry.base.name for entry in entries(store, "t")}
        store.table("t").upsert(pa.table({"id": [7, 8, 9, 10, 150], "v": [0, 0, 0, 0, 0]}))
        after = {entry.base.name for entry in entries(store, "t")}
        assert len(before & after) >= len(before) - 3
        same = store.table("t").to_arrow()
        assert store.table("t").overwrite(same) == 0
        assert {entry.base.name for entry in entries(store, "t")} == after


def wrong(n: int) -> pa.Table:
    return pa.table({"id": pa.array([*range(100, 100 + n), 3], pa.int64()), "v": pa.array([0] * (n + 1))})


def otherwise(key: int) -> pa.Table:
    """The first ten rows, one of them with another value."""
    rows = numbered(40).slice(0, 10)
    return rows.set_column(1, "v", [[-1 if row["id"] == key else row["v"] for row in rows.to_pylist()]])


@pytest.mark.parametrize(
    ("kind", "said", "verb"),
    [
        (KeysError, r"already: \(id=3\)", lambda table: table.insert(wrong(9))),
        (KeysError, r"more than once: \(id=", lambda table: table.upsert(pa.concat_tables([wrong(9)] * 2))),
        (KeysError, "null in their key", lambda table: table.upsert(pa.table({"id": [1, 2, None, 4, 5]}))),
        (SchemaError, "no column 'w'", lambda table: table.upsert(wrong(9).rename_columns(["id", "w"]))),
        (SchemaError, "without loss", lambda table: table.upsert(pa.table({"id": [1.5, 2, 3, 4, 5]}))),
        (
            ChangesError,
            r"updates keys that are not there: \(id=10\d\)",
            lambda table: table.apply(
                Changes.of(difference(wrong(9).slice(0, 9), wrong(9).slice(0, 9).set_column(1, "v", [[1] * 9]), ["id"]))
            ),
        ),
        (
            ChangesError,
            r"something else than its before images: \(id=3\)",
            lambda table: table.apply(
                Changes.of(difference(otherwise(3), otherwise(3).set_column(1, "v", [[-2] * 10]), ["id"]))
            ),
        ),
    ],
)
def test_a_large_write_that_does_not_fit_changes_nothing(
    kind: type[Exception], said: str, verb: Callable[[Any], Any]
) -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(40), key="id")
        before = {name for name in storage.objects if name.startswith("pages/")}
        with pytest.raises(kind, match=said):
            verb(store.table("t"))
        assert store.table("t").to_arrow().to_pylist() == numbered(40).to_pylist()
        store.table("t").update(where="id = 1", values={"v": 10})
        assert len({name for name in storage.objects if name.startswith("pages/")} - before) <= 1
