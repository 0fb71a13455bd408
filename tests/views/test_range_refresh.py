"""Range modifications (the paper's last section): an update by expression travels as the statement, where it may."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.oracles.message_bytes import decoded, encoded
from tests.replication.conftest import Place, place_of
from tests.replication.servers import Postgres, postgres

from strandline.replication.copy import Copy
from strandline.replication.message import Message
from strandline.replication.targets.sql import SqlTarget
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

__all__ = ["postgres"]
ROWS = 400


def example(store: Store, place: Place, sql: str = "select id, qty, price from t where price < 1000") -> Copy:
    rows = {"id": range(ROWS), "qty": [n % 50 for n in range(ROWS)], "price": [n * 2 for n in range(ROWS)]}
    store.create_table("t", pa.table(rows), key="id")
    return store.view("v", sql, maintain="eager").replicate(place.url)


def rows(store: Store, sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in store.query(sql).columns), strict=True))


@pytest.fixture(params=["duckdb", "sqlite", "postgres", "parquet"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    server: Postgres | None = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, server)


def test_an_update_of_all_rows_is_one_message_between_the_rows_before_and_after_it(place: Place) -> None:
    with create_on(MemoryStorage()) as store:
        copy = example(store, place)
        store.table("t").update(where="id = 3", values={"qty": 7})
        store.table("t").update(set={"qty": "qty * 2 + 1"})
        store.table("t").update(where="id = 3", values={"qty": 9})
        store.table("t").insert([{"id": 1000, "qty": 1, "price": 1}])
        done = copy.refresh()
        assert Counter(place.read()) == rows(store, "select id, qty, price from t where price < 1000")
        assert copy.verify()
        if place.kind == "parquet":
            assert done.messages == ROWS + 1, "a folder runs no statements: it gets the net rows"
        else:
            assert done.messages == 4, "a row, the statement, two rows"
            assert "1 statements" in done.why
        assert copy.refresh().method == "nothing"


def test_what_means_something_else_at_a_copy_is_sent_as_rows(place: Place) -> None:
    """7/2 is 3.5 in DuckDB and 3 in SQLite."""
    with create_on(MemoryStorage()) as store:
        copy = example(store, place)
        store.table("t").update(set={"qty": "cast(round(qty / 3) as bigint)"})
        copy.refresh()
        assert copy.verify()


def test_an_update_that_moves_rows_in_or_out_is_sent_as_rows(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        place = place_of("sqlite", tmp_path, None)
        copy = example(store, place, "select id, price from t where price < 100")
        store.table("t").update(set={"price": "price - 1"})
        assert "statement" not in (moved := copy.refresh()).why
        assert moved.messages == 51
        store.table("t").update(where="price < 50", set={"price": "price + 1"})
        assert copy.refresh().messages == 1, "no row enters or leaves the view"
        assert copy.verify()


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_restricted_copy_gets_the_statement_if_it_moves_nothing_of_its_own(tmp_path: Path, kind: str) -> None:
    with create_on(MemoryStorage()) as store:
        view = "select id, qty, price from t where price < 1000"
        rows = {"id": range(ROWS), "qty": [n % 50 for n in range(ROWS)], "price": [n * 2 for n in range(ROWS)]}
        store.create_table("t", pa.table(rows), key="id")
        store.view("v", view, maintain="eager")
        url = f"{kind}:///{tmp_path}/f.db"
        copies = {
            "few": store.view("v").replicate(f"{url}#few", where="price < 100"),
            "narrow": store.view("v").replicate(f"{url}#narrow", columns=["id", "qty"]),
            "moved": store.view("v").replicate(f"{url}#moved", where="qty < 10"),
            "blind": store.view("v").replicate(f"{url}#blind", columns=["id", "price"]),
        }
        store.table("t").update(where="id = 3", values={"qty": 7})
        store.table("t").update(set={"qty": "qty * 2 + 1"})
        done = {name: copy.refresh() for name, copy in copies.items()}
        assert (done["few"].messages, done["narrow"].messages) == (2, 2), "a row, and the statement"
        assert "statements" in done["few"].why
        assert "statements" not in done["moved"].why
        assert done["moved"].messages > 2
        assert done["blind"].method == "nothing", "it does not show what changed"
        store.table("t").update(where="price >= 50", set={"qty": "qty - 1"})
        assert copies["few"].refresh().messages == 1, "it shows what the condition reads"
        assert "statements" not in copies["narrow"].refresh().why, "it does not show the price"
        for copy in copies.values():
            copy.refresh()
            assert copy.verify()


def test_late_copies_and_restricted_ones_get_rows_and_old_statements_collapse(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        copy = example(store, place_of("sqlite", tmp_path, None))
        late = store.view("v").replicate(f"sqlite:///{tmp_path}/g.db#late")
        part = store.view("v").replicate(f"sqlite:///{tmp_path}/g.db#part", where="qty < 10")
        for number in range(20):
            store.table("t").update(set={"qty": "qty + 1"})
            assert copy.refresh().messages == 1
            if number == 10:
                assert part.refresh().messages > 1
        assert late.refresh().messages <= ROWS + 16
        for one in (copy, late, part):
            one.refresh()
            assert one.verify()


def test_a_message_with_statements_survives_its_way_and_is_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = SqlTarget.apply

    def twice(replica: SqlTarget, message: Message) -> Any:
        again = decoded(encoded(message))
        assert again.earlier[0].statements == message.earlier[0].statements
        assert apply(replica, again) == apply(replica, message)
        return apply(replica, message)

    with create_on(MemoryStorage()) as store:
        copy = example(store, place_of("sqlite", tmp_path, None))
        store.table("t").update(set={"qty": "qty + 1"})
        monkeypatch.setattr(SqlTarget, "apply", twice)
        copy.refresh()
        assert copy.verify()
