"""A changed definition, or changed columns of a base table: copies keep their rows and get what differs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.pages.faults import Crash
from tests.replication.conftest import FOLDERS, KINDS, Place, place_of
from tests.replication.servers import Postgres, postgres
from tests.views.histories import multiset
from tests.views.test_replica_kinds import held

from strandline.errors import StateError, StorageError
from strandline.relations.databases.database import Database
from strandline.replication.targets.parquet import ParquetTarget
from strandline.replication.targets.parquet_folder import FolderManifest, ParquetFolder
from strandline.replication.targets.sql import SqlTarget
from strandline.replication.targets.store import StoreTarget
from strandline.replication.targets.target import open_target
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on, open_on
from strandline.values import row_signatures
from strandline.views.definition import ViewDefinition

__all__ = ["postgres"]

CHEAP = "select id, price from orders where price < 10"
APPLYING = {**dict.fromkeys(FOLDERS, ParquetTarget), "store": StoreTarget}


@pytest.fixture
def store() -> Iterator[Store]:
    with create_on(MemoryStorage()) as made:
        price = pa.array([1, 20, 3, 3, 5, 50, 7, 8], pa.int32())
        customer = pa.array([1, 1, 2, 2, 3, 3, 9, None], pa.int64())
        orders = {"id": pa.array(range(1, 9), pa.int32()), "customer": customer, "price": price}
        made.create_table("orders", pa.table({**orders, "note": ["ä"] * 8}), key="id")
        yield made
        assert made.check().ok


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    server: Postgres | None = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, server)


def equal(store: Store, place: Place, name: str = "v") -> bool:
    """Whether the copy holds what the query gives, for us and for a user, who may find the columns in another order."""
    view = store.view(name)
    rows = multiset(view.to_arrow())
    seen = Counter(tuple(sorted(map(repr, row))) for row in place.read())
    wanted = Counter({tuple(sorted(map(repr, row))): number for row, number in rows.items()})
    return held(place.url, view.schema.names) == rows and seen == wanted and bool(store.copies()[0].verify())


def test_with_the_same_columns_only_rows_that_differ_are_sent(store: Store, place: Place) -> None:
    maintain = "deferred" if place.kind in ("duckdb", "parquet") else "eager"
    copy = store.view("v", CHEAP, maintain=maintain).replicate(place.url)
    store.view("v", "select id, price from orders where price > 3", maintain=maintain)
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 5)  # 1, 3 and 4 go; 2 and 6 come
    assert equal(store, place)
    store.table("orders").delete(where="id = 2")
    assert (copy.refresh().method, copy.refresh().method) == ("difference", "nothing")


def test_a_column_more_is_sent_for_the_rows_that_have_a_value_in_it(store: Store, place: Place) -> None:
    maintain = "eager" if place.kind in ("duckdb", "parquet") else "deferred"
    copy = store.view("v", CHEAP, maintain=maintain).replicate(place.url)
    store.view("v", "select id, customer, price from orders where price < 10", maintain=maintain)
    with pytest.raises(StateError, match="still has the old ones"):
        copy.verify()
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 5), "6 rows, and one has no customer"
    assert "added: customer" in done.why
    assert equal(store, place)
    store.table("orders").update(where="id = 8", set={"customer": "4"})
    done = copy.refresh()
    assert (done.method, done.messages) == ("difference", 1)
    assert equal(store, place)


def test_a_column_less_sends_nothing(store: Store, place: Place) -> None:
    copy = store.view("v", "select id, note, price from orders").replicate(place.url)
    store.view("v", "select id, price from orders")
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 0)
    assert "dropped: note" in done.why
    assert {len(row) for row in place.read()} == {2}
    assert equal(store, place)
    assert copy.refresh().method == "nothing"


def test_wider_columns_of_the_base_send_nothing_the_key_included(store: Store, place: Place) -> None:
    copy = store.view("v", CHEAP.replace("<", "<>")).replicate(place.url)
    with store.transaction() as tx:
        tx.widen_column("orders", "price", pa.int64())
        tx.widen_column("orders", "id", pa.int64())
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 0)
    assert "of another type: id, price" in done.why
    store.table("orders").insert([{"id": 2**40, "customer": 1, "price": 2**50, "note": ""}])
    assert copy.refresh().messages == 1
    assert equal(store, place)


def test_a_type_that_does_not_hold_the_old_values_is_sent_anew_with_its_rows(store: Store, place: Place) -> None:
    copy = store.view("v", CHEAP).replicate(place.url)
    store.view("v", "select id, 'no. ' || price as price from orders where price < 10")
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 6)
    assert equal(store, place)
    store.view("v", CHEAP)
    assert copy.refresh().messages == 6
    assert equal(store, place)


def test_columns_of_a_table_are_renamed_and_added_at_its_copy(store: Store, place: Place) -> None:
    copy = store.view("orders").replicate(place.url)
    with store.transaction() as tx:
        tx.rename_column("orders", "note", "Price was")
        tx.add_column("orders", "empty", pa.string())
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 8)
    assert "added: Price was, empty; dropped: note" in done.why
    assert equal(store, place, "orders")


def test_another_key_or_form_loads_the_copy_anew_and_says_why(store: Store, place: Place) -> None:
    store.create_table("customers", pa.table({"customer": [1, 2, 3], "name": ["ann", "bob", None]}), key="customer")
    copy = store.view("v", CHEAP).replicate(place.url)
    for sql, why in {
        "select customer, name from customers": "the key was (id), and is (customer)",
        "select name from customers": "the copy was keyed, and would be counted",
        CHEAP: "the copy was counted, and would be keyed",
    }.items():
        store.view("v", sql)
        done = copy.refresh()
        assert done.method == "full"
        assert "made anew" in done.why
        assert why in done.why
        assert equal(store, place)
    with store.transaction() as tx:
        tx.update("orders", where="id = 1", set={"price": "2"})
    assert copy.refresh().messages == 1


def test_a_view_that_a_user_made_of_a_copy_outlives_a_load_anew_or_keeps_the_old_rows(
    store: Store, place: Place
) -> None:
    if place.kind not in ("duckdb", "sqlite", "postgres"):
        return  # nobody makes views there
    copy = store.view("v", CHEAP).replicate(place.url)
    before = sorted(place.read())
    place.run('CREATE VIEW reader AS SELECT count(*) AS n FROM "my copy"')
    store.view("v", "select price, count(*) as n from orders group by price")
    if place.kind == "postgres":
        with pytest.raises(StorageError, match="views or keys of yours stand on it"):
            copy.refresh()
        assert sorted(place.read()) == before
        place.run("DROP VIEW reader")
    assert copy.refresh().method == "full"
    assert equal(store, place)


def test_a_counted_copy_made_with_older_signatures_is_signed_anew(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages name its rows by signatures: those of two algorithms must never meet."""
    maintain = "deferred" if place.kind in ("duckdb", "parquet") else "eager"
    query = "select price, note from orders where price < 30"
    with monkeypatch.context() as older:
        older.setattr("strandline.views.definition.definition.SIGNATURE_ALGORITHM", "sl0")
        older.setattr(ViewDefinition, "fingerprint", property(vars(ViewDefinition)["fingerprint"].func))  # not kept
        for module in ("tables.row_layout", "replication.verification", "views.difference_table"):
            older.setattr(f"strandline.{module}.row_signatures", lambda *given: ~row_signatures(*given))
        copy = store.view("v", query, maintain=maintain).replicate(place.url)
        store.table("orders").delete(where="id = 3")
        copy.refresh()
        store.table("orders").upsert(pa.table({"id": [3], "customer": [1], "price": [3], "note": ["ä"]}))
    with open_on(store.storage) as newer:
        newer.table("orders").delete(where="id in (3, 4, 5)")
        newer.copies()[0].refresh()
        assert equal(newer, place)
        newer.table("orders").upsert(pa.table({"id": [5], "customer": [1], "price": [5], "note": ["ä"]}))
        assert newer.copies()[0].refresh().method == "difference"
        assert equal(newer, place)


