"""Placement, FORWARD, and how many pages a restricted read opens (section 4.4); as-of and at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from tests.tables.shop import entries, numbered, shop

from strandline.storage import MemoryStorage
from strandline.store import create_on, open_on
from strandline.tables import Limits

SMALL = Limits(page_rows=64, cut_rows=48, join_rows=8, most_in_overlay=4, fewest_for_overlay=16)
ROWS = 2000


def test_a_read_restricted_by_key_opens_only_the_pages_of_its_range_and_the_index_of_ids() -> None:
    storage = MemoryStorage()
    with create_on(storage, limits=SMALL) as store:
        store.create_table("t", numbered(0), key="id")
        for start in range(0, ROWS, 200):
            store.table("t").insert(numbered(200, start))
        w = store.table("t").what_if("w")
        for start in range(0, ROWS, 500):
            w.update(where=f"id >= {start} and id < {start + 500} and id % 2 = 0", set={"v": "v + 1"})
        store.table("t").update(where="id = 10", values={"id": 5000})
        deeper = w.what_if("deeper")
        deeper.update(where="id % 5 = 0", set={"v": "v + 1"})
        assert len(entries(store, "t")) > 20
        assert len(entries(store, "_what_if.w")) > 10
    for name, levels in (("w", 1), ("deeper", 2)):
        with open_on(storage, limits=SMALL) as store:
            store.what_ifs()
            before = store.cache.opened
            found = store.what_if(name).to_arrow(where="id = 777")
            opened = store.cache.opened - before
            assert found["v"].to_pylist() == [7770]
            # The catalog, a page of the table and of each D, each with an overlay perhaps, and the ids of each D.
            assert opened <= 2 * (2 + 2 * levels)
            assert store.what_if(name).to_arrow(where="id = 5000").num_rows == 0
            assert store.what_if(name).to_arrow(where="id = 10").num_rows == 1
            full = store.what_if(name).to_arrow()
            part = store.what_if(name).to_arrow(where="id between 300 and 420")
            assert part.equals(full.filter((pa.compute.field("id") >= 300) & (pa.compute.field("id") <= 420)))


def test_very_many_tuples_at_once_make_larger_pages_which_small_updates_change_like_others() -> None:
    with shop(limits=replace(SMALL, large_rows=4 * SMALL.page_rows)) as store:
        store.create_table("t", numbered(ROWS), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id >= 20", set={"v": "-v"})
        assert [entry.rows for entry in entries(store, "_what_if.w")] == [248] * 7 + [244]
        w.update(where="id % 100 = 0", set={"v": "1"})
        w.delete(where="id % 250 = 7")
        expected = {key: -10 * key if key >= 20 else 10 * key for key in range(ROWS)}
        expected |= dict.fromkeys(range(0, ROWS, 100), 1)
        kept = [(key, value) for key, value in expected.items() if key % 250 != 7]
        assert [tuple(row.values()) for row in w.to_arrow().to_pylist()] == kept


def test_the_index_of_ids_grows_with_updates_and_goes_with_the_what_if() -> None:
    with shop(limits=SMALL) as store:
        store.create_table("t", numbered(500), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id < 200", set={"v": "1"})
        w.update(where="id = 300", set={"v": "2"})
        w.update(where="id = 400", set={"v": "3", "id": "1000"})
        rows = store.table("_what_if_ids").to_arrow().to_pylist()
        assert [(row["what_if"], row["level"], row["chunk"]) for row in rows] == [("w", 0, 0)]
        bits = np.unpackbits(np.frombuffer(rows[0]["bits"], dtype=np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == [*range(200), 300, 400]
        assert w.to_arrow(where="id = 400").num_rows == 0
        w.merge()
        assert store.table("_what_if_ids").to_arrow().num_rows == 0
        assert w.to_arrow(where="id = 1000")["v"].to_pylist() == [3]
        w.drop()
        assert store.tables() == ["t"]


def test_a_page_of_d_covers_as_many_of_the_base_as_the_share_of_updates_is_small() -> None:
    with shop(limits=SMALL) as store:
        store.create_table("t", numbered(0), key="id")
        for start in range(0, ROWS, 200):
            store.table("t").insert(numbered(200, start))
        base = len(entries(store, "t"))
        for one_in in (4, 16):
            store.table("t").what_if(f"w{one_in}").update(where=f"id % {one_in} = 0", set={"v": "0"})
            assert base / one_in / 2 <= len(entries(store, f"_what_if.w{one_in}")) <= base / one_in + 1


def test_at_shows_the_table_in_one_of_its_states_under_todays_changes() -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        store.snapshot("then")
        w = store.table("t").what_if("w")
        store.table("t").update(values={"v": 7})
        w.update(where="id = 1", values={"v": 1})
        assert w.to_arrow()["v"].to_pylist() == [7, 1, 7]
        assert w.to_arrow(at="then")["v"].to_pylist() == [0, 1, 20]
        with store.snapshot() as now:
            w.update(where="id = 1", values={"v": 2})
            assert w.to_arrow(as_of=now)["v"].to_pylist() == [7, 1, 7]
            assert w.to_arrow(as_of=now, at="then")["v"].to_pylist() == [0, 1, 20]


def test_a_branch_has_the_what_ifs_of_its_state_as_its_own() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.update(values={"v": 1})
        idea = store.branch("idea")
        idea.what_if("w").update(values={"v": 2})
        assert w.to_arrow()["v"].to_pylist() == [1, 1]
        assert idea.what_if("w").to_arrow()["v"].to_pylist() == [2, 2]
        idea.what_if("w").merge()
        assert store.table("t").to_arrow()["v"].to_pylist() == [0, 10]


def test_hidden_tables_are_not_listed_and_what_ifs_are() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        store.table("t").what_if("b").what_if("c")
        store.table("t").what_if("a").insert(numbered(1, 5))
        assert store.tables() == ["t"]
        listed = [(one.name, one.below, one.table, one.level, one.tuples) for one in store.what_ifs()]
        assert listed == [("a", "t", "t", 1, 1), ("b", "t", "t", 1, 0), ("c", "b", "t", 2, 0)]
        c = store.what_if("c")
        assert (c.level, c.base, c.key, c.schema.names, c.count()) == (2, "b", ("id",), ["id", "v"], 2)


def test_keys_of_several_columns_and_of_text_are_ordered_like_the_tables() -> None:
    with shop(limits=SMALL) as store:
        rows = [{"a": f"k{n % 7}\0x", "b": n, "v": n} for n in range(300)]
        store.create_table("t", rows, key=["a", "b"])
        w = store.table("t").what_if("w")
        w.update(where="b % 3 = 0", set={"v": "-v"})
        w.update(where="b = 100", set={"a": "'z'"})
        w.delete(where="b % 11 = 5")
        found = [(row["a"], row["b"], row["v"]) for row in w.to_arrow().to_pylist()]
        wanted = [("z" if n == 100 else f"k{n % 7}\0x", n, -n if n % 3 == 0 else n) for n in range(300) if n % 11 != 5]
        assert found == sorted(wanted)
        part = w.to_arrow(where="a = :a and b between 50 and 120", params={"a": "k2\0x"})
        assert part["b"].to_pylist() == [n for n in range(50, 121) if n % 7 == 2 and n % 11 != 5 and n != 100]


def test_anything_that_reads_arrow_reads_a_what_if() -> None:
    import strandline as sl

    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id = 1", values={"v": 5})
        assert pa.table(w).equals(w.to_arrow())
        found = sl.diff(store.table("t").to_arrow(), w, key="id", runner="inline")
        assert found.to_arrow()["id"].to_pylist() == [1]
