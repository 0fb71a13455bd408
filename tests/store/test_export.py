"""A table that goes out is the same table there, at the state that was asked for."""

from __future__ import annotations

import datetime as dt
import os
import random
import resource
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import Command

import strandline as sl
from strandline.errors import InputError, StorageError
from strandline.relations import open_relation, read_relation

ROWS = pa.table(
    {
        "id": [3, 1, 2],
        "name": ["c", None, "b"],
        "money": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(9, 2)),
        "seen": pa.array([dt.datetime(2026, 3, 1, 12), None, dt.datetime(1969, 1, 1)], pa.timestamp("us", "UTC")),
        "tags": [["x"], None, []],
    }
)


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with sl.create(tmp_path / "shop") as store:
        store.create_table("stock", ROWS, key="id")
        store.snapshot("monday")
        store.table("stock").delete(where="id = 3")
        yield store


@pytest.mark.parametrize("to", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("at", ["monday", None])
def test_what_comes_out_is_what_was_there(shop: sl.Store, tmp_path: Path, to: str, at: str | None) -> None:
    path = tmp_path / f"out.{to}"
    done = shop.table("stock").export(path, to=to, at=at)
    assert (done.to, done.rows) == (to, 3 if at else 2)
    changes = sl.diff(shop.table("stock").relation(at=at), path, key="id", runner="inline")
    assert (changes.summary().changed, changes.summary().unchanged) == (0, done.rows)


@pytest.mark.parametrize("to", ["csv", "jsonl", "arrow", "parquet"])
def test_a_suffix_says_what_is_written(shop: sl.Store, tmp_path: Path, to: str) -> None:
    done = shop.table("stock").export(tmp_path / f"out.{to}")
    assert (done.to, done.rows) == (to, 2)
    assert read_relation(open_relation(tmp_path / f"out.{to}"), ["id"]).column("id").to_pylist() == [1, 2]


def test_an_empty_table_and_a_table_without_a_key_come_out(shop: sl.Store, tmp_path: Path) -> None:
    shop.create_table("empty", ROWS.slice(0, 0).drop_columns(["tags"]))
    for to in ("parquet", "delta", "iceberg"):
        assert shop.table("empty").export(tmp_path / to, to=to).rows == 0
        assert sl.diff(tmp_path / to, shop.table("empty").relation(), runner="inline").summary().changed == 0


def test_what_is_there_stays_unless_it_is_to_be_replaced(shop: sl.Store, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    stock = shop.table("stock")
    for to in ("parquet", "delta", "iceberg"):
        stock.export(tmp_path / to, to=to, at="monday")
        with pytest.raises(InputError, match="something of that name is there"):
            stock.export(tmp_path / to, to=to)
    stock.export(tmp_path / "parquet", overwrite=True)
    assert pq.read_metadata(tmp_path / "parquet").num_rows == 2
    stock.export(tmp_path / "delta", to="delta", overwrite=True)
    versions = [DeltaTable(tmp_path / "delta", version=version).to_pyarrow_table() for version in (0, 1)]
    assert [len(rows) for rows in versions] == [3, 2]
    with pytest.raises(InputError, match="something of that name"):
        stock.export(tmp_path / "iceberg", to="iceberg", overwrite=True)
    with pytest.raises(InputError, match="'orc' is nothing to export to"):
        stock.export(tmp_path / "x", to="orc")
    with pytest.raises(InputError, match="'sql' is nothing to export to"):
        stock.export(tmp_path / "x.sql")


def test_what_a_format_cant_hold_is_told(shop: sl.Store, tmp_path: Path) -> None:
    shop.create_table("spans", pa.table({"id": [1], "d": pa.array([1], pa.duration("us"))}), key="id")
    for to in ("delta", "iceberg"):
        with pytest.raises(InputError, match=f"{to} can't hold these rows"):
            shop.table("spans").export(tmp_path / to, to=to)


def test_the_command_exports_a_state(
    shop: sl.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(capsys)
    ran = command("export", "shop", "stock", "x.parquet", "--at", "monday")
    assert (ran.code, ran.err) == (0, "3 rows of stock in x.parquet (parquet).\n")
    assert command("export", "shop", "stock", "x.parquet", "--overwrite", "--json").json["rows"] == 2
    assert "there is no table gone" in command("export", "shop", "gone", "y.parquet").err
    told = command("export", "shop", "stock", os.devnull, "--overwrite").err
    assert "something of that name is there. Name another place.\n" in told


@pytest.mark.parametrize("to", ["parquet", "delta", "iceberg"])
def test_an_export_that_the_disk_refuses_leaves_nothing_and_is_done_once_there_is_room(
    shop: sl.Store, tmp_path: Path, to: str
) -> None:
    chance = random.Random(7)
    wide = pa.table({"id": range(50_000), "v": [chance.random() for _ in range(50_000)]})
    table = shop.create_table("wide", wide, key="id")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"(?i)file too large"):
            table.export(tmp_path / "out", to=to)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(os.listdir(tmp_path)) == ["shop"]
    assert table.export(tmp_path / "out", to=to).rows == 50_000


def test_an_export_that_a_format_refuses_leaves_no_folder(shop: sl.Store, tmp_path: Path) -> None:
    shop.create_table("odd", pa.table({"id": [1], "t": pa.array([1], pa.time64("ns"))}), key="id")
    for to in ("delta", "iceberg"):
        with pytest.raises(InputError, match="can't hold these rows"):
            shop.table("odd").export(tmp_path / to, to=to)
    assert os.listdir(tmp_path) == ["shop"]
