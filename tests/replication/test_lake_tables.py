"""Copies as Delta and Iceberg tables: what other programs read, and what they may do there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyiceberg.expressions import EqualTo
from tests.replication.conftest import place_of

import strandline as sl
from strandline.errors import Conflict, Damaged, InputError, StorageError
from strandline.relations import iceberg_catalog
from strandline.replication.targets.target import open_target
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

KINDS = ["delta", "iceberg"]
ROWS = pa.table({"id": range(20), "price": [n / 2 for n in range(20)]})


@pytest.fixture
def store() -> Iterator[Store]:
    with create_on(MemoryStorage()) as opened:
        opened.create_table("orders", ROWS, key="id")
        opened.create_table("bag", pa.table({"a": [1, 1, 2]}))
        yield opened


def iceberg_table(folder: Path) -> Any:
    return iceberg_catalog(str(folder), "reading").load_table()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_another_program_changed_are_found_and_mended(store: Store, tmp_path: Path, kind: str) -> None:
    copy = store.view("orders").replicate(f"{kind}://{tmp_path}/rows")
    store.table("orders").upsert([{"id": 3, "price": 9.0}])
    assert copy.refresh().method == "difference"
    if kind == "delta":
        table = DeltaTable(tmp_path / "rows")
        table.delete("id = 4")
        table.optimize.compact()
    else:
        iceberg_table(tmp_path / "rows").delete(EqualTo("id", 4))
    assert copy.verify().missing == 1
    assert copy.repair().messages == 1
    assert copy.verify()
    store.table("orders").delete(where="id < 3")
    assert copy.refresh().method == "difference"
    assert_equal(f"{kind}://{tmp_path}/rows", store.table("orders").to_arrow())


@pytest.mark.parametrize("kind", KINDS)
def test_counted_rows_that_another_program_added_are_left_out(store: Store, tmp_path: Path, kind: str) -> None:
    copy = store.view("bag").replicate(f"{kind}://{tmp_path}/rows")
    mine = pa.table({"a": pa.array([9], pa.int64())})
    if kind == "delta":
        write_deltalake(tmp_path / "rows", mine, mode="append")
    else:
        iceberg_table(tmp_path / "rows").append(mine)
    assert "not one of" in copy.verify().damaged[0]
    copy.repair()
    assert copy.verify()
    assert sorted(place_of(kind, tmp_path, None).read()) == [(1,), (1,), (2,)]


@pytest.mark.parametrize("kind", KINDS)
def test_old_versions_stay_readable_and_other_columns_come(store: Store, tmp_path: Path, kind: str) -> None:
    copy = store.view("v", "select id, price from orders").replicate(f"{kind}://{tmp_path}/rows")
    first: Any = DeltaTable(tmp_path / "rows").version() if kind == "delta" else _snapshot(tmp_path / "rows")
    store.view("v", "select id, price > 4 as price, id * 2 as twice from orders")
    assert copy.refresh().method == "repair"
    assert copy.verify()
    assert_equal(tmp_path / "rows", store.query("select id, price > 4 as price, id * 2 as twice from orders"))
    assert_equal(tmp_path / "rows", ROWS, old_version=first)


def assert_equal(old: Any, new: pa.Table, **options: Any) -> None:
    assert sl.diff(old, new, key="id", **options).to_arrow().num_rows == 0


def _snapshot(folder: Path) -> Any:
    return iceberg_table(folder).current_snapshot().snapshot_id


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_no_copy_is_refused_and_left_alone(store: Store, tmp_path: Path, kind: str) -> None:
    if kind == "delta":
        write_deltalake(tmp_path / "rows", ROWS)
    else:
        iceberg_catalog(str(tmp_path / "rows"), "").create(ROWS.schema).append(ROWS)
    with pytest.raises(InputError, match="no copy of ours"):
        store.view("orders").replicate(f"{kind}://{tmp_path}/rows")
    assert len(place_of(kind, tmp_path, None).read()) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_another_program_makes_first_is_a_conflict(store: Store, tmp_path: Path, kind: str) -> None:
    copy = store.view("orders").replicate(f"{kind}://{tmp_path}/rows")
    store.table("orders").delete(where="id = 1")
    with open_target(f"{kind}://{tmp_path}/rows") as target:
        folder: Any = target._folder  # type: ignore[attr-defined]
        manifest = folder.read()
        if kind == "delta":
            DeltaTable(tmp_path / "rows").delete("id = 2", commit_properties=CommitProperties({"who": "another"}))
        else:
            iceberg_table(tmp_path / "rows").delete(EqualTo("id", 2))
        folder._now = lambda: folder._seen[1]
        with pytest.raises(Conflict, match="meanwhile"):
            folder.commit(manifest)
    assert copy.refresh().method == "difference"
    assert copy.verify().missing == 1


def test_a_copy_is_removed_with_its_old_versions_and_what_is_not_ours_stays(store: Store, tmp_path: Path) -> None:
    for kind in KINDS:
        copy = store.view("orders").replicate(f"{kind}://{tmp_path}/{kind}", name=kind)
        (tmp_path / kind / "notes.txt").write_text("mine")
        copy.drop()
        assert os.listdir(tmp_path / kind) == ["notes.txt"]


LOGS = [(log, content) for log in ("snap-*.avro", "*-m0.avro") for content in (None, b"", b"hello", bytes(range(256)))]


@pytest.mark.parametrize(("log", "content"), [*LOGS, ("v*.metadata.json", b"{}"), ("v*.metadata.json", b"\xff")])
def test_a_log_that_cant_be_read_is_told_and_its_copy_made_anew_elsewhere(
    store: Store, tmp_path: Path, log: str, content: bytes | None
) -> None:
    copy = store.view("orders").replicate(f"iceberg://{tmp_path}/rows")
    for path in (tmp_path / "rows" / "metadata").glob(log):
        path.unlink() if content is None else path.write_bytes(content)
    store.table("orders").upsert([{"id": 3, "price": 9.0}])
    for ask in (copy.refresh, copy.verify, copy.repair):
        with pytest.raises(Damaged, match=r"its metadata can't be read.*Move the folder aside"):
            ask()
    (tmp_path / "rows").rename(tmp_path / "aside")
    assert copy.refresh().messages
    assert_equal(tmp_path / "rows", store.table("orders").to_arrow())


def test_a_hint_that_cant_be_read_is_none(store: Store, tmp_path: Path) -> None:
    copy = store.view("orders").replicate(f"iceberg://{tmp_path}/rows")
    (tmp_path / "rows" / "metadata" / "version-hint.text").write_bytes(b"\xff\xfe")
    assert copy.verify()


def test_a_commit_that_the_table_refuses_is_no_conflict(store: Store, tmp_path: Path) -> None:
    copy = store.view("orders").replicate(f"delta://{tmp_path}/rows")
    DeltaTable(tmp_path / "rows").alter.set_table_properties({"delta.appendOnly": "true"})
    store.table("orders").upsert([{"id": 3, "price": 9.0}])
    with pytest.raises(StorageError, match="append") as told:
        copy.refresh()
    assert not told.value.retryable
