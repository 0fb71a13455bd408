"""Copies of views at every kind of target: refreshed, restricted, repaired, refused."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.replication.conftest import FOLDERS, KINDS, Place, place_of
from tests.replication.servers import Postgres, postgres

from strandline.errors import (
    Fenced,
    InputError,
    InUse,
    NotFound,
    SchemaError,
    SqlError,
    StateError,
    StorageError,
)
from strandline.store import Store, create
from strandline.store import open as open_store

__all__ = ["postgres"]

JOIN = "select o.id, o.price, c.name from orders o join customers c on o.customer = c.id where o.price < 10"
PAIRS = "select a.id, b.id as other, a.price from orders a join orders b on a.customer = b.customer"
PROJECTION = "select customer, price from orders where price < 10"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / "central") as made:
        orders = {"id": range(1, 9), "customer": [1, 1, 2, 2, 3, 3, 9, None], "price": [1, 20, 3, 3, 5, 50, 7, 8]}
        made.create_table("orders", pa.table({**orders, "note": ["ä"] * 8}), key="id")
        made.create_table("customers", pa.table({"id": [1, 2, 3], "name": ["ann", "bob", None]}), key="id")
        yield made
        assert made.check().ok


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    server: Postgres | None = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, server)


def change(store: Store) -> None:
    with store.transaction() as tx:
        tx.update("orders", where="id = 2", set={"price": "2"})  # comes in
        tx.update("orders", where="id = 3", set={"price": "30"})  # goes out
        tx.update("orders", where="id = 4", set={"price": "4"})  # stays, changed
        tx.update("orders", where="id = 5", set={"note": "'only a note'"})  # not in the view
        tx.delete("orders", where="id = 1")
        tx.insert("orders", [{"id": 20, "customer": 2, "price": 1, "note": ""}])
        tx.upsert("customers", [{"id": 9, "name": "new"}])


def query(store: Store, sql: str) -> Counter[tuple[Any, ...]]:
    rows = store.query(sql)
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
@pytest.mark.parametrize("sql", [JOIN, PROJECTION])
def test_a_copy_follows_its_view(store: Store, place: Place, sql: str, maintain: str) -> None:
    copy = store.view("v", sql, maintain=maintain).replicate(place.url)
    assert Counter(place.read()) == query(store, sql)
    assert copy.refresh().method == "nothing"
    change(store)
    done = copy.refresh()
    assert done.method == "difference"
    assert Counter(place.read()) == query(store, sql)
    assert copy.verify()
    assert copy.status()["lag"] == 0
    copy.drop()
    assert store.copies() == []


def test_a_refresh_sends_one_message_for_each_key_that_differs(store: Store, tmp_path: Path) -> None:
    """Equation (1a): replacements are one message each, and what the view does not show costs nothing."""
    copy = store.view("v", "select id, price from orders where price < 10").replicate(f"sqlite:///{tmp_path}/f.db#v")
    change(store)
    assert copy.refresh().messages == 5  # 2 and 20 come, 3 and 1 go, 4 is replaced
    store.table("orders").update(where="id = 4", set={"price": "5"})
    store.table("orders").update(where="id = 4", set={"price": "4"})
    assert copy.refresh().method == "nothing"


def test_a_table_is_the_trivial_view_of_itself(store: Store, place: Place) -> None:
    copy = store.view("customers").replicate(place.url)
    store.table("customers").upsert([{"id": 3, "name": "cy"}, {"id": 4, "name": "dee"}])
    assert copy.refresh().messages == 2
    assert Counter(place.read()) == query(store, "select * from customers")


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_subscribers_have_their_own_restriction_columns_and_speed(store: Store, tmp_path: Path, maintain: str) -> None:
    view = store.view("v", JOIN, maintain=maintain)
    slow = view.replicate(f"duckdb:///{tmp_path}/a.duckdb#slow", where="price > 1", columns=["id", "price"])
    fast = view.replicate(f"duckdb:///{tmp_path}/a.duckdb#fast", columns=["name"])
    change(store)
    assert fast.refresh().method == "difference"
    store.table("orders").update(where="price > 20", set={"price": "9"})
    assert fast.refresh().method == "difference"
    assert slow.refresh().method == "difference"
    assert slow.verify()
    assert fast.verify()
    import duckdb

    with duckdb.connect(f"{tmp_path}/a.duckdb") as connection:
        found = Counter(connection.execute("select * from slow").fetchall())
        assert found == query(store, f"select id, price from ({JOIN}) where price > 1")
        names = Counter(connection.execute("select * from fast").fetchall())
        assert names == query(store, f"select name from ({JOIN})")


def test_a_copy_is_restricted_by_what_its_condition_means_to_duckdb(store: Store, tmp_path: Path) -> None:
    """`3! IN (6)` is of a factorial there, and `NOT 3 IN (6)` to a parser that knows other databases."""
    place = place_of("sqlite", tmp_path, None)
    view = store.view("v", "select id, price from orders", maintain="deferred")
    copy = view.replicate(place.url, where="(price % 3)::int! IN (1, 2)")
    change(store)
    copy.refresh()
    sql = "select id, price from orders where factorial((price % 3)::int) IN (1, 2)"
    assert Counter(place.read()) == query(store, sql)


def test_a_copy_that_was_edited_by_hand_is_mended_by_what_differs(store: Store, tmp_path: Path) -> None:
    place = place_of("sqlite", tmp_path, None)
    copy = store.view("v", "select * from orders").replicate(place.url)
    place.run('DELETE FROM "my copy" WHERE id = 3')
    place.run("UPDATE \"my copy\" SET note = 'x' WHERE id = 4")
    place.run("INSERT INTO \"my copy\" VALUES (99, 1, 1, '')")
    told = copy.verify()
    assert not told
    assert (told.missing, told.extra, told.different) == (1, 1, 1)
    assert told.differing_ranges <= 3
    assert copy.verify(repair=True).repaired
    assert copy.verify()
    assert Counter(place.read()) == query(store, "select * from orders")
    assert copy.refresh().method == "nothing"


def test_a_copy_whose_position_was_let_go_is_repaired_and_not_sent_again(store: Store, place: Place) -> None:
    copy = store.view("v", JOIN).replicate(place.url)
    copy.let_go()
    assert store.pages.snapshots() == []
    change(store)
    with pytest.raises(StateError, match="no difference is known"):
        copy.refresh("difference")
    done = copy.refresh()
    assert (done.method, done.messages) == ("repair", 6)
    assert Counter(place.read()) == query(store, JOIN)
    store.table("orders").delete(where="id = 20")
    assert copy.refresh().method == "difference"


def test_a_copy_of_a_store_that_was_restored_is_repaired(store: Store, tmp_path: Path) -> None:
    import strandline

    place = place_of("duckdb", tmp_path, None)
    copy = store.view("v", JOIN).replicate(place.url)
    store.dump(tmp_path / "backups")
    change(store)
    copy.refresh()
    strandline.restore(tmp_path / "backups", tmp_path / "again")
    with strandline.open(tmp_path / "again") as restored:
        done = restored.copy(copy.name).refresh()
        assert done.method == "repair"
        assert "history" in done.why
        assert Counter(place.read()) == query(restored, JOIN)
        assert restored.copy(copy.name).refresh().method == "nothing"


def test_full_refreshes_replace_everything(store: Store, place: Place) -> None:
    copy = store.view("v", PROJECTION).replicate(place.url)
    change(store)
    assert copy.refresh("full").messages >= 5
    assert Counter(place.read()) == query(store, PROJECTION)
    assert copy.refresh().method == "nothing"


def test_what_deltas_cannot_follow_is_computed_anew_and_says_why(store: Store, place: Place) -> None:
    sql = "select customer, approx_count_distinct(id) as n from orders group by customer"
    copy = store.view("v", sql, strict=False).replicate(place.url, where="n > 0", columns=["n", "customer"])
    change(store)
    done = copy.refresh()
    assert "approx_distinct() may depend on the order of rows" in done.why
    assert Counter(place.read()) == query(store, f"select n, customer from ({sql})")
    assert copy.verify()


def test_views_over_views_and_what_ifs_are_followed(store: Store, place: Place) -> None:
    cut = store.table("orders").what_if("cut")
    cut.update(where="id = 6", set={"price": "5"})
    store.view("named", "select c.id as customer, upper(name) as name from customers c")
    store.view("v", "select cut.id, price * 2 as twice, name from cut natural join named where price < 30")
    copy = store.view("w", "select id, name || '!' as loud, twice + 1 as more from v").replicate(place.url)
    cut.update(where="id = 2", set={"price": "6"})
    cut.insert([{"id": 30, "customer": 1, "price": 7, "note": ""}])
    change(store)
    assert copy.refresh().method == "difference"
    wanted = [
        (row["id"], f"{row['name'].upper()}!" if row["name"] else None, row["price"] * 2 + 1)
        for row in cut.to_arrow().to_pylist()
        for name in [{r["id"]: r["name"] for r in store.table("customers").to_arrow().to_pylist()}]
        if row["customer"] in name and row["price"] < 30
        for row in [{**row, "name": name[row["customer"]]}]
    ]
    assert Counter(place.read()) == Counter(wanted)


def test_bad_input_is_refused_with_what_to_do(store: Store, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/f.db#v"
    with pytest.raises(InputError, match="'orders' already"):
        store.view("orders", JOIN)
    with pytest.raises(NotFound, match="no view, table or what-if 'nowhere'"):
        store.view("nowhere")
    with pytest.raises(InputError, match="no way to maintain"):
        store.view("v", JOIN, maintain="sometimes")
    view = store.view("v", JOIN)
    with pytest.raises(SchemaError, match="'nmae'"):
        view.replicate(target, columns=["nmae"])
    with pytest.raises(SqlError, match="no column 'prize'"):
        view.replicate(target, where="prize > 1")
    copy = view.replicate(target)
    with pytest.raises(InputError, match="already holds a copy"):
        store.view("customers").replicate(target, name="other")
    with pytest.raises(InputError, match="a copy 'v' already"):
        store.view("customers").replicate(f"sqlite:///{tmp_path}/g.db#v")
    with pytest.raises(InUse, match="copies of it: v"):
        store.drop_view("v")
    with pytest.raises(InputError, match="no method"):
        copy.refresh("magic")
    store.view("above", "select name from v")
    copy.drop()
    with pytest.raises(InUse, match="stand on it: above"):
        store.drop_view("v")
    store.drop_view("above")
    store.drop_view("v")
    with pytest.raises(NotFound, match="no view 'v'"):
        store.drop_view("v")
    with pytest.raises(NotFound, match="no copy 'v'"):
        store.copy("v")


def test_a_dropped_base_table_is_named(store: Store, tmp_path: Path) -> None:
    copy = store.view("customers").replicate(f"sqlite:///{tmp_path}/f.db#v")
    store.drop_table("customers")
    with pytest.raises(NotFound, match="customers"):
        copy.refresh()


def test_a_copy_that_is_unequal_is_said_to_be(store: Store, place: Place) -> None:
    copy = store.view("v", PROJECTION).replicate(place.url)
    change(store)
    assert copy.refresh().unequal == ""
    if place.kind in (*FOLDERS, "store"):
        return  # nobody writes SQL there
    table = "_strandline_data_my copy"
    place.run(f'UPDATE "{table}" SET price = price + 1 WHERE price = 7')
    store.table("orders").insert([{"id": 30, "customer": 5, "price": 5, "note": ""}])
    done = copy.refresh()
    assert "checksum differs" in done.unequal
    assert done.unequal in done.why
    place.run(f'DELETE FROM "{table}" WHERE customer = 5')
    store.table("orders").insert([{"id": 31, "customer": 6, "price": 5, "note": ""}])
    assert "should hold" in copy.refresh().unequal
    assert not copy.verify(repair=True)
    store.table("orders").insert([{"id": 32, "customer": 6, "price": 5, "note": ""}])
    assert copy.refresh().unequal == ""


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_damaged_file_says_what_to_do_and_nothing_is_lost(store: Store, tmp_path: Path, kind: str) -> None:
    place = place_of(kind, tmp_path, None)
    copy = store.view("v", JOIN).replicate(place.url)
    change(store)
    (file,) = tmp_path.glob("f.*")
    file.write_bytes(b"not a database" + file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(StorageError, match=r"can't be opened") as error:
        copy.refresh()
    assert "move it aside" in error.value.hint
    file.rename(tmp_path / "aside")
    done = copy.refresh()
    assert (done.method, done.why) == ("first", "nothing of the copy was at its target any more")
    assert Counter(place.read()) == query(store, JOIN)
    store.table("orders").update(where="id = 4", set={"price": "6"})
    assert copy.refresh().method == "difference"


def test_a_folder_whose_files_were_damaged_is_repaired_by_sending_what_is_missing(store: Store, tmp_path: Path) -> None:
    place = place_of("parquet", tmp_path, None)
    copy = store.view("v", JOIN).replicate(place.url)
    (part,) = (tmp_path / "rows").glob("part-*.parquet")
    part.write_bytes(b"not Parquet any more")
    (tmp_path / "rows" / "mine.parquet").write_bytes(b"nor this")
    assert copy.verify().damaged == ("mine.parquet is not one of the copy's files",)
    (tmp_path / "rows" / "mine.parquet").unlink()
    assert copy.verify().damaged[0].startswith(f"{part.name} can't be read")
    (tmp_path / "rows" / "mine.parquet").write_bytes(b"nor this")
    assert copy.repair().method == "repair"
    assert copy.verify().equal
    assert Counter(place.read()) == query(store, JOIN)


def test_of_a_copy_on_a_server_only_ranges_that_differ_are_read(
    store: Store, tmp_path: Path, postgres: Postgres
) -> None:
    place = place_of("postgres", tmp_path, postgres)
    rows = {"id": range(3000), "x": [n / 7 for n in range(3000)], "d": [Decimal(n) / 1000 for n in range(3000)]}
    store.create_table(
        "many", pa.table({**rows, "s": [None if n % 5 == 0 else f"ä{n}" for n in range(3000)]}), key="id"
    )
    copy = store.view("many").replicate(place.url)
    told = copy.verify()
    assert told.equal
    assert (told.read, told.differing_ranges) == (0, 0), "nothing but checksums travels"
    place.run('UPDATE "my copy" SET s = NULL WHERE id = 11')
    place.run('DELETE FROM "my copy" WHERE id = 12')
    place.run("INSERT INTO \"my copy\" VALUES (-5, 'NaN', 1, '')")
    told = copy.verify()
    assert (told.missing, told.extra, told.different, told.differing_ranges) == (1, 1, 1, 3)
    assert told.read < 30
    assert copy.repair().messages == 3
    assert copy.verify().equal


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "postgres"])
def test_a_counted_copy_that_was_edited_by_hand_is_mended(
    store: Store, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Its rows then stand under signatures that are not theirs, or with counts that nobody sent."""
    place = place_of(kind, tmp_path, request.getfixturevalue("postgres") if kind == "postgres" else None)
    copy = store.view("v", PROJECTION).replicate(place.url)
    place.run('UPDATE "_strandline_data_my copy" SET price = 99 WHERE customer = 1')
    place.run('UPDATE "_strandline_data_my copy" SET _strandline_count = 5 WHERE customer = 3')
    place.run('UPDATE "_strandline_data_my copy" SET _strandline_count = -1 WHERE customer = 9')
    place.run('DELETE FROM "_strandline_data_my copy" WHERE customer = 2')
    told = copy.verify()
    assert (told.misplaced, told.equal) == (2, False)
    assert copy.repair().method == "repair"
    assert Counter(place.read()) == query(store, PROJECTION)
    assert copy.verify()
    change(store)
    assert copy.refresh().method == "difference"
    assert Counter(place.read()) == query(store, PROJECTION)