def test_counted_copies_keep_their_rows_and_get_what_differs(store: Store, place: Place) -> None:
    maintain = "eager" if place.kind in ("duckdb", "parquet") else "deferred"
    copy = store.view("v", "select price, note from orders", maintain=maintain).replicate(place.url)
    for sql, messages, why in (
        ("select note from orders", 0, "dropped: price"),  # eight rows become one, counted eight times
        ("select note, customer from orders", 8, "added: customer"),  # eight empty ones go, two and three and two come
        (
            "select note, cast(customer as double) as customer from orders where price < 50",
            9,
            "of another type: customer",
        ),
    ):
        store.view("v", sql, maintain=maintain)
        done = copy.refresh()
        assert done.method == "repair", done.why
        assert why in done.why
        assert done.messages <= messages
        assert equal(store, place)
    store.table("orders").update(where="id = 1", set={"note": "'other'"})
    assert (copy.refresh().method, copy.refresh().method) == ("difference", "nothing")
    assert equal(store, place)


def test_a_refresh_stopped_before_the_rows_are_sent_is_finished_by_the_next(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way the view goes meanwhile: back to what it was, or further on."""
    copy = store.view("v", "select id, note, price from orders").replicate(place.url)
    for stopped, then in (
        ("select id, price, note from orders", "select id, customer, price from orders"),
        ("select id, note from orders", "select id, cast(price as bigint) as price, note from orders"),
    ):
        for sql in (stopped, then):
            store.view("v", sql)
            with monkeypatch.context() as patch:
                patch.setattr(APPLYING.get(place.kind, SqlTarget), "apply", _stop)
                with pytest.raises(Crash):
                    copy.refresh()
            with open_target(place.url) as replica:
                state = replica.state()
            assert state is not None
            assert state.definition.schema.names == store.view("v").schema.names
        assert copy.refresh().method == "repair"
        assert equal(store, place)
        assert copy.refresh().method == "nothing"


def _stop(*_: object) -> None:
    raise Crash


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "postgres"])
def test_an_alteration_stopped_at_any_statement_is_whole_or_not_there(
    store: Store, tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(kind, tmp_path, request.getfixturevalue("postgres") if kind == "postgres" else None)
    texts = itertools.cycle(["select id, note || '!' as more, price * 2e0 as price from orders", CHEAP])
    copy = store.view("v", CHEAP).replicate(place.url)
    for at in itertools.count():
        store.view("v", next(texts))
        steps = itertools.count()

        def watch(_: Database, step: str, steps: Iterator[int] = steps, at: int = at) -> None:
            if step.lower().startswith(("alter", "update", "commit")) and next(steps) == at:
                raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(Database, "watch", watch)
            with suppress(Crash):
                copy.refresh()
        copy.refresh()
        view = store.view("v")
        assert held(place.url, view.schema.names) == multiset(view.to_arrow()), at
        if next(steps) <= at:
            break
    assert at > 6
    assert equal(store, place)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_counted_copy_stopped_while_it_is_written_again_is_whole(
    store: Store, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(kind, tmp_path, None)
    texts = itertools.cycle(["select note, customer from orders", "select note from orders"])
    copy = store.view("v", "select note from orders").replicate(place.url)
    for at in itertools.count():
        store.view("v", next(texts))
        steps = itertools.count()

        def watch(_: Database, step: str, steps: Iterator[int] = steps, at: int = at) -> None:
            if step.lower().startswith(("drop view", "drop table", "create view", "commit")) and next(steps) == at:
                raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(Database, "watch", watch)
            with suppress(Crash):
                copy.refresh()
        assert sum(held(place.url, ["note"]).values()) == 8, at
        copy.refresh()
        view = store.view("v")
        assert held(place.url, view.schema.names) == multiset(view.to_arrow()), at
        if next(steps) <= at or at > 5:
            break
    assert at > 4


@pytest.mark.parametrize("done", [False, True])
def test_a_folder_stopped_around_the_change_of_its_columns_is_whole(
    store: Store, tmp_path: Path, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of("parquet", tmp_path, None)
    copy = store.view("v", CHEAP).replicate(place.url)
    store.view("v", "select id, note from orders")
    commit = ParquetFolder.commit

    def stopping(folder: ParquetFolder, manifest: FolderManifest) -> None:
        if done:
            commit(folder, manifest)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(ParquetFolder, "commit", stopping)
        with pytest.raises(Crash):
            copy.refresh()
    assert copy.refresh().messages == 8
    assert equal(store, place)


def test_an_index_of_the_users_is_kept_or_is_why_the_copy_is_made_anew(store: Store, tmp_path: Path) -> None:
    place = place_of("sqlite", tmp_path, None)
    copy = store.view("v", "select id, customer, price from orders").replicate(place.url)
    place.run('CREATE INDEX mine ON "my copy" (customer)')
    store.view("v", "select id, customer, note from orders")
    assert copy.refresh().method == "repair"
    assert place.run("SELECT 1 FROM sqlite_master WHERE name = 'mine'")
    store.view("v", "select id, note from orders")
    done = copy.refresh()
    assert done.method == "full"
    assert "its table can't be altered" in done.why
    assert equal(store, place)


COLUMNS = {
    "a": ["a", "cast(a as bigint) as a", "cast(a as decimal(20, 2)) as a", "cast(a as varchar) as a"],
    "f": ["f", "cast(f as double) as f", "f * 2 as f"],
    "d": ["d", "cast(d as decimal(12, 3)) as d", "-d as d"],
    "s": ["s", "upper(s) as s", "s || 'ü' as s"],
    "b": ["a > 1 as b", "a as b"],
}
ROWS = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "a": pa.array([1, None, -3, 2**31 - 1, 0, 1], pa.int32()),
        "f": pa.array([1.5, float("nan"), None, -0.5, float("inf"), 0.0], pa.float32()),
        "d": pa.array(
            [Decimal("1.20"), None, Decimal("-0.01"), Decimal(0), Decimal("9.99"), None], pa.decimal128(9, 2)
        ),
        "s": ["", None, "ä", "NaN", "'", "x"],
    }
)
_numbers = itertools.count()


@st.composite
def texts(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, max_size=4))
    columns = ["id", *(draw(st.sampled_from(COLUMNS[name])) for name in chosen)]
    where = draw(st.sampled_from(["", " where id <> 3", " where a is not null"]))
    return f"select {', '.join(draw(st.permutations(columns)))} from t{where}"


@settings(max_examples=examples(6))
@given(st.lists(texts(), min_size=2, max_size=4))
def test_whatever_it_is_redefined_to_a_copy_equals_its_view(
    tmp_path_factory: pytest.TempPathFactory, sqls: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("redefined")
    urls = {"duckdb": f"duckdb:///{folder}/f.duckdb#v", "sqlite": f"sqlite:///{folder}/f.db#v"}
    urls |= {kind: f"{kind}:///{folder}/{kind}" for kind in ("parquet", "delta", "iceberg")}
    note("\n".join(sqls))
    with create_on(MemoryStorage()) as store:
        store.create_table("t", ROWS, key="id")
        view = store.view("v", sqls[0])
        copies = {kind: view.replicate(url, name=kind) for kind, url in urls.items()}
        for sql in sqls[1:]:
            store.view("v", sql)
            store.table("t").update(where="id = 5", set={"s": "s || 'x'"})
            expected: Counter[tuple[Any, ...]] = multiset(view.to_arrow())
            for kind, copy in copies.items():
                assert copy.refresh().method in ("repair", "difference", "nothing")
                assert multiset_of(held(urls[kind], view.schema.names)) == multiset_of(expected), kind
                assert copy.verify(), kind


def multiset_of(rows: Counter[tuple[Any, ...]]) -> Counter[str]:
    """NaN equals NaN, and types count."""
    return Counter({repr(row): number for row, number in rows.items()})
