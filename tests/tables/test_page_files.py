"""Queries that DuckDB computes over the pages themselves, against the same queries over Arrow."""

from __future__ import annotations

import datetime
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.engine import thread_sandbox
from strandline.errors import Damaged, NotFound, SqlError
from strandline.storage import LocalStorage
from strandline.store import Store, create, create_on
from strandline.store import open as open_store
from strandline.tables import Limits, TableReader, page_files, query

TINY = Limits(page_rows=4, cut_rows=3, join_rows=2, most_in_overlay=3, fewest_for_overlay=3)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, 127]),
    "u64": (pa.uint64(), [0, 2**64 - 1]),
    "f4": (pa.float32(), [1.5, float("nan")]),
    "f8": (pa.float64(), [-0.0, float("inf")]),
    "b": (pa.bool_(), [True, False]),
    "s": (pa.string(), ["", "ä\0'"]),
    "ls": (pa.large_string(), ["x", "y" * 40]),
    "y": (pa.binary(), [b"", b"\xff\0"]),
    "d": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "m": (pa.decimal128(6, 2), [Decimal("0.10"), Decimal("-9999.99")]),
    "wide": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-1)]),
    "t": (pa.timestamp("us"), [datetime.datetime(1960, 1, 1, 1, 1, 1, 1), datetime.datetime(2200, 1, 1)]),
    "ns": (pa.timestamp("ns"), [1, 2]),
    "zone": (pa.timestamp("us", "UTC"), [1, 2]),
    "list": (pa.list_(pa.int32()), [[1], []]),
}


@pytest.fixture(autouse=True)
def _every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "LEAST_BYTES", 0)
    monkeypatch.setattr(query, "suppress", lambda *_: nullcontext())  # nothing is computed over Arrow instead


def both_ways(store: Store, sql: str) -> tuple[pa.Table, pa.Table]:
    """The result over files, and over Arrow."""
    by_files = store.query(sql)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_files, "LEAST_BYTES", 1 << 60)
        return by_files, store.query(sql)


def bag(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())


values = st.one_of(st.none(), st.integers(0, 3))
steps = st.lists(
    st.tuples(st.sampled_from(["upsert", "delete", "update", "move"]), st.integers(0, 30), values),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(15))
@given(st.dictionaries(st.integers(0, 30), values, max_size=20), steps, st.booleans())
def test_pages_and_overlays_give_what_arrow_gives(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[int, Any], done: list[tuple[str, int, Any]], keyed: bool
) -> None:
    with create_on(LocalStorage(tmp_path_factory.mktemp("store")), limits=TINY) as store:
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
        table = pa.table({"k": list(rows), "v": list(rows.values())}, schema=schema)
        store.create_table("t", table, key="k" if keyed else None)
        for verb, key, value in done:
            if verb == "upsert" and keyed:
                store.table("t").upsert([{"k": key, "v": value}])
            elif verb == "upsert":
                store.table("t").insert([{"k": key, "v": value}])
            elif verb == "delete":
                store.table("t").delete(where=f"k = {key} or v = 2")
            elif verb == "update":
                store.table("t").update(where=f"k <= {key}", set={"v": "coalesce(v, 0) + 1"})
            else:  # keys move to other pages and keep their numbers
                store.table("t").update(where=f"k = {key}", set={"k": "k + 100"})
        for sql in ("select * from t", "select a.k, b.v from t a join t b on a.v = b.v where a.k < 20"):
            files, arrow = both_ways(store, sql)
            assert bag(files) == bag(arrow)
            assert files.schema == arrow.schema


def test_every_type_means_the_same_either_way(tmp_path: Path) -> None:
    with create(tmp_path / "store") as store:
        columns: dict[str, pa.Array] = {}
        for name, (kind, held) in KINDS.items():
            columns[name] = pa.array([held[0], held[1], None], kind)
        store.create_table("t", pa.table({"id": [1, 2, 3], **columns}), key="id")
        read_of_pages = ", ".join(name for name in KINDS if name not in ("ns", "zone", "list"))
        for sql in ("select * from t order by id", f"select id, {read_of_pages} from t order by id"):
            files, arrow = both_ways(store, sql)
            assert files.schema == arrow.schema
            assert repr(files.to_pylist()) == repr(arrow.to_pylist())


def test_which_tables_duckdb_reads_itself(tmp_path: Path) -> None:
    with create(tmp_path / "store") as store:
        for name in ("plain", "filename"):
            store.create_table(name, pa.table({"id": [1, 2], name: ["a", "b"]}), key="id")
        with store.state() as view:
            readers = {name: TableReader(view, name, store.cache) for name in ("plain", "filename")}
            assert page_files.files_of_table(readers["plain"], ["id", "plain"]) is not None
            assert page_files.files_of_table(readers["filename"], ["id"]) is None
        with store.transaction() as transaction:
            transaction.rename_column("plain", "plain", "other")
        with store.state() as view:
            reader = TableReader(view, "plain", store.cache)
            assert page_files.files_of_table(reader, ["id", "other"]) is None
        assert store.query("select other from plain order by id").column("other").to_pylist() == ["a", "b"]


def test_a_damaged_page_is_noticed_before_duckdb_reads_it(tmp_path: Path) -> None:
    with create(tmp_path / "store") as store:
        store.create_table("t", pa.table({"id": range(5000)}), key="id")
    for page in (tmp_path / "store" / "pages").glob("*.parquet"):
        data = bytearray(page.read_bytes())
        data[len(data) // 2] ^= 1
        page.write_bytes(bytes(data))
    with open_store(tmp_path / "store") as store, pytest.raises(Damaged, match="checksum"):
        store.query("select sum(id) from t")


def test_a_query_reads_no_other_file(tmp_path: Path) -> None:
    with create(tmp_path / "store") as store:
        store.create_table("t", pa.table({"id": range(5)}), key="id")
        page = next((tmp_path / "store" / "pages").glob("*.parquet"))
        for sql in (f"select * from read_parquet('{page}')", f"select * from '{page}'", "select * from glob('/*')"):
            with pytest.raises((SqlError, NotFound)):
                store.query(sql)


def test_nothing_of_a_query_is_left_for_the_next_one(tmp_path: Path) -> None:
    with create(tmp_path / "shop") as store:
        store.create_table("t", pa.table({"id": [1, 2]}), key="id")
        store.table("t").update(where="id = 1", set={"id": "3"})
        for _ in range(2):
            with pytest.raises((duckdb.Error, SqlError), match="there is no"):
                store.query("select error('there is no ' || id) from t")
            assert store.query("select sum(id) as s from t").to_pylist() == [{"s": 5}]
        left = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
        assert thread_sandbox(str(tmp_path / "shop")).execute(left) == []
