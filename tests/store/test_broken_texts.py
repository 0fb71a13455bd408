"""Half of a character (a lone surrogate) is refused in words, wherever a name or a text may hold one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.tables.shop import numbered

from strandline.errors import StrandlineError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

HALF = "\ud800"

USES: dict[str, Callable[[Store], Any]] = {
    "table": lambda store: store.create_table(HALF, numbered(1)),
    "name of a table": lambda store: store.autocommit(lambda tx: tx.rename_table("orders", HALF)),
    "column": lambda store: store.create_table("more", [{"id": 1, HALF: 2}]),
    "name of a column": lambda store: store.autocommit(lambda tx: tx.rename_column("orders", "v", HALF)),
    "new column": lambda store: store.autocommit(lambda tx: tx.add_column("orders", HALF, "string")),
    "column of a row": lambda store: store.table("orders").insert([{"id": 9, HALF: 2}]),
    "snapshot": lambda store: store.snapshot(HALF),
    "branch": lambda store: store.branch(HALF),
    "name of a branch": lambda store: store.pages.store.rename_version(store.pages.store.version("idea"), HALF),
    "what-if": lambda store: store.table("orders").what_if(HALF),
    "view": lambda store: store.view(HALF, "SELECT id FROM orders"),
    "text of a view": lambda store: store.view("few", f"SELECT '{HALF}' AS x FROM orders"),
    "comment of a view": lambda store: store.view("few", "SELECT id FROM orders", comment=HALF),
    "query": lambda store: store.query(f"SELECT '{HALF}' AS x FROM orders"),
    "condition": lambda store: store.table("orders").to_arrow(where=f"v::text = '{HALF}'"),
    "expression": lambda store: store.table("orders").update(set={"v": f"length('{HALF}')"}),
    "parameter": lambda store: store.table("orders").to_arrow(where="v::text = :p", params={"p": HALF}),
    "table to read": lambda store: store.table(HALF).count(),
    "snapshot to read": lambda store: store.table("orders").to_arrow(at=HALF),
    "branch to open": lambda store: store.version(HALF),
    "table to drop": lambda store: store.drop_table(HALF),
    "message": lambda store: store.transaction(HALF),
}


def test_half_of_a_character_is_refused_in_words_that_can_be_written() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("orders", numbered(2), key="id")
        store.branch("idea").close()
        for use, call in USES.items():
            with pytest.raises(StrandlineError) as refused:
                call(store)
            written = str(refused.value).encode().decode()
            assert "\\ud800" in written or "half of a character" in written, use
        assert store.tables() == ["orders"]
        assert store.check().ok
