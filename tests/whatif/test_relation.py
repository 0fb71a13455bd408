"""A what-if wherever a table is: kernels on both runners, `diff`, SQL, Spark, changes between states, dumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.tables.shop import entries, numbered, shop

import strandline as sl
from strandline.errors import InputError, NotFound, SqlError
from strandline.relations.reader import read_relation, read_scan
from strandline.relations.relation import Scan
from strandline.spark_source.register import release
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.store.what_if import WhatIf
from strandline.tables import Limits
from strandline.whatif import scan as relations

SMALL = Limits(page_rows=64, cut_rows=48, join_rows=8, most_in_overlay=4, fewest_for_overlay=16)


@pytest.fixture
def page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a relation for each page of the base."""
    monkeypatch.setattr(relations, "PART_BYTES", 1)


def three_levels(store: Store, key: str | list[str] | None = "id", rows: Any = None) -> list[WhatIf]:
    """What-ifs on each other over a table of some pages, with every type of tuple; the base goes on changing."""
    table = store.create_table("t", numbered(300) if rows is None else rows, key=key)
    one = table.what_if("one")
    one.update(where="id % 3 = 0", set={"v": "-v"})
    one.insert(numbered(40, 50_000))
    two = one.what_if("two")
    two.update(where="id % 5 = 0", set={"id": "id + 100000"})
    two.delete(where="id % 11 = 1")
    three = two.what_if("three")
    three.update(where="id % 7 = 0 and id < 50000", set={"id": "-id - 1", "v": "7"})
    table.update(where="id % 10 = 2", set={"id": "id + 200000"})
    table.delete(where="id = 13")
    return [one, two, three]


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.parametrize("key", ["id", ["v", "id"], None])
def test_the_parts_of_a_what_if_at_any_depth_hold_each_row_once(key: Any, page_by_page: None) -> None:
    with shop(limits=SMALL) as store:
        for what_if in three_levels(store, key):
            relation = what_if.relation()
            parts = relation.parts()
            assert len(parts) == len(entries(store, "t"))
            found = pa.concat_tables([pa.Table.from_batches(read_scan(part.scan)) for part in parts])
            assert rows_of(found) == rows_of(what_if.to_arrow())
            for part in parts:
                whole = pa.Table.from_batches(read_scan(Scan.from_json(part.scan.to_json())), part.scan.schema)
                for name, bounds in part.bounds.items():
                    assert all(bounds.least <= value <= bounds.greatest for value in whole[name].to_pylist())


