"""Every kind of copy keeps the promises of the seam: one suite over all of them."""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.oracles.message_bytes import decoded, encoded
from tests.replication.conftest import FOLDERS, Place, store_of
from tests.replication.senders import COUNTED, KEYED, RANGES, SCHEMA, change, envelope, load, piece_of, ranges, rows

from strandline.errors import (
    ChangesError,
    Fenced,
    FormatError,
    InputError,
    KeysError,
    NotFound,
    SchemaError,
    StorageError,
)
from strandline.relations import iceberg_catalog
from strandline.replication.definition import CopyDefinition
from strandline.replication.targets.target import open_target

OLD = rows((1, "nut", 1.5), (2, "bolt", 2.5), (3, "nail", None))
NEW = rows((1, "nut", 1.5), (2, "bolt", 9.5), (4, 'it\'s "odd"', 0.0))
AT = rows(
    *((a, f"n{a}", float(a)) for a in range(1, 8)),
    schema=pa.schema([("_strandline_address", pa.int64()), *list(SCHEMA)[1:]]),
)


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def in_order(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


def test_users_read_an_ordinary_table_with_their_columns_alone(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        load(copy, OLD)
    assert in_order(place.read()) == in_order(as_rows(OLD))


def test_a_keyed_change_set_leads_to_the_new_content(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = load(copy, OLD)
        state = copy.apply(change(state, OLD, NEW, time=7))
        assert state.position is not None
        assert state.position.time == 7
        assert copy.count() == 3
    assert in_order(place.read()) == in_order(as_rows(NEW))


def test_a_counted_change_set_adds_and_removes_equal_rows(place: Place) -> None:
    old = rows((1, "nut", 1.5), (1, "nut", 1.5), (1, "nut", 1.5), (2, "bolt", None))
    new = rows((1, "nut", 1.5), (3, "nail", math.inf), (3, "nail", math.inf))
    with open_target(place.url) as copy:
        copy.create(COUNTED)
        state = load(copy, old, pieces=2)
        assert len(place_rows(copy, place)) == 4
    with open_target(place.url) as copy:
        copy.apply(change(state, old, new))
    assert in_order(place.read()) == in_order(as_rows(new))


def place_rows(copy: Any, place: Place) -> list[tuple[Any, ...]]:
    copy.close()
    return place.read()


def test_removing_rows_that_a_counted_copy_does_not_hold_is_refused_and_changes_nothing(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(COUNTED)
        state = load(copy, OLD)
        wrong = change(state, rows((9, "?", 1.0)), rows((1, "nut", 1.5)))
        with pytest.raises(ChangesError, match="does not hold"):
            copy.apply(wrong)
        assert copy.state() == state
    assert in_order(place.read()) == in_order(as_rows(OLD))


def test_ranges_are_emptied_before_rows_come_and_the_last_has_no_end(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(RANGES)
        state = load(copy, AT, pieces=3)
        coming = rows((3, "new", 0.5), schema=RANGES.rows_schema)
        copy.apply(ranges(state, [(0, 0), (1, 3), (5, None)], coming))
    assert in_order(place.read()) == [("n1", 1.0), ("n4", 4.0), ("n5", 5.0), ("new", 0.5)]


def test_ranges_work_where_the_address_is_a_column_of_the_user(place: Place) -> None:
    definition = CopyDefinition(SCHEMA, "ranges", ("id",), "s")
    with open_target(place.url) as copy:
        copy.create(definition)
        state = load(copy, OLD)
        copy.apply(ranges(state, [(1, 2)], rows((2, "bolt", 9.5)), 3))
    assert in_order(place.read()) == [(1, "nut", 1.5), (2, "bolt", 9.5), (3, "nail", None)]


def test_a_message_that_is_delivered_twice_is_applied_once(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(COUNTED)
        message = change(load(copy, OLD), OLD, pa.concat_tables([OLD, OLD]))
        first = copy.apply(message)
        assert copy.apply(message) == first
    assert in_order(place.read()) == in_order(as_rows(OLD) * 2)


def test_a_stale_sender_is_fenced_off(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = load(copy, OLD)
        message = change(state, OLD, NEW)
        copy.claim()
        with pytest.raises(Fenced, match="epoch 1"):
            copy.apply(message)
    assert in_order(place.read()) == in_order(as_rows(OLD))


def test_a_gap_is_refused(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = load(copy, OLD)
        message = replace(change(state, OLD, NEW), envelope=envelope(state, step=2))
        with pytest.raises(ChangesError, match="missing"):
            copy.apply(message)
        older = replace(change(state, OLD, NEW), envelope=envelope(state, step=0))
        with pytest.raises(ChangesError, match="taken already"):
            copy.apply(older)


def test_a_message_for_another_schema_is_found_before_anything_is_written(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = load(copy, OLD)
        other = replace(state, definition=CopyDefinition(SCHEMA, "keyed", ("id",), "elsewhere"))
        with pytest.raises(SchemaError, match="fingerprint"):
            copy.apply(change(other, OLD, NEW))
        assert copy.state() == state


def test_the_checksum_of_a_message_covers_all_that_travels() -> None:
    from strandline.replication.copy_state import CopyState

    message = change(CopyState(KEYED, epoch=3), OLD, NEW)
    data = encoded(message)
    assert len(data) == message.size
    assert encoded(decoded(data)) == data
    assert decoded(data).rows == message.rows
    for place in range(0, len(data), 97):
        with pytest.raises(FormatError, match="damaged"):
            decoded(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def test_a_load_goes_on_where_it_was_stopped_and_shows_nothing_before_its_end(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = copy.claim()
        state = copy.apply(piece_of(state, OLD.slice(0, 2), 0, 2, 1))
        assert state.loading == {"piece": 0}
        assert state.position is None
        with pytest.raises(ChangesError, match="not complete"):
            copy.apply(change(state, OLD, NEW))
    with open_target(place.url) as copy:
        state = copy.claim()
        assert state.loading == {"piece": 0}
        copy.apply(piece_of(state, OLD.slice(2), 1, 2, 1))
    assert in_order(place.read()) == in_order(as_rows(OLD))


def test_a_new_load_leaves_the_old_content_until_its_end(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        load(copy, OLD)
        state = copy.claim()
        state = copy.apply(piece_of(state, NEW.slice(0, 2), 0, 2, 5))
    assert in_order(place.read()) == in_order(as_rows(OLD))
    with open_target(place.url) as copy:
        copy.apply(piece_of(state, NEW.slice(2), 1, 2, 5))
    assert in_order(place.read()) == in_order(as_rows(NEW))


def test_an_empty_content_is_a_content(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(RANGES)
        state = load(copy, AT.slice(0, 0))
        assert copy.count() == 0
        copy.apply(ranges(state, [(0, 3)], AT.slice(0, 2)))
    assert place.read() == [("n1", 1.0), ("n2", 2.0)]


def test_making_a_copy_twice_is_the_same_copy_and_another_one_is_refused(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = load(copy, OLD)
        assert copy.create(KEYED) == state
        with pytest.raises(InputError, match="something else"):
            copy.create(replace(KEYED, source="another"))


def test_a_target_that_holds_something_else_is_refused(place: Place) -> None:
    if place.kind in FOLDERS:
        import os

        folder = place.url.removeprefix(f"{place.kind}:///")
        os.makedirs(folder)
        with open(os.path.join(folder, "mine.txt"), "w") as file:
            file.write("mine")
    elif place.kind == "store":
        import strandline as sl

        with sl.create(store_of(place.url)) as store:
            store.create_table("my copy", rows((1, "mine", 1.0)))
    else:
        place.run('CREATE TABLE "my copy" (x int)')
    with open_target(place.url) as copy, pytest.raises(InputError, match="already holds"):
        copy.create(KEYED)


def test_a_target_that_holds_something_else_under_another_case_is_refused_or_left_alone(place: Place) -> None:
    if place.kind in (*FOLDERS, "store"):
        return  # their names are paths, and those of a store have tests of their own
    place.run('CREATE TABLE "My Copy" (x int)')
    place.run('INSERT INTO "My Copy" VALUES (42)')
    with open_target(place.url) as copy:
        if place.kind == "postgres":
            copy.create(KEYED)
            load(copy, OLD)
            copy.drop()
        else:
            with pytest.raises(InputError, match="already holds"):
                copy.create(KEYED)
    assert place.run('SELECT x FROM "My Copy"') == [(42,)]


def test_dropping_a_copy_that_was_never_filled_leaves_what_took_its_name_meanwhile(place: Place) -> None:
    if place.kind in (*FOLDERS, "store"):
        return
    with open_target(place.url) as copy:
        copy.create(KEYED)
    place.run('CREATE TABLE "my copy" (x int)')
    place.run('INSERT INTO "my copy" VALUES (42)')
    with open_target(place.url) as copy:
        with pytest.raises(StorageError):
            load(copy, OLD)
        copy.drop()
    assert place.run('SELECT x FROM "my copy"') == [(42,)]


@pytest.mark.parametrize("definition", [KEYED, COUNTED, RANGES], ids=lambda definition: definition.form)
def test_mending_a_sound_copy_leaves_it_as_it_is(place: Place, definition: CopyDefinition) -> None:
    content = AT if definition.form == "ranges" else OLD
    with open_target(place.url) as copy:
        copy.create(definition)
        state = load(copy, content)
        assert not copy.damage()
        copy.mend()
        assert copy.state() == state
    assert in_order(place.read()) == in_order(as_rows(content.select(definition.schema.names)))


def test_null_keys_are_refused(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(KEYED)
        with pytest.raises(KeysError, match="'id' holds nulls"):
            load(copy, rows((None, "x", 1.0)))


def test_dropping_a_copy_leaves_room_for_another(place: Place) -> None:
    with open_target(place.url) as copy:
        copy.create(COUNTED)
        load(copy, OLD)
        copy.drop()
        assert copy.state() is None
        copy.create(KEYED)
        load(copy, NEW)
    assert in_order(place.read()) == in_order(as_rows(NEW))


def test_writing_to_a_copy_that_was_never_made_is_refused(place: Place) -> None:
    with open_target(place.url) as copy, pytest.raises(NotFound, match="no copy"):
        copy.claim()


def test_an_altered_table_is_found_before_anything_is_written(place: Place) -> None:
    if place.kind == "parquet":
        return  # a folder of files has nothing to alter; its damaged parts are found when they are read
    with open_target(place.url) as copy:
        copy.create(KEYED)
        state = load(copy, OLD)
    if place.kind == "store":
        import strandline as sl

        with sl.open(store_of(place.url)) as store, store.transaction() as tx:
            tx.add_column("my copy", "extra", pa.int32())
    elif place.kind == "delta":
        from deltalake import DeltaTable, Field

        DeltaTable(place.url.removeprefix("delta://")).alter.add_columns([Field("extra", "integer")])
    elif place.kind == "iceberg":
        from pyiceberg.types import IntegerType

        table = iceberg_catalog(place.url.removeprefix("iceberg://"), "").load_table()
        with table.update_schema() as update:
            update.add_column("extra", IntegerType())
    else:
        place.run('ALTER TABLE "my copy" ADD COLUMN extra int')
    with open_target(place.url) as copy, pytest.raises(SchemaError, match="altered"):
        copy.apply(change(state, OLD, NEW))


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 127, None]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "uint32": (pa.uint32(), [0, 2**32 - 1, None]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None]),
    "float32": (pa.float32(), [math.nan, -math.inf, None]),
    "float64": (pa.float64(), [math.nan, math.inf, 0.1]),
    "decimal": (pa.decimal128(20, 3), [decimal.Decimal("-1.500"), decimal.Decimal("12345678901234567.891"), None]),
    "text": (pa.string(), ["", "ünï\n'\"", None]),
    "bytes": (pa.binary(), [b"", b"\x00\xff", None]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), None]),
    "time": (pa.time64("us"), [datetime.time(0), datetime.time(23, 59, 59, 999999), None]),
    "local": (pa.timestamp("us"), [datetime.datetime(1970, 1, 1), datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None]),
    "instant": (
        pa.timestamp("us", "Europe/Helsinki"),
        [
            datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC),
            datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC),
            None,
        ],
    ),
}


def test_every_type_of_the_table_comes_back_as_it_went(place: Place) -> None:
    schema = pa.schema([("id", pa.int32()), *((name, type_) for name, (type_, _) in VALUES.items())])
    columns = [pa.array([1, 2, 3], pa.int32()), *(pa.array(values, type_) for type_, values in VALUES.values())]
    table = pa.table(columns, schema=schema)
    with open_target(place.url) as copy:
        copy.create(CopyDefinition(schema, "keyed", ("id",)))
        load(copy, table)
        found = pa.Table.from_batches(copy.rows(), schema=schema).sort_by("id")
    for name in schema.names:
        assert repr(found.column(name).to_pylist()) == repr(table.column(name).to_pylist()), name


REFUSED = {
    "duckdb": pa.duration("us"),
    "sqlite": pa.list_(pa.int64()),
    "postgres": pa.struct([("x", pa.int64())]),
    "parquet": pa.month_day_nano_interval(),
    "delta": pa.timestamp("ns"),
    "iceberg": pa.duration("us"),
    "store": pa.month_day_nano_interval(),
}


def test_what_a_kind_cannot_hold_exactly_is_refused_naming_the_column(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("odd one", REFUSED[place.kind])])
    with open_target(place.url) as copy, pytest.raises(SchemaError, match="'odd one'"):
        copy.create(CopyDefinition(schema, "keyed", ("id",)))
    with open_target(place.url) as copy:
        assert copy.state() is None
