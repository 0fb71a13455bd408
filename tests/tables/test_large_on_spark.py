"""Large writes on Spark's workers: retried, repeated and failing tasks leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import troubled_kernels
from tests.tables.shop import entries, numbered

import strandline as sl
from strandline.engine.spark_runner import SparkRunner
from strandline.errors import EngineError, KeysError
from strandline.store import Store
from strandline.tables import bulk_write, page_writer


@pytest.fixture(scope="module")
def workers(spark: Any) -> Any:
    spark.addArtifacts(str(Path(troubled_kernels.__file__)), pyfile=True)
    return spark


@pytest.fixture
def store(workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A table of eight pages; every write of more than a hundred rows goes to Spark."""
    monkeypatch.setattr(bulk_write, "LARGE_ROWS", 100)
    monkeypatch.setattr(bulk_write, "INLINE_LIMIT", 0)
    monkeypatch.setattr(page_writer, "BULK_ROWS", 500)
    monkeypatch.setattr(bulk_write, "LEAST_BYTES", 1000)
    # Kernels of a test are found by a name that workers know.
    monkeypatch.setattr(troubled_kernels, "__name__", "troubled_kernels")
    for kernel in (
        troubled_kernels.merge_fails_once,
        troubled_kernels.load_fails_once,
        troubled_kernels.merge_runs_twice,
    ):
        monkeypatch.setattr(kernel, "__module__", "troubled_kernels")
    with sl.create(tmp_path / "shop", session=workers) as opened:
        opened.create_table("t", numbered(4000), key="id")
        yield opened
        report = opened.check()
        assert report.ok, (report.findings, report.unreachable)
        blocks = opened.pages.store.beat().processes[opened.pages.store.process].blocks
        assert [block for block in blocks if block.run > 1] == [], "no worker may write any more"


def file_of(folder: Path, rows: pa.Table, name: str = "rows.parquet") -> Path:
    pq.write_table(rows, folder / name, row_group_size=400)
    return folder / name


def pages(store: Store) -> set[str]:
    return {path.name for path in (Path(store.url) / "pages").iterdir()}


def named(store: Store) -> set[str]:
    return {Path(page.name).name for entry in entries(store, "t") for page in entry.pages}


def test_merges_and_overwrites_write_pages_in_the_tasks_and_commit_once(store: Store, tmp_path: Path) -> None:
    assert len(entries(store, "t")) == 8
    commit = store.pages.view().commit
    rows = pa.table({"id": range(0, 6000, 3), "v": [-1] * 2000})
    assert store.table("t").upsert(file_of(tmp_path, rows)) == 2000
    assert store.pages.view().commit == commit + 1
    expected = {**{n: n * 10 for n in range(4000)}, **dict.fromkeys(range(0, 6000, 3), -1)}
    found = store.table("t").to_arrow(columns=["id", "v", "_row"])
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert [row["_row"] for row in found.to_pylist() if row["id"] < 4000] == list(range(4000))
    assert store.table("t").overwrite(file_of(tmp_path, numbered(3000, 1000))) == 1000 + 1000 + 666
    assert store.table("t").to_arrow().to_pylist() == numbered(3000, 1000).to_pylist()
    assert store.table("t").to_arrow(columns=["_row"])["_row"].to_pylist() == list(range(1000, 4000))
    assert pages(store) == named(store)


def test_a_frame_is_merged_and_changes_are_applied_on_spark(store: Store, workers: Any) -> None:
    store.snapshot("before")
    frame = workers.range(0, 500, 1, 3).selectExpr("id * 2 AS id", "CAST(7 AS BIGINT) AS v")
    store.table("t").upsert(frame)
    changes = store.changes("t", since="before")
    assert changes.summary().updated == 500
    store.table("t").apply(changes.invert())
    assert store.table("t").to_arrow().to_pylist() == numbered(4000).to_pylist()
    store.drop_snapshot("before")


def test_rows_without_a_key_are_overwritten_and_counted_changes_applied_in_the_tasks(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = SparkRunner.run

    def noted(self: SparkRunner, kernel: Any, *rest: Any) -> Any:
        ran.append(kernel.__name__)
        return run(self, kernel, *rest)

    monkeypatch.setattr(SparkRunner, "run", noted)
    store.drop_table("t")
    store.create_table("t", pa.table({"v": [n % 50 for n in range(400)]}))
    commit = store.pages.view().commit
    wanted = pa.table({"v": [n % 60 for n in range(300)]})
    assert store.table("t").overwrite(file_of(tmp_path, wanted)) == 50 * 3 + 10 * 5
    assert store.pages.view().commit == commit + 1
    assert ran == ["split_by_value", "settle_values", "route_rows", "merge_range", "route_rows", "load_range"]
    assert sorted(store.table("t").to_arrow()["v"].to_pylist()) == sorted(wanted["v"].to_pylist())
    back = sl.diff(pa.table({"v": wanted["v"]}), pa.table({"v": [n % 50 for n in range(400)]}), key=None)
    assert store.table("t").apply(back) == 50 * 3 + 10 * 5
    assert ran[6:] == ran[:6]
    assert sorted(store.table("t").to_arrow()["v"].to_pylist()) == sorted(n % 50 for n in range(400))
    assert pages(store) == named(store)


@pytest.mark.parametrize("kernel", ["merge_fails_once", "merge_runs_twice"])
def test_tasks_that_are_tried_again_or_run_twice_leave_no_page(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    monkeypatch.setattr(bulk_write, "merge_range", getattr(troubled_kernels, kernel))
    store.table("t").upsert(file_of(tmp_path, numbered(4000).set_column(1, "v", pa.array([5] * 4000))))
    assert store.table("t").to_arrow()["v"].to_pylist() == [5] * 4000
    assert pages(store) == named(store)


def test_a_load_whose_tasks_fail_once_is_a_load(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_write, "load_range", troubled_kernels.load_fails_once)
    store.create_table("u", file_of(tmp_path, numbered(1000)), key="id")
    assert store.table("u").to_arrow().to_pylist() == numbered(1000).to_pylist()
    store.drop_table("u")
    assert pages(store) == named(store)


def test_a_write_that_fails_for_good_leaves_the_old_rows_and_nothing_else(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pages(store)
    with pytest.raises(KeysError, match=r"already: \(id=3900\)"):
        store.table("t").insert(file_of(tmp_path, numbered(2000, 3900)))
    assert pages(store) == before
    monkeypatch.setattr(bulk_write, "ATTEMPTS", 1)
    monkeypatch.setattr(bulk_write, "merge_range", troubled_kernels.merge_fails_once)
    with pytest.raises((EngineError, sl.StrandlineError), match="tried more than 1 times"):
        store.table("t").upsert(file_of(tmp_path, numbered(4000).set_column(1, "v", pa.array([5] * 4000))))
    assert pages(store) == before
    assert store.table("t").count() == 4000
