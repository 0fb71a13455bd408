"""The parts of the data sources, without Spark: options, filters, holding, staging, readers."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    InputPartition,
    IsNotNull,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from strandline.errors import EngineError, InputError, NotFound, SnapshotExpired, StrandlineError
from strandline.relations import read_relation
from strandline.spark_source import leases, readers
from strandline.spark_source.leases import Leases, LeaseServer, LeaseServerAddress, PinnedState, call_leases
from strandline.spark_source.options import ReadRequest, read_request, write_request
from strandline.spark_source.readers import PrunedTableRows, TableRows, condition_of
from strandline.spark_source.staged_write import StagedAttempt, new_job_id, stage, staged_relation, sweep
from strandline.storage import LocalStorage
from strandline.store import Store, create_on
from strandline.tables import Limits

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("price", pa.float64())])


def rows_of(reader: TableRows) -> list[dict[str, Any]]:
    parts = reader.partitions() or [InputPartition(None)]
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def pinned(store: Store, **request: Any) -> tuple[Leases, PinnedState]:
    leases_ = Leases()
    return leases_, leases_.pin(ReadRequest(store.url, "orders", **request))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "t"}, "the path of the store is missing"),
        ({"path": "s"}, "the option 'table' is missing"),
        ({"path": "s", "table": "t", "att": "x"}, "there is no option 'att'. Did you mean 'at'"),
        ({"path": "s", "table": "t", "until": "x"}, "since is not"),
        ({"path": "s", "table": "t", "since": "x", "at": "y"}, "both since and at"),
        ({"path": "s", "table": "t", "since": "x", "columns": "id"}, "changes come whole"),
        ({"path": "s", "table": "t", "pushdown": "maybe"}, "true or false"),
    ],
)
def test_wrong_read_options_are_refused_with_an_example(options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_request(options)


def test_wrong_write_options_are_refused() -> None:
    with pytest.raises(InputError, match="merge goes with"):
        write_request({"path": "s", "table": "t", "merge": "key"}, overwrite=True)
    with pytest.raises(InputError, match="no option 'at'"):
        write_request({"path": "s", "table": "t", "at": "monday"}, overwrite=False)


@pytest.mark.parametrize(
    ("given", "sql"),
    [
        (EqualTo(("id",), 3), '"id" = 3'),
        (EqualTo(("name",), "o'clock"), "\"name\" = 'o''clock'"),
        (GreaterThan(("day",), dt.date(2030, 1, 31)), "\"day\" > DATE '2030-01-31'"),
        (LessThanOrEqual(("id",), -1), '"id" <= -1'),
        (In(("id",), (1, 2)), '"id" IN (1, 2)'),
        (IsNotNull(("name",)), '"name" IS NOT NULL'),
        (EqualTo(("price",), 1.5), None),
        (EqualTo(("id",), None), None),
        (EqualTo(("s", "inner"), 1), None),
        (StringStartsWith(("name",), "a"), None),
        (Not(EqualTo(("id",), 3)), None),
    ],
)
def test_filters_are_said_in_sql_or_left_to_spark(given: Filter, sql: str | None) -> None:
    assert condition_of(given, SCHEMA) == sql


def test_a_pinned_state_is_read_whatever_is_committed_after(shop: Store) -> None:
    leases_, found = pinned(shop)
    reader = TableRows(found, "orders", pa.schema([("qty", pa.int64()), ("id", pa.int64())]), "id < 12")
    before = rows_of(reader)
    assert [row["qty"] for row in before] == [*[100] * 10, 3, 4]
    shop.table("orders").delete(where="id < 4000")
    shop.table("orders").update(set={"qty": "0"})
    assert rows_of(reader) == before
    leases_.release()


def test_reading_too_late_is_an_error_and_never_wrong_rows(shop: Store) -> None:
    leases_, found = pinned(shop)
    leases_.release()
    for number in range(3):
        shop.table("orders").update(set={"qty": str(number)})
    with pytest.raises(SnapshotExpired, match="Name a snapshot"):
        rows_of(TableRows(found, "orders", shop.table("orders").schema, None))


def test_the_state_asked_for_longest_ago_is_let_go_first(shop: Store) -> None:
    leases_ = Leases(limit=2)
    found = []
    for number in range(3):
        found.append(leases_.pin(ReadRequest(shop.url, "orders")))
        shop.table("orders").update(where="id = 1", set={"qty": str(number)})
    wanted = pa.schema([("qty", pa.int64())])
    kept = [rows_of(TableRows(one, "orders", wanted, "id = 1")) for one in found[1:]]
    assert kept == [[{"qty": 0}], [{"qty": 1}]]
    leases_._stores[shop.url].pages.store.beat()  # publishes that the first state is no longer read
    shop.table("orders").update(set={"qty": "5"})
    with pytest.raises(SnapshotExpired):
        rows_of(TableRows(found[0], "orders", wanted, None))
    leases_.release()


def test_a_state_is_a_snapshot_a_commit_or_a_time(shop: Store) -> None:
    leases_ = Leases()
    for at, qty in (("monday", 1), ("1", 1), ("2", 100), (dt.datetime.now().isoformat(), 100), (None, 100)):
        found = leases_.pin(ReadRequest(shop.url, "orders", at=at))
        assert rows_of(TableRows(found, "orders", pa.schema([("qty", pa.int64())]), "id = 1")) == [{"qty": qty}], at
    with pytest.raises(NotFound, match="The snapshots are monday"):
        leases_.pin(ReadRequest(shop.url, "orders", at="tuesday"))
    with pytest.raises(NotFound, match="no version idea"):
        leases_.pin(ReadRequest(shop.url, "orders", version="idea"))
    leases_.release()


def test_pages_outside_the_condition_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "GROUP_BYTES", 1)
    small = Limits(page_rows=100, cut_rows=80, join_rows=10, fewest_for_overlay=20)
    with create_on(LocalStorage(tmp_path / "small"), limits=small) as store:
        store.create_table("orders", pa.schema([("id", pa.int64()), ("qty", pa.int64())]), key="id")
        for first in range(0, 300, 50):
            store.table("orders").insert([{"id": n, "qty": n % 7} for n in range(first, first + 50)])
        leases_, found = pinned(store)
        schema = store.table("orders").schema
        everything = TableRows(found, "orders", schema, None)
        assert len(everything.partitions()) > 2
        assert [row["id"] for row in rows_of(everything)] == list(range(300))
        assert len(TableRows(found, "orders", schema, "id = 7").partitions()) == 1
        pushed = PrunedTableRows(found, "orders", schema, "qty < 6")
        filters: list[Filter] = [LessThanOrEqual(("id",), 7), StringStartsWith(("name",), "n")]
        assert list(pushed.pushFilters(filters)) == filters, "Spark applies them again"
        assert len(pushed.partitions()) == 1
        assert [row["id"] for row in rows_of(pushed)] == [0, 1, 2, 3, 4, 5, 7]
        leases_.release()


def test_a_lease_server_answers_for_its_process_with_its_errors(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(shop.url).parent)
    server = LeaseServer()
    try:
        assert call_leases(server.address, Leases.store_process, "shop").url == shop.url
        found = call_leases(server.address, Leases.pin, ReadRequest("shop", "orders"))
        assert found.url == shop.url
        parts = call_leases(server.address, Leases.changes, ReadRequest("shop", "orders", since="monday"))
        assert parts.header.counts.updated == 10
        assert all(os.path.exists(path) for path in parts.paths)
        with pytest.raises(NotFound, match="no snapshot tuesday"):
            call_leases(server.address, Leases.pin, ReadRequest("shop", "orders", at="tuesday"))
        stranger = LeaseServerAddress(server.address.path, b"guess")
        with pytest.raises(EngineError):
            call_leases(stranger, Leases.store_process, "shop")
    finally:
        server.close()


def test_without_a_lease_server_states_are_pinned_here_and_changes_are_refused(shop: Store) -> None:
    gone = LeaseServerAddress("/nowhere/leases", b"")
    assert call_leases(gone, Leases.pin, ReadRequest(shop.url, "orders")).url == shop.url
    with pytest.raises(InputError, match="can't be reached"):
        call_leases(gone, Leases.changes, ReadRequest(shop.url, "orders", since="monday"))
    leases._local_leases.release()


def test_a_state_pinned_by_a_reader_travels_as_text_and_changes_end_there(shop: Store) -> None:
    leases_ = Leases()
    rows, changes = ReadRequest(shop.url, "orders"), ReadRequest(shop.url, "orders", since="monday")
    text, until = leases_.pin_as_text(rows), leases_.pin_as_text(changes)
    assert text is not None
    shop.table("orders").delete()
    reader = TableRows(PinnedState.from_text(text), "orders", shop.table("orders").schema, "id = 3")
    assert rows_of(reader) == [{"id": 3, "qty": 100, "name": "n3"}]
    assert leases_.changes(replace(changes, pinned=until)).header.counts.deleted == 0
    assert leases_.changes(changes).header.counts.deleted == 5000
    leases_.release()


def test_a_store_that_only_spark_can_open_is_not_pinned_here(tmp_path: Path) -> None:
    assert Leases().pin_as_text(ReadRequest(str(tmp_path / "elsewhere"), "orders")) is None


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids)})


def test_attempts_at_one_partition_never_clash_and_all_of_them_are_swept(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    first = stage(storage, "job", (0, 0), [batch(1), batch(2)])
    again = stage(storage, "job", (0, 0), [batch(1), batch(2)])
    speculative = stage(storage, "job", (0, 1), [batch(1), batch(2)])
    assert [one.slot for one in (first, again, speculative)] == [0, 1, 2]
    assert stage(storage, "job", (1, 0), []) == StagedAttempt("job", 1, 0)
    other = stage(storage, "another", (0, 0), [batch(9)])
    rows = read_relation(staged_relation(storage.url, [again], pa.schema([("id", pa.int64())])))
    assert rows.to_pylist() == [{"id": 1}, {"id": 2}]
    sweep(storage, "job", 2)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == [Path(other.names()[0]).name]


def test_an_attempt_that_fails_takes_back_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark_source.staged_write.CHUNK_BYTES", 1)

    def rows() -> Any:
        yield batch(1)
        raise StrandlineError("the rows end badly")

    with pytest.raises(StrandlineError):
        stage(LocalStorage(tmp_path), "job", (0, 0), rows())
    assert list((tmp_path / "staging").iterdir()) == []


def test_what_a_dead_writer_has_staged_is_named_by_check_and_removed_on_demand(shop: Store) -> None:
    storage = LocalStorage(Path(shop.url))
    alive, dead = new_job_id(shop.pages.store.process), new_job_id(0)
    kept, left = (stage(storage, job, (0, 0), [batch(1), batch(2)]).names() for job in (alive, dead))
    report = shop.check()
    assert report.unreachable == left
    assert not report.ok
    assert shop.check(repair=True).removed == left
    assert shop.check().ok
    assert storage.get(kept[0])
    sweep(storage, alive, 1)
