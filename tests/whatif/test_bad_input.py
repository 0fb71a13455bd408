"""What a what-if refuses, and what it says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from tests.tables.shop import numbered, shop

from strandline.errors import ChangesError, InputError, InUse, KeysError, NotFound, SchemaError, SqlError
from strandline.store import Store
from strandline.store.what_if import WhatIf


def made(store: Store) -> WhatIf:
    store.create_table("t", numbered(5), key="id")
    return store.table("t").what_if("w")


def test_a_table_under_what_ifs_is_not_dropped() -> None:
    with shop() as store:
        w = made(store)
        w.what_if("upper")
        with pytest.raises(InUse, match="what-ifs upper, w stand on it"):
            store.drop_table("t")
        store.autocommit(lambda tx: tx.rename_table("t", "other"))
        with pytest.raises(InUse, match="what-ifs upper, w stand on it"), store.transaction() as transaction:
            transaction.drop_table("other")
        assert w.count() == 5
        w.drop(with_children=True)
        store.drop_table("other")
        assert store.tables() == []


def test_a_what_if_that_lost_its_table_says_so_and_is_dropped() -> None:
    """Stores of earlier releases may have such: there, dropping a table under what-ifs was not refused."""
    with shop() as store:
        w = made(store)
        lost = store.pages.begin("drop")
        table = lost.view().find_domain("t")
        assert table is not None
        lost.drop_domain(table.domain, "t")
        lost.commit()
        store.create_table("t", numbered(2), key="id")
        for verb in (w.to_arrow, w.changes, w.merge, lambda: w.insert(numbered(1, 9))):
            with pytest.raises(NotFound, match="the table that w stands on was dropped"):
                verb()
        assert [(one.name, one.table) for one in store.what_ifs()] == [("w", None)]
        store.what_if("w").drop()
        assert store.what_ifs() == []


def test_tables_what_ifs_and_views_share_one_set_of_names() -> None:
    with shop() as store:
        made(store)
        store.create_table("other", numbered(1), key="id")
        store.view("v", "SELECT id FROM t")
        for name, told in (("w", "there is a what-if w already"), ("v", "there is a view v already")):
            with pytest.raises(InputError, match=told):
                store.create_table(name, numbered(1), key="id")
            with pytest.raises(InputError, match=told), store.transaction() as transaction:
                transaction.rename_table("other", name)
            with pytest.raises(InputError, match=told):
                store.table("t").what_if(name)
        with pytest.raises(InputError, match="there is a table or what-if 'w' already"):
            store.view("w", "SELECT id FROM t")
        assert store.named("w").schema.names == ["id", "v"]
        store.what_if("w").drop()
        store.drop_view("v")
        for name in ("w", "v"):
            assert len(store.create_table(name, numbered(3), key="id").to_arrow()) == 3


def test_a_table_and_a_what_if_made_at_once_do_not_get_one_name() -> None:
    with shop() as store:
        made(store)
        for number in range(5):
            name = f"n{number}"
            makers: list[Callable[[], object]] = [
                lambda name=name: store.create_table(name, numbered(1), key="id"),  # type: ignore[misc]
                lambda name=name: store.table("t").what_if(name),  # type: ignore[misc]
            ]
            with ThreadPoolExecutor(2) as pool:
                errors = [one.exception() for one in [pool.submit(maker) for maker in makers]]
            assert [type(error) for error in errors if error is not None] == [InputError]


@pytest.mark.parametrize(
    ("name", "told"),
    [("t", "table t already"), ("w", "what-if w already"), ("", "no name"), (" x", "no name"), ("_x", "no name")],
)
def test_a_name_that_is_used_or_no_name_is_refused(name: str, told: str) -> None:
    with shop() as store:
        w = made(store)
        for create in (store.table("t").what_if, w.what_if):
            with pytest.raises(InputError, match=told):
                create(name)


def test_what_is_not_there_is_not_found() -> None:
    with shop() as store:
        with pytest.raises(NotFound, match="no table nowhere"):
            store.table("nowhere").what_if("w")
        with pytest.raises(NotFound, match="no what-if w"):
            store.what_if("w")
        w = made(store)
        w.drop()
        for verb in (w.to_arrow, w.drop, lambda: w.delete()):
            with pytest.raises(NotFound, match="no what-if w"):
                verb()


def test_keys_collide_inside_the_what_if() -> None:
    with shop() as store:
        w = made(store)
        with pytest.raises(KeysError, match="already"):
            w.insert(numbered(1, 3))
        w.delete(where="id = 3")
        w.insert(numbered(1, 3))
        with pytest.raises(KeysError, match="already"):
            w.insert(numbered(1, 3))
        with pytest.raises(KeysError, match="already"):
            w.update(where="id = 1", values={"id": 2})
        with pytest.raises(KeysError, match="more than once"):
            w.update(values={"id": 99})
        with pytest.raises(KeysError, match="null"):
            w.update(where="id = 1", values={"id": None})


def test_merging_twice_changes_nothing_the_second_time() -> None:
    with shop() as store:
        w = made(store)
        w.update(where="id < 2", set={"v": "v + 1"})
        assert w.merge().summary().updated == 2
        commit = store.pages.view().commit
        assert w.merge().summary().changed == 0
        assert store.pages.view().commit == commit
        assert w.to_arrow().equals(store.table("t").to_arrow())


def test_the_future_is_neither_purged_nor_read() -> None:
    with shop() as store:
        w = made(store)
        later = int(store.pages.view().commit) + 1
        with pytest.raises(InputError, match="future"):
            w.purge(before=later)
        with pytest.raises(InputError, match="future"):
            w.to_arrow(as_of=later)
        for date in (-1, True, 1.5, object()):
            with pytest.raises(InputError, match="no date"):
                w.to_arrow(as_of=date)
        with pytest.raises(InputError, match="no snapshot nowhere"):
            w.to_arrow(as_of="nowhere")


def test_a_date_before_the_log_of_a_branch_is_refused() -> None:
    with shop() as store:
        w = made(store)
        w.update(where="id = 1", set={"v": "-1"})
        then = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        assert w.to_arrow(as_of=then).num_rows == 5, "nothing was changed then"
        branch = store.branch("b").what_if("w")
        for refused in (lambda: branch.to_arrow(as_of=then), lambda: branch.purge(before=then)):
            with pytest.raises(InputError, match="does not reach back"):
                refused()
        assert branch.to_arrow(as_of=dt.datetime.now(dt.UTC)).equals(w.to_arrow())


def test_a_what_if_under_a_view_is_not_dropped() -> None:
    with shop() as store:
        w = made(store)
        store.view("v", "select id from w")
        with pytest.raises(InUse, match="could not be read any more") as refused:
            w.drop()
        assert "changing what-ifs" in str(refused.value)
        assert "cascade" not in str(refused.value)


def test_reading_as_of_a_date_before_a_purge_is_refused() -> None:
    with shop() as store:
        w = made(store)
        first = int(store.pages.view().commit)
        w.update(set={"v": "1"})
        w.update(set={"v": "2"})
        now = int(store.pages.view().commit)
        assert w.purge(before=now) == 0
        assert w.purge(before=int(store.pages.view().commit)) == 5
        with pytest.raises(InputError, match="purged"):
            w.to_arrow(as_of=first)
        assert w.to_arrow()["v"].to_pylist() == [2] * 5


def test_a_level_with_children_is_neither_merged_below_their_changes_nor_dropped_unless_they_come_along() -> None:
    with shop() as store:
        w = made(store)
        child = w.what_if("child")
        grandchild = child.what_if("grandchild")
        child.update(where="id = 1", values={"v": 7})
        grandchild.update(where="id = 2", values={"v": 8})
        for verb in (w.merge, w.drop):
            with pytest.raises(InUse, match="child, grandchild stand on w"):
                verb()
        grandchild.merge()
        with pytest.raises(InUse, match="child stand"):
            w.merge()
        child.merge()
        w.merge()
        assert [row["v"] for row in store.table("t").to_arrow(where="id in (1, 2)").to_pylist()] == [7, 8]
        with pytest.raises(InUse, match="child, grandchild stand on w"):
            w.drop()
        w.drop(with_children=True)
        assert store.what_ifs() == []
        assert store.tables() == ["t"]


def test_columns_that_were_renamed_added_or_widened_below_are_followed() -> None:
    with shop() as store:
        w = made(store)
        w.update(where="id = 1", values={"v": 7})
        with store.transaction() as tx:
            tx.rename_column("t", "v", "value")
            tx.add_column("t", "note", pa.string(), default="none")
        assert w.to_arrow(where="id < 2").to_pylist() == [
            {"id": 0, "value": 0, "note": "none"},
            {"id": 1, "value": 7, "note": "none"},
        ]
        assert w.conflicts().num_rows == 0
        w.update(where="id = 2", values={"note": "x"})
        assert w.to_arrow(where="note = 'x'")["id"].to_pylist() == [2]
        w.update(where="id = 1", set={"value": "value + 1"})
        w.merge()
        assert store.table("t").to_arrow(where="id in (1, 2)").to_pylist() == [
            {"id": 1, "value": 8, "note": "none"},
            {"id": 2, "value": 20, "note": "x"},
        ]


def test_a_widened_column_is_followed() -> None:
    with shop() as store:
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())})
        store.create_table("t", rows, key="id")
        w = store.table("t").what_if("w")
        w.update(where="id = 1", values={"v": 5})
        with store.transaction() as tx:
            tx.widen_column("t", "v", pa.int64())
        assert w.to_arrow()["v"].type == pa.int64()
        w.update(where="id = 1", values={"v": 1 << 40})
        assert w.to_arrow()["v"].to_pylist() == [1 << 40, 2]


def test_a_table_before_it_was_widened_is_read_in_the_type_that_the_what_if_holds() -> None:
    with shop() as store:
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())})
        w = store.create_table("t", rows, key="id").what_if("w")
        store.snapshot("narrow")
        with store.transaction() as tx:
            tx.widen_column("t", "v", pa.int64())
        w.update(where="id = 1", values={"v": 1 << 40})
        assert w.to_arrow(at="narrow")["v"].to_pylist() == [1 << 40, 2]
        assert w.to_arrow(at="narrow", where="v < 10")["id"].to_pylist() == [2]
        assert store.query("select sum(v) as v from w", at="narrow")["v"].to_pylist() == [3]


def test_columns_may_have_the_names_of_a_differential_relations_own() -> None:
    with shop() as store:
        rows = [{"level": 1, "type": "a", "tupnum": 5, "mindate": 1, "_place": "x"}]
        store.create_table("t", rows, key="level")
        w = store.table("t").what_if("w")
        w.update(values={"type": "b"})
        w.insert([{"level": 2, "type": "c"}])
        assert [(r["level"], r["type"], r["_place"]) for r in w.to_arrow().to_pylist()] == [
            (1, "b", "x"),
            (2, "c", None),
        ]
        w.merge()
        assert store.table("t").to_arrow()["type"].to_pylist() == ["b", "c"]


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (lambda w: w.update(), InputError),
        (lambda w: w.update(set={"v": "1"}, values={"v": 1}), InputError),
        (lambda w: w.update(set={"nowhere": "1"}), SchemaError),
        (lambda w: w.update(values={"v": "text"}), SchemaError),
        (lambda w: w.update(where="nowhere = 1", values={"v": 1}), SqlError),
        (lambda w: w.delete(where="v +"), SqlError),
        (lambda w: w.delete(where="v = :x"), SqlError),
        (lambda w: w.to_arrow(columns=["nowhere"]), SchemaError),
        (lambda w: w.insert([{"id": 9, "nowhere": 1}]), SchemaError),
        (lambda w: w.merge(resolve="mine"), InputError),
        (lambda w: w.merge(resolve={7: "ours"}), InputError),
        (lambda w: w.rebase(resolve="mine"), InputError),
        (lambda w: w.rebase(resolve={7: "ours"}), InputError),
    ],
)
def test_mistakes_in_a_verb_change_nothing(verb: Callable[[WhatIf], Any], kind: type[Exception]) -> None:
    with shop() as store:
        w = made(store)
        before, commit = w.to_arrow(), store.pages.view().commit
        with pytest.raises(kind):
            verb(w)
        assert w.to_arrow().equals(before)
        assert store.pages.view().commit == commit


def test_a_change_set_that_does_not_fit_is_refused() -> None:
    with shop() as store:
        w = made(store)
        w.insert(numbered(1, 7))
        changes = w.changes()
        w.update(where="id = 7", values={w.to_arrow().column_names[-1]: 99})
        with pytest.raises(ChangesError, match="already there"):
            w.apply(changes)
        assert w.apply(changes, lenient=True) == 1
        store.create_table("heap", numbered(1))
        heap = store.table("heap").what_if("h")
        with pytest.raises(InputError, match="no key"):
            heap.upsert(numbered(1))


def test_a_datetime_means_the_last_commit_before_it() -> None:
    with shop() as store:
        w = made(store)
        w.update(values={"v": 1})
        assert w.to_arrow(as_of=dt.datetime.now(dt.UTC))["v"].to_pylist() == [1] * 5
        early = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
        assert w.to_arrow(as_of=early)["v"].to_pylist() == [0, 10, 20, 30, 40]