@pytest.mark.parametrize("mend", ["verify", "repair", "refresh"])
@pytest.mark.parametrize("sql", ["select id, price from orders", PAIRS, JOIN, PROJECTION])
def test_rows_that_were_doubled_by_hand_are_mended(store: Store, tmp_path: Path, sql: str, mend: str) -> None:
    place = place_of("duckdb", tmp_path, None)
    copy = store.view("v", sql).replicate(place.url)
    table = "_strandline_data_my copy" if sql == PROJECTION else "my copy"
    place.run(f'INSERT INTO "{table}" FROM (FROM "{table}" LIMIT 2)')
    told = copy.verify()
    assert told.damaged == ("4 rows stand there more than once",)
    assert not told
    if mend == "verify":
        assert copy.verify(repair=True).repaired
    else:
        assert not (copy.repair() if mend == "repair" else copy.refresh("repair")).unequal
    assert copy.verify()
    assert Counter(place.read()) == query(store, sql)


@pytest.mark.parametrize("sql", ["select id, price from orders", PROJECTION])
@pytest.mark.parametrize("how", ["added", "cut", "gone"])
def test_files_of_a_folder_that_were_touched_by_hand_are_told_and_mended(
    store: Store, tmp_path: Path, sql: str, how: str
) -> None:
    copy = store.view("v", sql).replicate(f"parquet://{tmp_path}/copy")
    part = min((tmp_path / "copy").glob("*.parquet"))
    if how == "added":
        (tmp_path / "copy" / "zz.parquet").write_bytes(part.read_bytes())
    elif how == "cut":
        pq.write_table(pq.read_table(part).slice(1), part)
    else:
        part.unlink()
    (told,) = copy.verify().damaged
    assert {"added": "zz.parquet is not one", "cut": "rows instead of", "gone": "is gone"}[how] in told
    assert copy.verify(repair=True).repaired
    assert copy.verify()
    rows = pa.concat_tables(pq.read_table(path) for path in (tmp_path / "copy").glob("*.parquet"))
    assert Counter(tuple(row.values()) for row in rows.to_pylist()) == query(store, sql)


