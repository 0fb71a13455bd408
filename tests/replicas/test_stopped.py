"""Messages of every form, stopped at each step of a database or folder: taken whole or not at all, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.replicas.conftest import Place, place_of
from tests.replicas.senders import COUNTED, KEYED, RANGES, change, load, piece_of, ranges, rows
from tests.replicas.test_conformance import AT, NEW, OLD, in_order

from strandline.replicas import Message, State, open_replica
from strandline.replicas.databases import Database, connect, parse_address
from strandline.replicas.parquet_folder import Folder
from strandline.replicas.sql_layout import GONE, Layout


class Stopped(BaseException):
    """The process ends here."""


def changed(state: State) -> Message:
    return change(state, OLD, NEW)


def emptied(state: State) -> Message:
    return ranges(state, [(0, 2), (5, None)], rows((9, "new", 0.5), schema=RANGES.rows_schema))


def loaded_again(state: State) -> Message:
    return piece_of(state, NEW, 0, 1, 7)


FORMS: dict[str, Any] = {
    "keyed": (KEYED, OLD, changed),
    "counted": (COUNTED, OLD, changed),
    "ranges": (RANGES, AT, emptied),
    "load": (KEYED, OLD, loaded_again),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["sqlite", "parquet", "duckdb"])
def test_a_message_stopped_at_each_step_is_taken_whole_or_not_at_all(
    kind: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, content, message_of = FORMS[form]
    stride = 3 if kind == "duckdb" else 1
    wanted, allowed, stopped = None, 10_000, True
    while stopped:
        folder = tmp_path / str(allowed)
        folder.mkdir()
        place = place_of(kind, folder, None)
        with open_replica(place.url) as copy:
            copy.create(definition)
            message = message_of(load(copy, content))
        before = in_order(place.read())
        with monkeypatch.context() as patch:
            stopped = _sent(place, message, patch, allowed)
        wanted = wanted or in_order(place.read())  # the first turn is not stopped
        if kind != "parquet":  # a folder is whole again when the next writer opens it
            assert in_order(place.read()) in (before, wanted)
        with open_replica(place.url) as copy:
            assert copy.apply(message).position == message.position
        assert in_order(place.read()) == wanted
        stopped = stopped or allowed == 10_000
        allowed = 0 if allowed == 10_000 else allowed + stride


def _sent(place: Place, message: Message, patch: pytest.MonkeyPatch, allowed: int) -> bool:
    left = [allowed]

    def watch(_: Any, step: str) -> None:
        left[0] -= 1
        if left[0] == -1:  # what a stopped process would clean up is the database's own
            raise Stopped(step)

    patch.setattr(Database, "watch", watch)
    patch.setattr(Folder, "watch", watch)
    try:
        with open_replica(place.url) as copy:
            copy.apply(message)
    except Stopped:
        return True
    return False


@pytest.mark.parametrize("form", ["keyed", "ranges", "counted"])
def test_rows_that_go_are_looked_up_in_an_index(form: str, tmp_path: Path) -> None:
    definition, content, _ = FORMS[form]
    address = parse_address(f"sqlite:///{tmp_path}/f.db#copy")
    with open_replica(address) as copy:
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
