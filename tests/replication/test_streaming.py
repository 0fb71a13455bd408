"""A whole relation sent to a copy in pieces that are read side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.replication.relation_pieces import relation_pieces
from tests.replication.senders import COUNTED, KEYED, rows

import strandline as sl
from strandline.engine import InlineRunner
from strandline.errors import ChangesError
from strandline.replication.copy_state import CopyState
from strandline.replication.delivery import stream
from strandline.replication.message import Message, Position
from strandline.replication.targets.sql import SqlTarget
from strandline.replication.targets.target import open_target

CONTENT = rows(*((n, f"n{n}", n / 2) for n in range(1, 501)))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("strandline.tables.page_writer.BULK_ROWS", 50)
    with sl.create(tmp_path / "shop") as opened:
        opened.create_table("orders", CONTENT, key="id")
        yield opened


def test_a_table_of_a_store_is_streamed_in_pieces(store: Any, tmp_path: Path) -> None:
    pieces = relation_pieces(store.relation("orders"), KEYED.schema.names)
    assert len(pieces.items) > 3
    with open_target(f"duckdb:///{tmp_path}/f.duckdb#orders") as copy:
        copy.create(KEYED)
        state, sent = stream(copy, copy.claim(), pieces, Position(7, "t"), InlineRunner())
        assert state.position == Position(7, "t")
        assert sent.messages == 500
        assert pa.Table.from_batches(copy.rows()).sort_by("id").equals(CONTENT)


def test_a_stream_that_was_stopped_goes_on_with_the_next_piece(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = relation_pieces(store.relation("orders"), COUNTED.schema.names, {"kept": "fact"})
    taken: list[int] = []
    apply = SqlTarget.apply

    def counting(self: SqlTarget, message: Message) -> CopyState:
        if len(taken) == 2:
            raise ChangesError("stopped here")
        taken.append(len(message.rows))
        return apply(self, message)

    with open_target(f"sqlite:///{tmp_path}/f.db#orders") as copy:
        copy.create(COUNTED)
        with monkeypatch.context() as patch:
            patch.setattr(SqlTarget, "apply", counting)
            with pytest.raises(ChangesError, match="stopped here"):
                stream(copy, copy.claim(), pieces, Position(7, "t"), InlineRunner())
        state = copy.claim()
        assert state.loading == {"kept": "fact", "done": 2}
        _, sent = stream(copy, state, pieces, Position(7, "t"), InlineRunner())
        assert sent.messages == 500 - sum(taken)
        assert copy.count() == 500


def test_an_empty_relation_is_one_empty_piece(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as opened, open_target(f"parquet:///{tmp_path}/rows") as copy:
        opened.create_table("orders", CONTENT.schema, key="id")
        copy.create(KEYED)
        pieces = relation_pieces(opened.relation("orders"), KEYED.schema.names)
        state, sent = stream(copy, copy.claim(), pieces, Position(1, "t"), InlineRunner())
        assert (state.position, sent.messages, copy.count()) == (Position(1, "t"), 0, 0)