@pytest.mark.parametrize("sql", [JOIN, PROJECTION])
def test_a_copy_that_was_forgotten_and_is_still_there_goes_on(store: Store, tmp_path: Path, sql: str) -> None:
    view, target = store.view("v", sql), f"sqlite:///{tmp_path}/copy.db#v"
    view.replicate(target).forget()
    change(store)
    again = view.replicate(target, name="again", where="price > 1")
    assert again.verify()
    assert again.status()["method"] == "repair"
    with pytest.raises(InputError, match="already holds a copy of something else"):
        view.replicate(target, name="a third")
    store.view("other", "select id from customers")
    with pytest.raises(InputError, match="already holds a copy of something else"):
        store.view("other").replicate(target, name="another")


@pytest.mark.parametrize("kind", ["sqlite", "strandline"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_forgotten_copy_gets_the_columns_that_its_view_has_now(
    store: Store, tmp_path: Path, kind: str, gone: bool
) -> None:
    """Also if its table was dropped by hand meanwhile: then it is made anew."""
    target = f"{kind}:///{tmp_path}/elsewhere#v"
    store.view("v", JOIN).replicate(target).forget()
    if gone and kind == "sqlite":
        with closing(sqlite3.connect(tmp_path / "elsewhere")) as connection:
            connection.execute("DROP TABLE v")
    elif gone:
        with open_store(tmp_path / "elsewhere") as other:
            other.drop_table("v")
    view = store.view("v", "select id, note, price from orders")
    copy = view.replicate(target)
    assert copy.verify()
    assert copy.status()["method"] == ("full" if gone else "repair")
    store.view("v", "select id, customer from orders")
    assert view.replicate(target).refresh().method == "repair"
    assert copy.verify()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_two_threads_that_refresh_a_copy_take_turns_or_are_told(store: Store, tmp_path: Path, kind: str) -> None:
    copy = store.view("v", PROJECTION).replicate(f"{kind}:///{tmp_path}/copy.{kind}#v")
    told: list[object] = []

    def refresh() -> None:
        for _ in range(4):
            try:
                told.append(copy.refresh().unequal)
            except Fenced:
                told.append("")
            except Exception as error:
                told.append(error)

    threads = [threading.Thread(target=refresh) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(8):
        store.table("orders").update(where=f"id % 4 = {number % 4}", set={"price": "price + 1"})
    for thread in threads:
        thread.join()
    assert told == [""] * 12
    copy.refresh()
    assert copy.verify()


def test_sqlite_refuses_names_that_it_gives_to_no_column_of_a_view(tmp_path: Path) -> None:
    with create(tmp_path / "central") as store:
        store.create_table("t", pa.table({"true": [1, 2], "False": [3, 3]}), key="true")
        with pytest.raises(SchemaError, match="SQLite gives no column of a view the name 'False'"):
            store.view("counted", 'select "False" from t').replicate(f"sqlite:///{tmp_path}/copy.db#counted")
        copy = store.view("keyed", 'select "true", "False" from t').replicate(f"sqlite:///{tmp_path}/copy.db#keyed")
        store.table("t").update(where='"true" > 1', set={"False": '"False" + 1'})
        copy.refresh()
        assert copy.verify()
