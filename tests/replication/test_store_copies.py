"""Copies in a store: stopped at every storage operation, read as ordinary tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pages.faults import Crash, Fault, FaultyStorage
from tests.replication.senders import COUNTED, KEYED, RANGES, SCHEMA, change, load, piece_of, ranges, rows
from tests.storage.s3 import bucket

import strandline as sl
from strandline.errors import SchemaError
from strandline.pages import PageStore, check_store
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition
from strandline.replication.message import Message
from strandline.replication.targets.target import CopyTarget, open_target
from strandline.storage import MemoryStorage
from strandline.store import open_on
from strandline.tables import TableReader

OLD = rows((1, "nut", 1.5), (2, "bolt", 2.5), (3, "nail", None))
NEW = rows((1, "nut", 1.5), (2, "bolt", 9.5), (4, "screw", 0.0))
AT = pa.schema([("_strandline_address", pa.int64()), *list(SCHEMA)[1:]])


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens a copy on any storage, without a heart that beats in between."""
    monkeypatch.setattr(PageStore, "start_heart", lambda self: None)

    def opened(storage: MemoryStorage | FaultyStorage) -> CopyTarget:
        monkeypatch.setattr("strandline.replication.targets.store.open_storage", lambda _: storage)
        return open_target("strandline:///shop#copy")

    return opened


def shown(storage: MemoryStorage) -> list[tuple[Any, ...]]:
    with open_on(storage) as store:
        if "copy" not in store.tables():
            return []
        return sorted(tuple(row.values()) for row in store.table("copy").to_arrow().to_pylist())


def changed(state: CopyState) -> Message:
    return change(state, OLD, NEW, time=7)


def emptied(state: CopyState) -> Message:
    return ranges(state, [(0, 1), (2, None)], rows((5, "new", 0.5), schema=AT))


def loaded_again(state: CopyState) -> Message:
    return piece_of(state, NEW, 0, 1, 7)


CASES: dict[str, Any] = {
    "keyed": (KEYED, OLD, changed),
    "counted": (COUNTED, pa.concat_tables([OLD, OLD]), changed),
    "ranges": (RANGES, rows((1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0), schema=AT), emptied),
    "load": (KEYED, OLD, loaded_again),
}


@pytest.mark.parametrize("fault", [Fault.TEAR, Fault.ANSWER_LOST_THEN_STOP], ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("case", CASES)
def test_a_message_stopped_at_every_storage_operation_is_taken_whole_or_not_at_all(
    case: str, fault: Fault, on: Any
) -> None:
    definition, content, message_of = CASES[case]
    settled = MemoryStorage()
    with on(settled) as copy:
        copy.create(definition)
        state = load(copy, content)
    message, before = message_of(state), shown(settled)
    whole = MemoryStorage(settled.objects)
    with on(whole) as copy:
        copy.apply(message)
    after, at, struck = shown(whole), 0, True
    assert after != before
    while struck:
        inner = MemoryStorage(settled.objects)
        storage = FaultyStorage(inner, fault, at)
        try:
            with on(storage) as copy:
                copy.apply(message)
        except Crash:
            assert shown(inner) in (before, after)
        with on(inner) as copy:
            found = copy.apply(message)  # again: taken once, whichever it was
            assert found.position == message.position
        assert shown(inner) == after
        assert check_store(inner).ok
        struck, at = storage.struck, at + 1
    assert at > 5


def test_a_first_content_in_pieces_is_shown_when_it_is_whole(on: Any) -> None:
    storage = MemoryStorage()
    with on(storage) as copy:
        copy.create(COUNTED)
        state = copy.claim()
        twice = pa.concat_tables([OLD, OLD])
        for piece in range(3):
            assert shown(storage) == []
            state = copy.apply(piece_of(state, twice.slice(piece * 2, 2), piece, 3, 1))
    assert len(shown(storage)) == 6


def test_rows_stay_themselves_through_a_full_refresh(tmp_path: Path) -> None:
    url = f"strandline:///{tmp_path}/shop#copy"
    with open_target(url) as copy:
        copy.create(KEYED)
        load(copy, OLD)
    with sl.open(tmp_path / "shop") as store:
        before = store.table("copy").to_arrow(columns=["id", "_row"]).to_pylist()
        store.snapshot("before")
    with open_target(url) as copy:
        load(copy, NEW, time=2)
    with sl.open(tmp_path / "shop") as store:
        numbers = {row["id"]: row["_row"] for row in store.table("copy").to_arrow(columns=["id", "_row"]).to_pylist()}
        assert numbers[1] == before[0]["_row"]
        told = store.changes("copy", since="before").summary()
        assert (told.inserted, told.updated, told.deleted) == (1, 1, 1)


def test_our_columns_are_read_only_by_who_names_them(tmp_path: Path) -> None:
    with open_target(f"strandline:///{tmp_path}/shop#copy") as copy:
        copy.create(RANGES)
        load(copy, rows((7, "a", 1.0), schema=AT))
    with sl.open(tmp_path / "shop") as store:
        table = store.table("copy")
        assert store.tables() == ["copy"]
        assert table.schema.names == ["name", "price"]
        assert table.relation().schema.names == ["name", "price"]
        assert table.to_arrow(columns=["_strandline_address"]).to_pylist() == [{"_strandline_address": 7}]
        assert store.query("select * from copy").to_pylist() == [{"name": "a", "price": 1.0}]
        with store.transaction() as tx:
            assert tx.to_arrow("copy").to_pylist() == [{"name": "a", "price": 1.0}]


def test_only_pages_that_can_hold_what_goes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.tables.page_writer.BULK_ROWS", 100)
    opened: list[int] = []
    read = TableReader.rows

    def counting(self: TableReader, entry: Any, *rest: Any) -> pa.Table:
        opened.extend([entry.number] if self.name == "copy" else [])
        return read(self, entry, *rest)

    with open_target(f"strandline:///{tmp_path}/shop#copy") as copy:
        copy.create(RANGES)
        state = load(copy, rows(*((n, f"n{n}", 1.0) for n in range(1, 2001)), schema=AT))
        monkeypatch.setattr("strandline.replication.targets.store.TableReader.rows", counting)
        copy.apply(ranges(state, [(450, 452), (1700, 1701)], AT.empty_table()))
        assert copy.count() == 1997
    assert len(set(opened)) == 2  # of twenty


def test_a_key_that_a_store_cannot_order_is_refused_naming_the_column(tmp_path: Path) -> None:
    schema = pa.schema([("odd one", pa.list_(pa.int64())), ("x", pa.int64())])
    with open_target(f"strandline:///{tmp_path}/shop#copy") as copy, pytest.raises(SchemaError, match="odd one"):
        copy.create(CopyDefinition(schema, "keyed", ("odd one",)))


def test_a_store_on_an_object_store_holds_copies_too() -> None:
    with bucket() as name:
        with open_target(f"strandline+s3://{name}/shop#copy") as copy:
            copy.create(KEYED)
            copy.apply(change(load(copy, OLD), OLD, NEW))
        with sl.open(f"s3://{name}/shop") as store:
            assert store.table("copy").count() == 3
