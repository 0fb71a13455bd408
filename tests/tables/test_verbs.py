"""What transactions do to tables."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.tables.shop import entries, numbered, rows, shop

from strandline.errors import InputError, KeysError, NotFound, SchemaError, SqlError, StoreError
from strandline.storage import MemoryStorage
from strandline.store import Store, open_on
from strandline.tables import TableTransaction

PEOPLE = [
    {"id": 1, "name": "ann", "age": 30},
    {"id": 2, "name": "bob", "age": 40},
    {"id": 3, "name": "cy", "age": None},
]


def people(store: Store) -> None:
    store.create_table("people", PEOPLE, key="id")


def test_a_transaction_sees_its_own_writes_and_others_see_them_when_it_has_committed() -> None:
    with shop() as store:
        people(store)
        with store.transaction() as tx:
            tx.insert("people", [{"id": 9, "name": "zoe", "age": 1}])
            tx.update("people", where="id = 1", values={"age": 31})
            tx.update("people", where="age > 35", set={"name": "upper(name)"})
            tx.delete("people", where="id = 3")
            seen = tx.to_arrow("people", columns=["id", "name", "age"]).to_pylist()
            assert [(r["id"], r["name"], r["age"]) for r in seen] == [(1, "ann", 31), (2, "BOB", 40), (9, "zoe", 1)]
            assert tx.to_arrow("people", where="age < 10")["id"].to_pylist() == [9]
            assert len(rows(store, "people")) == 3
        assert rows(store, "people") == seen


def test_an_error_inside_a_transaction_undoes_all_of_it() -> None:
    with shop() as store:
        people(store)
        before = rows(store, "people")

        def fail() -> None:
            with store.transaction() as tx:
                tx.delete("people", where="id > 1")
                tx.create_table("other", PEOPLE)
                tx.insert("people", PEOPLE)

        with pytest.raises(KeysError):
            fail()
        assert rows(store, "people") == before
        assert store.tables() == ["people"]


def test_several_tables_commit_together() -> None:
    with shop() as store:
        with store.transaction("both") as tx:
            tx.create_table("a", numbered(3), key="id")
            tx.create_table("b", numbered(2))
        commit = store.pages.view().commit
        with store.transaction() as tx:
            tx.delete("a", where="id = 1")
            tx.insert("b", numbered(1, 7))
        assert store.pages.view().commit == commit + 1
        assert [entry.message for entry in store.log() if entry.kind == "commit"] == ["both", ""]


def test_row_numbers_stay_with_their_rows() -> None:
    with shop() as store:
        people(store)

        def numbers() -> dict[int, int]:
            return {row["id"]: row["_row"] for row in rows(store, "people", columns=["id", "_row"])}

        assert numbers() == {1: 0, 2: 1, 3: 2}
        store.table("people").update(values={"age": 5})
        store.table("people").update(where="id = 2", set={"id": "id + 100"})
        assert numbers() == {1: 0, 102: 1, 3: 2}
        with store.transaction() as tx:
            tx.delete("people", where="id = 1")
            tx.insert("people", [{"id": 1, "name": "again"}])
        assert numbers() == {1: 0, 102: 1, 3: 2}
        store.table("people").delete(where="id = 1")
        store.table("people").insert([{"id": 1, "name": "new"}])
        assert numbers() == {1: 3, 102: 1, 3: 2}
        store.table("people").upsert([{"id": 3, "name": "same"}, {"id": 4, "name": "more"}])
        assert numbers() == {1: 3, 102: 1, 3: 2, 4: 4}


def test_keys_may_be_exchanged() -> None:
    with shop() as store:
        people(store)
        store.table("people").update(where="id < 3", set={"id": "3 - id"})
        assert [(r["id"], r["name"], r["_row"]) for r in rows(store, "people", columns=["id", "name", "_row"])] == [
            (1, "bob", 1), (2, "ann", 0), (3, "cy", 2),
        ]  # fmt: skip
        with store.transaction() as tx:
            tx.delete("people", where="id = 3")
            tx.update("people", where="id = 1", values={"id": 3})
        assert [(r["id"], r["_row"]) for r in rows(store, "people", columns=["id", "_row"])] == [(2, 0), (3, 1)]


def test_a_table_without_a_key_keeps_rows_in_order_of_arrival() -> None:
    with shop() as store:
        store.create_table("log", [{"m": "a"}, {"m": "a"}])
        store.table("log").insert([{"m": "c"}])
        with store.transaction() as tx:
            tx.insert("log", [{"m": "d"}, {"m": "e"}])
            tx.update("log", where="m = 'd'", values={"m": "D"})
            tx.delete("log", where="m = 'e'")
            assert tx.to_arrow("log")["m"].to_pylist() == ["a", "a", "c", "D"]
        assert rows(store, "log", columns=["m", "_row"]) == [
            {"m": "a", "_row": 0}, {"m": "a", "_row": 1}, {"m": "c", "_row": 2}, {"m": "D", "_row": 3},
        ]  # fmt: skip
        assert store.table("log").delete(where="m = 'a'") == 2
        with pytest.raises(InputError, match="no key"):
            store.table("log").upsert([{"m": "x"}])


def test_columns_are_renamed_added_and_widened_without_writing_pages() -> None:
    with shop() as store:
        people(store)
        pages = [entry.base.name for entry in entries(store, "people")]
        with store.transaction() as tx:
            tx.insert("people", [{"id": 7, "name": "kim", "age": 7}])
            tx.rename_column("people", "name", "called")
            tx.add_column("people", "state", "string", default="new")
            tx.update("people", where="id = 7", values={"state": "old"})
            tx.abort()
        with store.transaction() as tx:
            tx.rename_column("people", "name", "called")
            tx.add_column("people", "state", "string", default="new")
            tx.add_column("people", "n", pa.int16())
        assert [entry.base.name for entry in entries(store, "people")] == pages
        store.table("people").upsert([{"id": 2, "called": "bert"}, {"id": 4, "called": "dee", "n": 3}])
        with store.transaction() as tx:
            tx.widen_column("people", "n", "int64")
            tx.rename_column("people", "id", "number")
        found = rows(store, "people")
        assert found[0] == {"number": 1, "called": "ann", "age": 30, "state": "new", "n": None}
        assert found[3] == {"number": 4, "called": "dee", "age": None, "state": "new", "n": 3}
        assert store.table("people").key == ("number",)
        assert store.table("people").schema.field("n").type == pa.int64()
        store.table("people").update(where="number = 1", values={"n": 2**40})
        wrongs: list[tuple[str, Callable[[TableTransaction], None]]] = [
            ("does not hold every value", lambda tx: tx.widen_column("people", "n", "int32")),
            (
                "ordered by this column.*signed integers",
                lambda tx: tx.widen_column("people", "number", "decimal(38, 0)"),
            ),
            ("already", lambda tx: tx.rename_column("people", "called", "age")),
            ("no column 'what'", lambda tx: tx.rename_column("people", "what", "x")),
            ("'_row' is no name", lambda tx: tx.add_column("people", "_row", "int64")),
            ("does not fit", lambda tx: tx.add_column("people", "m", "int32", default="x")),
        ]
        for wrong, how in wrongs:
            with pytest.raises(SchemaError, match=wrong), store.transaction() as tx:
                how(tx)


def test_tables_are_dropped_and_their_names_free_again() -> None:
    with shop() as store:
        people(store)
        with store.transaction() as tx:
            tx.drop_table("people")
            with pytest.raises(NotFound):
                tx.to_arrow("people")
            tx.create_table("people", numbered(2), key="id")
            tx.create_table("short-lived", numbered(2))
            tx.drop_table("short-lived")
            tx.rename_table("people", "folk")
        assert store.tables() == ["folk"]
        assert rows(store, "folk") == numbered(2).to_pylist()


def test_a_transaction_that_has_ended_does_nothing_more() -> None:
    with shop() as store:
        people(store)
        tx = store.transaction()
        tx.commit()
        for verb in (lambda: tx.insert("people", PEOPLE), tx.commit, tx.abort):
            with pytest.raises(StoreError, match="ended"):
                verb()


BAD: list[tuple[type[Exception], str, Callable[[Store], Any]]] = [
    (KeysError, r"already: \(id=1\), \(id=2\)", lambda s: s.table("people").insert(PEOPLE[:2])),
    (KeysError, r"more than once: \(id=7\)", lambda s: s.table("people").insert([{"id": 7}, {"id": 7}])),
    (KeysError, r"more than once: \(id=7\)", lambda s: s.table("people").upsert([{"id": 7}, {"id": 7}])),
    (KeysError, r"null in their key", lambda s: s.table("people").insert([{"id": None, "name": "x"}])),
    (KeysError, r"already: \(id=2\)", lambda s: s.table("people").update(where="id = 1", values={"id": 2})),
    (KeysError, r"more than once", lambda s: s.table("people").update(values={"id": 5})),
    (KeysError, r"null in their key", lambda s: s.table("people").update(values={"id": None})),
    (KeysError, r"key column 'no' is not there", lambda s: s.create_table("t", PEOPLE, key="no")),
    (KeysError, r"more than once: \(age=1\)", lambda s: s.create_table("t", [{"age": 1}] * 2, key="age")),
    (SchemaError, r"must not be null: \(id=9\)", lambda s: s.table("strict").insert([{"id": 9, "v": None}])),
    (SchemaError, r"must not be null", lambda s: s.table("strict").update(set={"v": "NULL"})),
    (SchemaError, r"missing", lambda s: s.table("strict").insert([{"id": 9}])),
    (SchemaError, r"no column 'nme'(.|\n)*the rows(.|\n)*the table", lambda s: s.table("people").insert([{"nme": 1}])),
    (SchemaError, r"the rows(.|\n)*the table", lambda s: s.table("people").insert(pa.table({"id": ["x"]}))),
    (SchemaError, r"does not fit", lambda s: s.table("people").insert([{"id": "one"}])),
    (SchemaError, r"does not fit", lambda s: s.table("people").update(values={"age": "old"})),
    (SchemaError, r"is string, column 'age' is int64", lambda s: s.table("people").update(set={"age": "name"})),
    (SchemaError, r"uses itself", lambda s: s.create_table("t", [{"_row": 1}])),
    (SchemaError, r"no columns", lambda s: s.create_table("t", pa.schema([]))),
    (SqlError, r"no column 'nme'.*Did you mean 'name'", lambda s: s.table("people").delete(where="nme = 1")),
    (SqlError, r"not SQL at position", lambda s: s.table("people").delete(where="id = = 1")),
    (SqlError, r"several statements", lambda s: s.table("people").delete(where="id = 1; drop table x")),
    (SqlError, r"holds a query", lambda s: s.table("people").delete(where="id in (select 1)")),
    (SqlError, r"no plain function of a row", lambda s: s.table("people").update(set={"age": "sum(age)"})),
    (SqlError, r":x has no value", lambda s: s.table("people").delete(where="id = :x")),
    (SqlError, r"not true or false", lambda s: s.table("people").delete(where="id + 1")),
    (SqlError, r"Conversion|convert", lambda s: s.table("people").delete(where="name = 1")),
    (InputError, r"already", lambda s: s.create_table("people", PEOPLE)),
    (InputError, r"no column is given", lambda s: s.table("people").update(where="id = 1")),
    (NotFound, r"no table peple.*The tables are", lambda s: s.table("peple").to_arrow()),
    (NotFound, r"no table peple", lambda s: s.table("peple").insert(PEOPLE)),
]


@pytest.mark.parametrize(("kind", "told", "verb"), BAD, ids=[f"{n}" for n in range(len(BAD))])
def test_bad_input_is_refused_and_explained(kind: type[Exception], told: str, verb: Callable[[Store], Any]) -> None:
    with shop() as store:
        people(store)
        store.create_table("strict", [{"id": 1, "v": 1}], key="id", not_null=["v"])
        before = rows(store, "people"), rows(store, "strict"), store.tables()
        with pytest.raises(kind, match=told):
            verb(store)
        assert (rows(store, "people"), rows(store, "strict"), store.tables()) == before


def test_a_condition_is_never_pasted_into_text() -> None:
    with shop() as store:
        store.create_table("t", pa.table({"id": ["a'b", "; --"], 'odd "name"': [1, 2]}), key="id")
        table = store.table("t")
        assert table.to_arrow(where="id = :x", params={"x": "a'b"})["id"].to_pylist() == ["a'b"]
        table.update(where='"odd ""name""" = 2', set={'odd "name"': '"odd ""name""" + 1'})
        assert table.to_arrow()['odd "name"'].to_pylist() == [3, 1]


