"""How rows lie on pages: overlays, folding, cutting, joining; what reading opens; which types pages carry."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pages.toy import live_entries
from tests.tables.shop import entries, numbered, rows, shop

from strandline.errors import SchemaError, SnapshotExpired
from strandline.storage import LocalStorage, MemoryStorage
from strandline.store import Store
from strandline.tables import Limits, PageCache, RowShape, TableReader, changed_rows, page_cache, page_writer
from strandline.tables.page import OpenedPage, decode_page, encode_page
from strandline.tables.schema import ROW, TableSchema, new_table_schema

SMALL = Limits(page_rows=200, cut_rows=150, join_rows=50, most_in_overlay=40, fewest_for_overlay=20)


def test_thousands_of_single_row_inserts_end_in_one_page_and_few_files() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(0), key="id")
        order = np.random.default_rng(1).permutation(2_000).tolist()

        def insert(keys: list[int]) -> None:
            for key in keys:
                with store.transaction() as tx:
                    tx.insert("t", numbered(1, key))

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(insert, [order[start::16] for start in range(16)]))
        pages = entries(store, "t")
        assert len(pages) == 1
        assert pages[0].rows == 2_000
        assert len(pages[0].pages) <= 2
        for _ in range(3):  # what sixteen threads still read when it was replaced goes with the next commits
            store.table("t").update(where="id = 0", set={"v": "v"})
        assert sum(name.startswith("pages/") for name in storage.objects) <= 4
        assert store.table("t").to_arrow()["id"].to_pylist() == list(range(2_000))


def test_rows_appended_in_order_fill_pages_and_others_cut_them_in_the_middle() -> None:
    with shop(limits=SMALL) as store:
        for name, order in (("ascending", range(1000)), ("scattered", np.random.default_rng(2).permutation(1000))):
            store.create_table(name, numbered(0), key="id")
            for start in range(0, 1000, 20):
                chosen = [int(key) for key in order[start : start + 20]]
                store.table(name).insert([{"id": key, "v": key} for key in chosen])
        full = [entry.rows for entry in entries(store, "ascending")]
        assert full[:-1] == [200] * (len(full) - 1)
        assert len(full) in (5, 6)
        cut = [entry.rows for entry in entries(store, "scattered")]
        assert 5 <= len(cut) <= 14
        assert max(cut) <= 220
        for name in ("ascending", "scattered"):
            assert store.table(name).to_arrow()["id"].to_pylist() == list(range(1000))


def test_a_few_changes_write_an_overlay_and_many_fold_it() -> None:
    with shop() as store:
        store.create_table("t", numbered(1000), key="id")
        (before,) = entries(store, "t")
        for key in range(100):
            store.table("t").update(where="id = :k", values={"v": -key}, params={"k": key * 10})
        (after,) = entries(store, "t")
        assert after.base == before.base
        assert after.overlay.rows == 100
        store.table("t").update(where="id = 1", values={"v": 0})
        (folded,) = entries(store, "t")
        assert folded.base != before.base
        assert folded.overlay is None
        assert store.table("t").to_arrow()["v"].to_pylist()[::10] == [-key for key in range(100)]


def test_deleted_rows_are_marked_in_the_overlay_and_bounds_stay_true() -> None:
    with shop() as store:
        store.create_table("t", numbered(1000), key="id")
        store.table("t").delete(where="id in (0, 999)")
        store.table("t").insert([{"id": -5, "v": 1}, {"id": 2000, "v": 2}])
        (entry,) = entries(store, "t")
        assert (entry.rows, entry.overlay.rows) == (1000, 4)
        assert [row["id"] for row in rows(store, "t", where="id < 2 or id > 997")] == [-5, 1, 998, 2000]
        assert rows(store, "t", where="id = 2000") == [{"id": 2000, "v": 2}]
        assert rows(store, "t", where="id = 999") == []


def test_pages_that_lose_their_rows_are_joined_or_go() -> None:
    with shop(limits=SMALL) as store:
        store.create_table("t", numbered(0), key="id")
        for start in range(0, 2000, 100):
            store.table("t").insert(numbered(100, start))
        many = len(entries(store, "t"))
        for start in range(0, 2000, 40):
            store.table("t").delete(where=f"id >= {start} and id < {start + 38}")
        assert many >= 10
        assert len(entries(store, "t")) <= 3
        assert store.table("t").count() == 100
        store.table("t").delete()
        assert [entry.rows for entry in entries(store, "t")] == [0]
        store.table("t").insert(numbered(3))
        assert store.table("t").count() == 3


def test_a_large_transaction_writes_overlays_of_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 20_000)
    with shop() as store:
        store.create_table("t", numbered(100_000), key="id")
        bases = [entry.base for entry in entries(store, "t")]
        assert len(bases) == 5
        changed = pa.table({"id": np.arange(0, 100_000, 20), "v": np.full(5000, -1)})
        assert store.table("t").upsert(changed) == 5000
        assert [entry.base for entry in entries(store, "t")] == bases
        assert [entry.overlay.rows for entry in entries(store, "t")] == [1000] * 5
        found = store.table("t").to_arrow(columns=["id", "v", "_row"])
        assert found["_row"].to_pylist() == list(range(100_000))
        assert found["v"].to_pylist()[::20] == [-1] * 5000
        store.table("t").delete(where="id < 90000")
        assert store.table("t").count() == 10_000
        assert len(entries(store, "t")) <= 2


def opened(store: Store) -> int:
    return store.cache.opened


def test_reading_by_key_opens_only_pages_that_can_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 100)
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(10_000), key="id")
        store.create_table(
            "c", pa.table({"a": ["x", "y"] * 500, "b": np.arange(1000), "v": np.arange(1000)}), key=["a", "b"]
        )
        assert len(entries(store, "t")) == 100
        for where, params, most in (
            ("id = 4711", {}, 1),
            ("id = :k and v > 0", {"k": 77}, 1),
            ("id in (5, 5000, 9999)", {}, 3),
            ("id between 1000 and 1250", {}, 4),
            ("id >= 9950 and v % 2 = 0", {}, 1),
            ("5 > id", {}, 1),
            ("id = 1 and id = 2", {}, 1),
            ("id > 100000", {}, 0),
        ):
            store.cache.clear()
            before = opened(store)
            found = store.table("t").to_arrow(where=where, params=params)
            assert opened(store) - before <= most, where
            whole = store.table("t").to_arrow().to_pylist()
            number = params.get("k", 0)
            python = (
                where.replace(":k", str(number))
                .replace(" = ", " == ")
                .replace("between 1000 and 1250", "in range(1000, 1251)")
            )
            assert found.to_pylist() == [r for r in whole if eval(python, {}, {**r, "range": range})], where
        for where, most in (("a = 'x' and b = 10", 1), ("a = 'y' and b > 900", 2), ("a = 'x'", 6), ("b = 3", 10)):
            store.cache.clear()
            before = opened(store)
            found = store.table("c").to_arrow(where=where)
            assert opened(store) - before <= most, where
            python = where.replace(" = ", " == ")
            whole = store.table("c").to_arrow().to_pylist()
            assert found.to_pylist() == [r for r in whole if eval(python, {}, r)], where


def test_changes_between_states_open_only_pages_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 5000)
    with shop() as store:
        noise = np.random.default_rng(1).random(500_000)
        store.create_table("t", numbered(500_000).append_column("noise", pa.array(noise)), key="id")
        size = sum(page.size for entry in entries(store, "t") for page in entry.pages)
        store.snapshot("before")
        store.table("t").update(where="id = 5005", values={"v": 1})
        with store.transaction() as tx:
            tx.delete("t", where="id = 5010")
            tx.insert("t", [{"id": 900_000, "v": 7}])
        store.cache.clear()
        read: list[int] = []
        original = store.storage.get

        def counted(name: str) -> bytes:
            value = original(name)
            read.append(len(value))
            return value

        monkeypatch.setattr(store.storage, "get", counted)
        before = opened(store)
        changes = store.changes("t", since="before")
        assert opened(store) - before == 4  # two base pages, which both states share, and two overlays
        assert sum(read) <= 0.03 * size
        found = changes.to_arrow().to_pylist()
        assert [(r["_change"], r["id"], r["v"], (r["_before"] or {}).get("v")) for r in found] == [
            ("delete", 5010, None, 50100),
            ("update", 5005, 1, 50050),
            ("insert", 900_000, 7, None),
        ]
        assert changes.summary().unchanged == 499_998
        assert len(store.changes("t", since="before", until="before")) == 0


def test_of_a_page_that_was_written_anew_only_rows_that_differ_come_out() -> None:
    with shop(limits=SMALL) as store:
        store.create_table("t", numbered(180).append_column("w", pa.array(range(180))), key="id")
        reader = TableReader(store.pages.view(), "t", store.cache)
        with store.state() as older:
            store.table("t").update(where="id < 60", set={"w": "-w"})
            store.table("t").delete(where="id = 100")
            with store.state() as newer:
                table = reader.entry
                held = [[one.base for one in live_entries(state, table.domain)] for state in (older, newer)]
                assert not set(held[0]) & set(held[1])
                for columns, differing in ((None, 60), (("w",), 60), (("id", "v"), 1)):
                    shape = RowShape(reader.schema, columns)
                    old, new = changed_rows(store.cache, older, newer, table.domain, shape)
                    assert len(old) == differing  # the row of 0 is the same; one more is gone
                    assert len(new) == differing - 1
                    assert 100 in old.column(ROW).to_pylist()


def test_columns_of_a_large_page_that_is_looked_through_are_decoded_once() -> None:
    with shop(limits=SMALL) as store:
        rows = numbered(180).append_column("w", pa.array([f"w{n}" for n in range(180)]))
        store.create_table("t", rows, key="id")
        store.table("t").update(where="id = 7", set={"w": "'new'"})
        store.cache.kept_rows = 0
        store.cache.clear()
        reader = TableReader(store.pages.view(), "t", store.cache)
        (entry,) = entries(store, "t")
        assert entry.overlay is not None
        before = opened(store)
        for columns, most in ((("v",), 2), (("v",), 2), (("v", "w"), 3), (("w", "id"), 4)):
            contents = reader.looked_through(entry, columns)
            assert opened(store) - before == most  # the overlay, and the base page for columns that are not kept yet
            assert set(columns) <= set(contents.base.table.column_names)
        places = contents.meeting(lambda held: np.asarray(held.column("id"), dtype=np.int64) % 100 == 7)
        assert contents.taken(*places).sort_by("id").column("w").to_pylist() == ["new", "w107"]
        small = PageCache(limit=1)
        small.kept_rows = 0
        for _ in range(2):  # nothing that is larger than the cache pushes out what was asked for last
            part = small.looked_through(entry, reader.schema, reader.view.read, ("v",)).base.table
            assert (part.num_rows, part.column_names) == (180, [ROW, "v"])


def test_rows_put_on_large_pages_have_them_decoded_no_further_than_their_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []

    def noted(data: bytes, schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Table:
        decoded.append(columns)
        return decode_page(data, schema, columns)

    monkeypatch.setattr(page_cache, "decode_page", noted)
    with shop(limits=Limits(page_rows=60, cut_rows=60, most_in_overlay=60, fewest_for_overlay=20)) as store:
        source = numbered(180).append_column("w", pa.array([f"w{n}" for n in range(180)]))
        store.create_table("t", source.slice(0, 0), key="id")
        store.table("t").insert(source)
        assert len(entries(store, "t")) == 3
        store.cache.kept_rows = 0
        store.cache.clear()
        for turn in range(3):
            chosen = [turn, 60 + turn, 120 + turn]
            store.table("t").upsert([{"id": key, "v": -1, "w": "new"} for key in chosen])
        assert decoded == [["id"]] * 3  # each page once; overlays that were just written are known
        found = {row["id"]: row["v"] for row in rows(store, "t")}
        assert found == {n: -1 if n % 60 < 3 else n * 10 for n in range(180)}


def test_a_row_that_moves_to_another_page_is_no_change() -> None:
    with shop(limits=SMALL) as store:
        store.create_table("t", numbered(180), key="id")
        store.snapshot("before")
        store.table("t").insert(numbered(100, 1000))
        assert len(entries(store, "t")) > 1
        changes = store.changes("t", since="before")
        assert (changes.summary().inserted, changes.summary().updated, changes.summary().deleted) == (100, 0, 0)
        assert changes.summary().unchanged == 180


def test_changes_across_renamed_added_and_widened_columns() -> None:
    with shop() as store:
        store.create_table("t", pa.table({"id": [1, 2, 3], "v": pa.array([1, 2, 3], pa.int16())}), key="id")
        store.snapshot("before")
        with store.transaction() as tx:
            tx.rename_column("t", "v", "w")
            tx.add_column("t", "n", "int64", default=5)
            tx.widen_column("t", "w", "int64")
        assert len(store.changes("t", since="before")) == 0
        store.table("t").update(where="id = 2", values={"n": 6, "w": 2**40})
        found = store.changes("t", since="before").to_arrow().to_pylist()
        assert found == [
            {"_change": "update", "id": 2, "w": 2**40, "n": 6, "_before": {"w": 2, "n": 5}, "_changed": ["w", "n"]}
        ]


def test_pages_are_plain_parquet(tmp_path: Any) -> None:
    with shop(LocalStorage(tmp_path / "shop")) as store:
        store.create_table("t", numbered(1000), key="id")
        store.table("t").update(where="id = 3", values={"v": 0})
        (entry,) = entries(store, "t")
        base = pq.read_table(tmp_path / "shop" / entry.base.name)
        assert base.column_names == ["_row", "id", "v"]
        assert len(base) == 1000
        overlay = pq.read_table(tmp_path / "shop" / entry.overlay.name)
        assert overlay.to_pylist() == [{"_row": 3, "id": 3, "v": 0, "_deleted": False}]


def test_a_reader_that_comes_too_late_is_told_so() -> None:
    with shop() as store:
        store.create_table("t", numbered(10), key="id")
        snapshot = store.snapshot()
        view = snapshot.view
        snapshot.close()
        store.table("t").update(values={"v": 1})
        store.cache.clear()
        from strandline.tables import TableReader

        with pytest.raises(SnapshotExpired):
            TableReader(view, "t", store.cache).to_arrow()


TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, None]),
    (pa.int8(), [-1, None]),
    (pa.uint64(), [2**64 - 1, None]),
    (pa.float16(), [np.float16(1.5), None]),
    (pa.float32(), [1.5, float("nan")]),
    (pa.float64(), [-0.0, None]),
    (pa.decimal128(38, 5), [Decimal("1.50000"), None]),
    (pa.decimal256(60, 5), [Decimal("-1.50000"), None]),
    (pa.string(), ["a", None]),
    (pa.large_string(), ["ä", ""]),
    (pa.binary(), [b"\0", None]),
    (pa.large_binary(), [b"x", None]),
    (pa.binary(2), [b"xy", None]),
    (pa.date32(), [dt.date(2024, 1, 1), None]),
    (pa.date64(), [dt.date(2024, 1, 1), None]),
    (pa.time32("s"), [dt.time(1, 2, 3), None]),
    (pa.time32("ms"), [dt.time(1, 2, 3), None]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4), None]),
    (pa.time64("ns"), [dt.time(1, 2, 3, 4), None]),
    (pa.timestamp("s"), [dt.datetime(2024, 1, 1), None]),
    (pa.timestamp("ms", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
    (pa.timestamp("us", "Europe/Helsinki"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
    (pa.timestamp("ns"), [dt.datetime(2024, 1, 1), None]),
    (pa.duration("s"), [dt.timedelta(seconds=5), None]),
    (pa.duration("us"), [dt.timedelta(seconds=5), None]),
    (pa.null(), [None, None]),
    (pa.list_(pa.int32()), [[1, None], None]),
    (pa.large_list(pa.string()), [["a"], []]),
    (pa.list_(pa.int8(), 2), [[1, 2], None]),
    (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x"]}, None]),
    (pa.map_(pa.string(), pa.int32()), [[("k", 1)], None]),
]


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_every_type_that_parquet_carries_comes_back(kind: pa.DataType, values: list[Any]) -> None:
    with shop() as store:
        table = pa.table({"id": [1, 2], "v": pa.array(values, kind)})
        store.create_table("t", table, key="id")
        store.table("t").upsert(pa.table({"id": [2, 3], "v": pa.array(values, kind)}))
        store.table("t").delete(where="id = 1")
        store.cache.clear()
        found = store.table("t").to_arrow()
        assert found.schema.field("v").type == kind
        assert str(found["v"].to_pylist()) == str(table["v"].to_pylist())
        with store.snapshot() as before:
            store.table("t").update(where="id = 3", set={"v": "NULL"})
            assert len(store.changes("t", since=before)) == (values[1] is not None)


def test_encodings_are_stored_as_values_and_what_parquet_lacks_is_refused() -> None:
    with shop() as store:
        encoded = pa.table({"d": pa.array(["a", "b"]).dictionary_encode(), "w": pa.array(["x", "y"], pa.string_view())})
        store.create_table("t", encoded, key="d")
        assert store.table("t").schema.types == [pa.string(), pa.string()]
        assert rows(store, "t") == [{"d": "a", "w": "x"}, {"d": "b", "w": "y"}]
        interval = pa.table({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
        with pytest.raises(SchemaError, match="Parquet"):
            store.create_table("no", interval)


def test_a_page_tells_its_row_numbers_where_they_are_consecutive_and_repeats_nothing_it_can_leave_out() -> None:
    schema = pa.schema([("id", pa.int64()), ("c", pa.int16()), ("s", pa.string())])
    table_schema = new_table_schema(schema, ("id",))
    assert TableSchema.from_bytes(table_schema.to_bytes()) == table_schema
    rows = 5000
    data = {"id": np.arange(rows) * 3, "c": np.full(rows, 7, dtype=np.int16), "s": ["a", None] * (rows // 2)}
    for first, numbers in ((40, np.arange(40, 40 + rows)), (None, np.arange(rows)[::-1])):
        table = pa.table({"_row": numbers, **data}, schema=table_schema.row_schema)
        page = encode_page(table, table_schema)
        assert decode_page(page, table_schema).equals(table)
        found = OpenedPage(page, table_schema).columns(["c", "id", "s"])
        assert found.first == first
        names = ["c", "id", "s"] if first is not None else ["_row", "c", "id", "s"]
        assert found.table.equals(table.select(names))
        encodings = [pq.ParquetFile(pa.BufferReader(page)).metadata.row_group(0).column(n).encodings for n in range(2)]
        assert all("DELTA_BINARY_PACKED" in one for one in encodings)
