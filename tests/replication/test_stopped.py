"""Messages of every form, stopped at each step of a database or folder: taken whole or not at all, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.replication.conftest import FOLDERS, Place, place_of
from tests.replication.senders import COUNTED, KEYED, RANGES, change, load, piece_of, ranges, rows
from tests.replication.test_conformance import AT, NEW, OLD, as_rows, in_order

from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import Database, connect
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition
from strandline.replication.message import Message
from strandline.replication.targets.parquet_folder import ParquetFolder
from strandline.replication.targets.sql import SqlTarget
from strandline.replication.targets.sql_layout import GONE, Layout
from strandline.replication.targets.target import CopyTarget, open_target


class Stopped(BaseException):
    """The process ends here."""


def changed(state: CopyState, old: pa.Table, new: pa.Table, time: int) -> Message:
    return change(state, old, new, time)


def emptied(state: CopyState, old: pa.Table, new: pa.Table, time: int) -> Message:
    """Ranges in the middle, at both ends, and one without rows in it."""
    addresses = {row["_strandline_address"] for row in old.to_pylist()}
    gone = [(0, 2), (3, 3), (5, None)] if 1 in addresses else [(0, None)]
    kept = [] if gone[-1][0] == 0 else [3, 4, 5]
    coming = [row for row in new.to_pylist() if row["_strandline_address"] not in kept]
    return ranges(state, gone, pa.Table.from_pylist(coming, schema=RANGES.rows_schema), time)


def loaded(state: CopyState, old: pa.Table, new: pa.Table, time: int) -> Message:
    return piece_of(state, new, 0, 1, time)


LEFT = pa.concat_tables([AT.slice(2, 3), rows((9, "new", 0.5), schema=AT.schema)])
TWICE = pa.concat_tables([NEW, NEW.slice(0, 1)])
FORMS: dict[str, Any] = {
    "keyed": (KEYED, OLD, NEW, changed),
    "counted": (COUNTED, OLD, TWICE, changed),
    "ranges": (RANGES, AT, LEFT, emptied),
    "load": (KEYED, OLD, NEW, loaded),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["sqlite", "parquet", "delta", "iceberg", "duckdb", "postgres"])
def test_a_message_stopped_at_each_step_is_taken_whole_or_not_at_all(
    kind: str, form: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """To and fro between two contents, stopped one step later each time."""
    definition, old, new, message_of = FORMS[form]
    place = place_of(kind, tmp_path, request.getfixturevalue("postgres") if kind == "postgres" else None)
    with open_target(place.url) as copy:
        copy.create(definition)
        state = load(copy, old)
    allowed, stopped = 0, True
    while stopped:
        message = message_of(state, old, new, allowed + 2)
        before, after = _content(old, definition), _content(new, definition)
        with pytest.MonkeyPatch.context() as patch:
            stopped = _sent(place, message, patch, allowed)
        with open_target(place.url) as copy:
            if kind != "parquet":  # a folder is whole again once a writer has opened it
                assert _shown(copy, place) in (before, after)
            state = copy.apply(message)
            assert _shown(copy, place) == after
        assert state.position == message.position
        old, new, allowed = new, old, allowed + 1
    assert allowed > (2 if kind in FOLDERS else 5)
    assert in_order(place.read()) == after


def _shown(copy: CopyTarget, place: Place) -> list[tuple[Any, ...]]:
    """What users read; through the connection that is open where there is one."""
    if isinstance(copy, SqlTarget):
        return in_order(
            [tuple(row) for row in copy._database.execute(f"SELECT * FROM {copy._layout(_stands(copy)).view}")]
        )
    return in_order(place.read())


def _stands(copy: CopyTarget) -> CopyDefinition:
    state = copy.state()
    assert state is not None
    return state.definition


def _content(table: pa.Table, definition: CopyDefinition) -> list[tuple[Any, ...]]:
    return in_order(as_rows(table.select(definition.schema.names)))


def _sent(place: Place, message: Message, patch: pytest.MonkeyPatch, allowed: int) -> bool:
    left = [allowed]

    def watch(_: Any, step: str) -> None:
        left[0] -= 1
        if left[0] == -1:  # what a stopped process would clean up is the database's own
            raise Stopped(step)

    patch.setattr(Database, "watch", watch)
    patch.setattr(ParquetFolder, "watch", watch)
    try:
        with open_target(place.url) as copy:
            copy.apply(message)
    except Stopped:
        return True
    return False


@pytest.mark.parametrize("form", ["keyed", "ranges", "counted"])
def test_rows_that_go_are_looked_up_in_an_index(form: str, tmp_path: Path) -> None:
    definition, content, *_ = FORMS[form]
    address = parse_address(f"sqlite:///{tmp_path}/f.db#copy")
    with open_target(address) as copy:
        copy.create(definition)
        load(copy, content)
    layout = Layout("sqlite", address, definition)
    with connect(address) as database:
        database.stage(GONE, definition.gone_schema.empty_table())
        database.stage("_strandline_rows", definition.stored.empty_table())
        statements = {"keyed": [layout.delete_by_identity()], "ranges": [layout.delete_ranges()]}
        for sql in statements.get(
            form, [layout.count_changes()[2], layout.count_changes()[4], layout.impossible_counts()]
        ):
            plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}")]
            assert not [step for step in plan if step.startswith("SCAN") and layout.data_name in step], plan
            assert not [step for step in plan if step in ("SCAN d", "SCAN y")], plan