def test_what_was_committed_is_there_after_reopening() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        people(store)
        store.table("people").update(where="id = 1", values={"age": 99})
        before = rows(store, "people")
    with open_on(storage) as store:
        assert rows(store, "people") == before


@pytest.mark.parametrize(
    "column",
    [
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
        pa.array([{}], pa.struct([])),
    ],
    ids=["union", "empty struct"],
)
def test_a_type_that_pages_cannot_hold_is_refused_by_name(column: pa.Array) -> None:
    with shop() as store:
        with pytest.raises(SchemaError, match=r"column 'v' is .* which Parquet can't hold"):
            store.create_table("a", pa.table({"id": [1], "v": column}), key="id")
        store.create_table("b", pa.table({"id": [1], "v": pa.nulls(1)}), key="id")
        with pytest.raises(SchemaError, match="which Parquet can't hold"):
            store.autocommit(lambda tx: tx.add_column("b", "w", column.type))
        with pytest.raises(SchemaError, match="which Parquet can't hold"):
            store.autocommit(lambda tx: tx.widen_column("b", "v", column.type))


@pytest.mark.parametrize("nested", [False, True])
def test_decimals_of_negative_scale_are_kept_as_whole_numbers(nested: bool) -> None:
    """Of values; a column that would have such a type is refused."""
    value, scale = ([[Decimal(100)]], pa.list_) if nested else ([Decimal(100)], lambda type_: type_)
    with shop() as store:
        store.create_table("a", pa.table({"id": [1], "v": pa.array(value, scale(pa.decimal128(5, -2)))}), key="id")
        assert store.table("a").to_arrow().field("v").type == scale(pa.decimal128(7, 0))
        assert store.table("a").to_arrow().column("v").to_pylist() == value
        with pytest.raises(SchemaError, match="which Parquet can't hold"):
            store.autocommit(lambda tx: tx.add_column("a", "w", scale(pa.decimal128(5, -2))))


def test_a_key_of_nulls_is_refused_and_nulls_widen_to_anything() -> None:
    with shop() as store:
        with pytest.raises(SchemaError, match="column 'k' is null, which has no order"):
            store.create_table("a", pa.table({"k": pa.nulls(1)}), key="k")
        store.create_table("a", pa.table({"k": [1], "v": pa.nulls(1)}), key="k")
        store.autocommit(lambda tx: tx.widen_column("a", "v", "double"))
        store.table("a").update(values={"v": 0.5})
        assert rows(store, "a") == [{"k": 1, "v": 0.5}]