def test_one_work_item_opens_the_pages_of_its_range_and_the_ids_and_no_others(
    page_by_page: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    opened: list[str] = []
    get = storage.get
    with create_on(storage, limits=SMALL) as store:
        three = three_levels(store, rows=numbered(3000))[-1]
        three.update(where="id = 1000", set={"v": "1"})
        relation = three.relation()
        parts = relation.parts()
        assert len(parts) > 40
        relations._opened.cache_clear()

        def counted(name: str) -> bytes:
            opened.append(name)
            return get(name)

        monkeypatch.setattr(storage, "get", counted)
        read = [pa.Table.from_batches(read_scan(parts[20].scan))]
        pages = {name for name in opened if name.startswith("pages/")}
        # The catalog of what-ifs, the ids; one page of the base; of each D two at a border; overlays of them.
        assert len(pages) <= 2 + 2 * (1 + 3 * 2)
        opened.clear()
        read += [pa.Table.from_batches(read_scan(part.scan)) for part in parts[21:24]]
        assert len({name for name in opened if name.startswith("pages/")}) <= 3 * 2 * (1 + 3)
        assert all(table.num_rows for table in read)


def test_a_what_if_is_compared_with_its_base_and_with_another_by_every_algorithm(page_by_page: None) -> None:
    with shop(limits=SMALL) as store:
        one, two, three = three_levels(store)
        for old, new in ((store.table("t"), three), (one, two)):
            wanted = sl.diff(old.to_arrow(), new.to_arrow(), key="id", runner="inline").summary()
            for algorithm in ("auto", "merge", "hash", "kb", "window") if old is not one else ("auto",):
                found = sl.diff(old, new, key="id", algorithm=algorithm, runner="inline")
                assert str(found.summary()) == str(wanted)


def test_sql_joins_tables_and_what_ifs_of_a_state() -> None:
    with shop() as store:
        one, two, _ = three_levels(store)
        wanted = sum(v for v in two.to_arrow()["v"].to_pylist())
        assert store.query("SELECT sum(v) AS s FROM two")["s"].to_pylist() == [wanted]
        joined = store.query('SELECT count(*) AS n FROM t JOIN "one" AS o USING (id) WHERE t.v <> o.v')
        same = {row["id"]: row["v"] for row in store.table("t").to_arrow().to_pylist()}
        assert joined["n"][0].as_py() == sum(
            1 for row in one.to_arrow().to_pylist() if row["id"] in same and same[row["id"]] != row["v"]
        )
        store.snapshot("then")
        two.delete()
        assert store.query("SELECT count(*) AS n FROM two", at="then")["n"][0].as_py() > 0
        assert store.query("SELECT count(*) AS n FROM two")["n"].to_pylist() == [0]
        with pytest.raises(NotFound, match="The tables are one, t, three, two"):
            store.query("SELECT * FROM four")
        with pytest.raises(SqlError, match="nowhere"):
            store.query("SELECT nowhere FROM two")


def test_changes_between_two_states_come_from_every_level() -> None:
    with shop(limits=SMALL) as store:
        one, two, _three = three_levels(store)
        before = two.to_arrow()
        with store.snapshot() as then:
            store.table("t").update(where="id in (16, 3, 5)", values={"v": 1})
            store.table("t").insert(numbered(1, 700))
            one.update(where="id = 4", set={"id": "4444"})
            two.delete(where="id = 8")
            found = two.changes_between(then)
            assert rows_of(found.apply(before).to_arrow()) == rows_of(two.to_arrow())
            kinds = {row["id"]: row["_change"] for row in found.to_arrow().to_pylist()}
            assert kinds == {16: "update", 700: "insert", 4: "delete", 4444: "insert", 8: "delete"}
            assert rows_of(store.changes("two", since=then).to_arrow().drop_columns(["_before"])) == rows_of(
                found.to_arrow().drop_columns(["_before"])
            )
            assert rows_of(two.changes_between(None, then).apply(two.to_arrow()).to_arrow()) == rows_of(before)


def test_changes_between_open_only_pages_where_something_happened() -> None:
    storage = MemoryStorage()
    with create_on(storage, limits=SMALL) as store:
        three = three_levels(store, rows=numbered(6000))[-1]
        with store.snapshot() as then:
            store.table("t").update(where="id = 1501", values={"v": 1})
            three.update(where="id = 3001", values={"v": 1})
            store.cache.clear()
            before = store.cache.opened
            assert three.changes_between(then).summary().changed == 2
            assert store.cache.opened - before < 50
            assert len(entries(store, "t")) + len(entries(store, "_what_if.one")) > 120


def test_a_tuple_that_is_let_go_is_found_although_its_key_changed_long_before() -> None:
    with shop() as store:
        table = store.create_table("t", numbered(5), key="id")
        w = table.what_if("w")
        w.update(where="id = 1", values={"v": 1})
        table.update(where="id = 1", values={"id": 77})
        before = w.to_arrow()
        with store.snapshot() as then:
            w.rebase(resolve="theirs")
            assert w.to_arrow()["id"].to_pylist() == [0, 2, 3, 4, 77]
            assert rows_of(w.changes_between(then).apply(before).to_arrow()) == rows_of(w.to_arrow())


def test_a_what_if_that_was_made_anew_is_compared_as_a_whole() -> None:
    with shop() as store:
        table = store.create_table("t", numbered(5), key="id")
        table.what_if("w").delete(where="id = 1")
        with store.snapshot() as then:
            store.what_if("w").drop()
            w = table.what_if("w")
            assert w.changes_between(then).to_arrow()["id"].to_pylist() == [1]


def test_a_state_of_a_what_if_is_a_relation_that_stays_readable() -> None:
    with shop() as store:
        _, two, _ = three_levels(store)
        wanted = two.to_arrow()
        held = store.named("two")
        store.snapshot("then")
        two.delete()
        store.table("t").delete()
        assert rows_of(read_relation(held)) == rows_of(wanted)
        assert rows_of(read_relation(store.named("two", at="then"))) == rows_of(wanted)
        del held


def test_dumps_bring_what_ifs_back_with_their_dates(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        one, two, _ = three_levels(store)
        date = int(store.pages.view().commit)
        store.dump(tmp_path / "dumps", level=0)
        two.update(where="id < 9", set={"v": "9"})
        store.dump(tmp_path / "dumps", level=1)
        wanted = [one.to_arrow(), two.to_arrow(), two.to_arrow(as_of=date)]
    sl.restore(tmp_path / "dumps", tmp_path / "again")
    with sl.open(tmp_path / "again") as store:
        one, two = store.what_if("one"), store.what_if("two")
        assert [one.to_arrow(), two.to_arrow(), two.to_arrow(as_of=date)] == wanted
        store.what_if("three").drop()
        two.merge(resolve="ours")
        assert rows_of(one.to_arrow()) == rows_of(wanted[1])
        assert store.check().ok


def test_spark_reads_key_ranges_at_any_depth_and_date(spark: Any, tmp_path: Path, page_by_page: None) -> None:
    with sl.create(tmp_path / "shop", session=spark) as store:
        three = three_levels(store)[-1]
        date = int(store.pages.view().commit)
        wanted = rows_of(three.to_arrow())
        three.delete(where="id < 100")
        then, now = three.to_spark(as_of=date), three.to_spark(columns=["v", "id"], where="id between 100 and 140")
        shown = rows_of(three.to_arrow(columns=["v", "id"], where="id between 100 and 140"))
        store.table("t").delete()
        assert sorted(map(tuple, then.collect())) == wanted
        assert sorted(map(tuple, now.collect())) == shown
        assert three.to_spark().count() == three.count()


def test_kernels_and_sql_give_the_same_on_both_runners(spark: Any, tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop", session=spark) as store:
        three = three_levels(store)[-1]
        told = [str(sl.diff(store.table("t"), three, key="id", runner=r, session=spark).summary()) for r in RUNNERS]
        assert told[0] == told[1]
        sql = "SELECT count(*) AS n, sum(v) AS s FROM three WHERE id > 50"
        one, other = (store.query(sql, runner=runner).to_pylist() for runner in RUNNERS)
        assert [tuple(map(int, row.values())) for row in one] == [tuple(map(int, row.values())) for row in other]


RUNNERS = ("inline", "spark")


def test_the_data_source_reads_and_writes_what_ifs(spark: Any, tmp_path: Path) -> None:
    sl.register(spark)
    path = str(tmp_path / "shop")
    with sl.create(path) as store:
        _, two, _ = three_levels(store)
        date, wanted = str(int(store.pages.view().commit)), two.to_arrow(where="id < 20", columns=["v", "id"])
        two.update(where="id = 4", values={"v": 1})
        reader = spark.read.format("strandline").option("table", "two").option("as_of", date)
        frame = reader.option("where", "id < 20").option("columns", "v,id").load(path)
        assert sorted(map(tuple, frame.collect())) == rows_of(wanted)
        more = spark.createDataFrame([(4, 44), (8888, 1)], "id bigint, v bigint")
        more.write.format("strandline").option("table", "two").option("merge", "key").mode("append").save(path)
        assert two.to_arrow(where="id in (4, 8888)")["v"].to_pylist() == [44, 1]
        assert store.tables() == ["t"]
    release()


def test_what_the_data_source_can_not_do_with_a_what_if_is_said_before_any_job(tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    from strandline.spark_source.leases import Leases
    from strandline.spark_source.options import ReadRequest, WriteRequest
    from strandline.spark_source.readers import holds_what_if, what_if_schema
    from strandline.spark_source.writer import check_write

    path = str(tmp_path / "shop")
    rows = StructType([StructField("id", LongType()), StructField("v", LongType())])
    with sl.create(path) as store:
        three_levels(store)
        store.snapshot("then")
        store.what_if("two").delete(where="id = 4")
    leases = Leases()
    pinned = leases.pin(ReadRequest(path, "two"))
    assert (holds_what_if(pinned, "two"), holds_what_if(pinned, "t")) == (True, False)
    with pytest.raises(InputError, match="takes no filters"):
        what_if_schema(pinned, ReadRequest(path, "two", pushdown=True))
    with pytest.raises(SqlError, match="nowhere"):
        what_if_schema(pinned, ReadRequest(path, "two", where="nowhere = 1"))
    with pytest.raises(InputError, match="future"):
        leases.pin(ReadRequest(path, "two", as_of="999"))
    assert leases.changes(ReadRequest(path, "two", since="then")).header.counts.deleted == 1
    with pytest.raises(InputError, match="can't be overwritten"):
        check_write(WriteRequest(path, "two", overwrite=True), leases.store_process(path), rows)
    leases.release()


def test_a_relation_before_a_purge_is_refused() -> None:
    with shop() as store:
        w = store.create_table("t", numbered(5), key="id").what_if("w")
        date = int(store.pages.view().commit)
        w.update(values={"v": 1})
        w.purge(before=int(store.pages.view().commit))
        for read in (w.relation, w.to_spark):
            with pytest.raises(InputError, match="purged"):
                read(as_of=date)
