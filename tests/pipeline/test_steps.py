"""Steps: what a run makes of its sources, once and only once."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.pipeline.shop import ORDERS, Rows, Shop, by_key, orders

import strandline as sl
from strandline.errors import GuardTripped, InputError, NotFound, SqlError
from strandline.pipeline import detection

FILE = """
store = "shop.store"
[sources.orders]
from = "orders-*.parquet"
pick = "latest"
key = "id"
"""


def later(shop: Shop, name: str, seconds: int) -> None:
    """Gives an extract a time of its own, so that the newest is the newest."""
    os.utime(shop.folder / name, (shop.now + seconds, shop.now + seconds))


def extract(shop: Shop, night: int, rows: list[dict[str, Any]], schema: pa.Schema = ORDERS) -> None:
    name = f"orders-{night}.parquet"
    shop.extract(name, rows, schema)
    later(shop, name, night)


def test_a_table_follows_the_latest_extract_step_by_step(shop: Shop) -> None:
    shop.write(FILE)
    nights = [orders(1, 2, 3), [*orders(2, 3), *orders(4, state="late")], [*orders(3, price=9.0), *orders(4)]]
    for night, rows in enumerate(nights, 1):
        extract(shop, night, rows)
        ran = shop.run()
        assert ran.step is not None
        assert ran.step.number == night
        assert shop.rows() == rows
    assert shop.snapshots() == ["shop-0001", "shop-0002", "shop-0003"]
    assert [shop.rows(at=name) for name in shop.snapshots()] == nights
    counts = ran.sources["orders"].counts
    assert (counts.inserted, counts.updated, counts.deleted, counts.unchanged) == (0, 2, 1, 0)
    assert counts.columns == {"state": 1, "price": 1}


def test_a_second_run_on_the_same_extract_changes_nothing(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1, 2))
    shop.run()
    before = shop.commits()
    again = shop.run()
    assert again.step is None
    assert again.sources["orders"].how == "nothing"
    assert (shop.commits(), shop.snapshots()) == (before, ["shop-0001"])


def test_several_tables_change_in_one_commit(shop: Shop) -> None:
    shop.write(FILE + '[sources.staff]\nfrom = "staff.parquet"\nkey = "id"\n[sources.log]\nfrom = "log.parquet"\n')
    extract(shop, 1, orders(1))
    shop.extract("staff.parquet", orders(7))
    shop.extract("log.parquet", orders(5, 5))
    ran = shop.run()
    shop.extract("log.parquet", [*orders(5, 5, 5), *orders(6)])
    extract(shop, 2, orders(1, 2))
    ran = shop.run()
    assert ran.step is not None
    with sl.open(shop.folder / "shop.store") as store:
        steps = [entry.commit for entry in store.log() if entry.message.startswith("pipeline shop step")]
        assert len(steps) == 2
        assert store.tables() == ["log", "orders", "staff"]
    assert (shop.rows("log"), shop.rows("staff")) == ([*orders(5, 5, 5), *orders(6)], orders(7))
    assert ran.sources["staff"].how == "nothing"


def test_what_others_did_to_a_table_is_undone_unless_signatures_are_asked_for(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1, 2))
    shop.run()
    with sl.open(shop.folder / "shop.store") as store:
        store.table("orders").update(where="id = 1", values={"price": 100.0})
    assert shop.run().step is not None
    assert shop.rows() == orders(1, 2)


def test_signatures_stand_for_the_last_extract(shop: Shop) -> None:
    shop.write(FILE + 'detect = "signatures"\n')
    ways = []
    for night in range(1, 5):
        extract(shop, night, [*orders(*range(100)), *orders(100 + night, price=float(night))])
        ran = shop.run()
        ways.append((ran.sources["orders"].how, ran.sources["orders"].counts.rows))
        if night == 3:
            with sl.open(shop.folder / "shop.store") as store:
                store.table("orders").update(where="id = 1", values={"price": 100.0})
    assert ways == [("load", 101), ("store", 2), ("signatures", 2), ("signatures", 2)]
    assert [row for row in shop.rows() if row["price"] == 100.0] == orders(1, price=100.0)
    assert len(os.listdir(shop.folder / "shop.work" / "signatures")) == 1


def test_auto_takes_signatures_for_a_large_table_that_nobody_touched(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "SIGNATURES_FROM", 1)
    shop.write(FILE)
    ways = []
    for night in range(1, 6):
        extract(shop, night, orders(*range(night)))
        ways.append(shop.run().sources["orders"].how)
        if night == 3:
            with sl.open(shop.folder / "shop.store") as store:
                store.table("orders").delete(where="id = 1")
    assert ways == ["load", "store", "signatures", "store", "signatures"]
    assert shop.rows() == orders(*range(5))


def test_damaged_signatures_are_done_without(shop: Shop) -> None:
    shop.write(FILE + 'detect = "signatures"\n')
    for night in (1, 2):
        extract(shop, night, orders(*range(night)))
        shop.run()
    for folder, _, names in os.walk(shop.folder / "shop.work" / "signatures"):
        for name in names:
            os.truncate(os.path.join(folder, name), 3)
    extract(shop, 3, orders(*range(3)))
    assert shop.run().sources["orders"].how == "store"
    assert shop.rows() == orders(*range(3))


WIDER = pa.schema([("id", pa.int64()), ("state", pa.string()), ("price", pa.float64()), ("note", pa.string())])


def test_new_columns_are_taken_in_and_types_widened(shop: Shop) -> None:
    narrow = pa.schema([("id", pa.int64()), ("qty", pa.int32())])
    wide = pa.schema([("id", pa.int64()), ("qty", pa.int64()), ("note", pa.string())])
    shop.write(FILE)
    extract(shop, 1, [{"id": 1, "qty": 1}, {"id": 2, "qty": 2}], narrow)
    shop.run()
    rows: Rows = [
        {"id": 1, "qty": 1, "note": None},
        {"id": 2, "qty": 2**40, "note": "ñ"},
        {"id": 3, "qty": None, "note": ""},
    ]
    extract(shop, 2, rows, wide)
    ran = shop.run()
    assert shop.rows() == rows
    assert ran.sources["orders"].drift.to_json() == {
        "added": ["note string"],
        "widened": ["qty int64"],
        "kept": [],
    }
    assert (ran.sources["orders"].counts.updated, ran.sources["orders"].counts.inserted) == (1, 1)


def test_a_column_that_vanished_stops_the_step_or_is_kept(shop: Shop) -> None:
    shop.write(FILE)
    full = [{**row, "note": f"n{row['id']}"} for row in orders(1, 2)]
    extract(shop, 1, full, WIDER)
    shop.run()
    extract(shop, 2, orders(1, 3))
    with pytest.raises(GuardTripped, match="note is gone"):
        shop.run()
    assert shop.rows() == full
    shop.write(FILE + 'drift = "keep"\n')
    shop.run()
    assert shop.rows() == [{**orders(1)[0], "note": "n1"}, {**orders(3)[0], "note": None}]


def test_a_type_that_can_not_hold_the_old_values_stops_the_step(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1))
    shop.run()
    extract(shop, 2, [{"id": 1, "state": "new", "price": "cheap"}], ORDERS.set(2, pa.field("price", pa.string())))
    with pytest.raises(GuardTripped, match="price was double and is string"):
        shop.run()


def test_text_without_values_or_with_other_looks_has_the_table_s_types(shop: Shop) -> None:
    shop.write('store = "shop.store"\n[sources.orders]\nfrom = "orders.csv"\nkey = "id"\n')
    for text in ("id,code,qty\n1,a7,3\n2,b8,4\n", "id,code,qty\n1,7,\n2,8,\n"):
        (shop.folder / "orders.csv").write_text(text)
        assert not shop.run().sources["orders"].drift.any
    assert shop.rows() == [{"id": 1, "code": "7", "qty": None}, {"id": 2, "code": "8", "qty": None}]
    (shop.folder / "orders.csv").write_text("id,code,qty\n1,7,2.5\n2,8,\n")
    with pytest.raises(GuardTripped, match=r"writing the source 'orders'.* double does not become int64.*Nothing was"):
        shop.run()
    (shop.folder / "orders.csv").write_text("id,code,qty\n1,7,many\n")
    with pytest.raises(GuardTripped, match=r"qty was int64 and is string.*say types"):
        shop.run()
    (shop.folder / "orders.csv").write_text("id,code,qty\n")
    assert shop.run().sources["orders"].counts.deleted == 2


def test_any_drift_is_refused_where_the_file_says_so(shop: Shop) -> None:
    shop.write(FILE + 'drift = "refuse"\n')
    extract(shop, 1, orders(1))
    shop.run()
    extract(shop, 2, [{**orders(1)[0], "note": "n"}], WIDER)
    with pytest.raises(GuardTripped, match="note string is new"):
        shop.run()


@pytest.mark.parametrize(
    ("guards", "rows", "words"),
    [
        ('changed = "20%"', [*orders(*range(7)), *orders(7, 8, 9, price=2.0)], "3 of 10 rows changed (30.0%"),
        ('deleted = "20%"', orders(*range(7)), "3 of 10 rows were deleted (30.0%"),
        ('required = ["cost"]', orders(1), "lacks cost; its columns are id, state, price"),
        ('unique = ["state"]', orders(1, 2), "(state) is not unique"),
        ("rows = 5", orders(1), "has 1 rows, and at least 5"),
        ('fresh = "1h"', orders(1), "is 3 hours old, and 60 minutes are allowed"),
        ("", orders(1, 1), "key"),
    ],
)
def test_a_guard_stops_the_step_before_anything_is_applied(
    shop: Shop, guards: str, rows: list[dict[str, Any]], words: str
) -> None:
    shop.write(FILE + '[sources.staff]\nfrom = "staff.parquet"\nkey = "id"\n')
    extract(shop, 1, orders(*range(10)))
    shop.extract("staff.parquet", orders(1))
    shop.run()
    before = shop.commits()
    shop.write(FILE + '[sources.staff]\nfrom = "staff.parquet"\nkey = "id"\n[sources.orders.guards]\n' + guards + "\n")
    shop.extract("staff.parquet", orders(1, 2))
    extract(shop, 2, rows)
    shop.now += 3 * 3600
    with pytest.raises(GuardTripped) as told:
        shop.run()
    assert words in str(told.value)
    assert (shop.commits(), len(shop.rows()), len(shop.rows("staff"))) == (before, 10, 1)
    assert shop.pipeline().history(1)[0]["kind"] == "GuardTripped"


def test_a_source_that_vanished_is_named_and_nothing_is_applied(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1))
    shop.run()
    (shop.folder / "orders-1.parquet").unlink()
    with pytest.raises(NotFound, match="no file that matches"):
        shop.run()
    assert shop.rows() == orders(1)


def test_an_extract_that_changes_while_it_is_read_is_refused(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1))

    def disturb(point: str) -> None:
        if point == "detected orders":
            extract(shop, 1, orders(1, 2))

    with pytest.raises(GuardTripped, match="changed while it was read"):
        shop.run(disturb)


def test_a_table_that_others_change_meanwhile_is_compared_again(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1, 2))
    shop.run()
    extract(shop, 2, orders(1, 2, 3))
    done: list[str] = []

    def disturb(point: str) -> None:
        if point == "detected orders" and not done:
            done.append(point)
            with sl.open(shop.folder / "shop.store") as store:
                store.table("orders").delete(where="id = 1")

    shop.run(disturb)
    assert shop.rows() == orders(1, 2, 3)
    assert shop.points.count("detected orders") == 2


def test_the_key_of_a_table_is_not_changed_by_a_file(shop: Shop) -> None:
    shop.write(FILE)
    extract(shop, 1, orders(1))
    shop.run()
    shop.write(FILE.replace('key = "id"', 'key = ["id", "state"]'))
    with pytest.raises(InputError, match="has id, and the source says id, state"):
        shop.run()


def test_rows_of_every_awkward_kind_pass_unchanged(shop: Shop) -> None:
    import datetime as dt

    schema = pa.schema(
        [
            ("shop", pa.string()),
            ("id", pa.int32()),
            ("amount", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "Europe/Berlin")),
            ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())),
        ]
    )
    at = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
    first = [
        {"shop": "ž", "id": 1, "amount": Decimal("1.10"), "at": at, "ratio": float("inf"), "tags": ["a", None]},
        {"shop": "a", "id": 1, "amount": None, "at": None, "ratio": -0.0, "tags": None},
    ]
    second = [{**first[0], "tags": []}, {**first[1], "id": 2}]
    shop.write(FILE.replace('key = "id"', 'key = ["shop", "id"]'))
    for night, rows in enumerate((first, second, []), 1):
        extract(shop, night, rows, schema)
        shop.run()
        assert by_key(shop.rows(), "shop", "id") == by_key(rows, "shop", "id")


def test_old_snapshots_of_the_pipeline_go_by_its_rule_and_others_stay(shop: Shop) -> None:
    shop.write('keep = "2 last"\n' + FILE)
    for night in range(1, 5):
        extract(shop, night, orders(*range(night)))
        shop.run()
        with sl.open(shop.folder / "shop.store") as store:
            if night == 1:
                store.branch("idea", at="shop-0001")
            if night == 2:
                store.snapshot("mine")
    assert shop.snapshots() == ["shop-0001", "mine", "shop-0003", "shop-0004"]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_source_may_be_a_query_of_a_database(shop: Shop, kind: str) -> None:
    def change(*statements: str) -> None:
        if kind == "sqlite":
            shop.sqlite("ops.sqlite", *statements)
            return
        with duckdb.connect(str(shop.folder / "ops.duckdb")) as database:
            for statement in statements:
                database.execute(statement)

    change("create table t (id integer primary key, n integer, price text)", "insert into t values (1, 5, '1.50')")
    file = f"""store = "shop.store"
[sources.late]
from = "{kind}:///ops.{kind}"
query = "select id, price from t where n > 3;"
key = "id"
[sources.late.types]
price = "decimal(10,2)"
"""
    shop.write(file)
    (planned,) = shop.pipeline().plan().sources
    assert (planned.rows, planned.how, planned.trouble) == (1, "load", "")
    shop.run()
    change("insert into t values (2, 9, '2'), (3, 1, '3')")
    shop.run()
    assert shop.rows("late") == [{"id": 1, "price": Decimal("1.50")}, {"id": 2, "price": Decimal("2.00")}]
    shop.write(file.replace("select id, price from t where n > 3;", "delete from t returning id, price"))
    with pytest.raises(SqlError, match="SELECT"):
        shop.run()
    assert len(shop.rows("late")) == 2
    shop.write(file.replace("query =", 'detect = "annotated"\nquery ='))
    with pytest.raises(InputError, match="only a table of PostgreSQL or SQLite can be annotated"):
        shop.run()
