"""The history of a row is what its snapshots hold, one after the other; descriptions and changes of whole stores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.cli.command import Command
from tests.values.properties import for_all

import strandline as sl
from strandline.errors import KeysError, NotFound
from strandline.storage import MemoryStorage
from strandline.store import create_on
from strandline.tables import TableTransaction

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
States = list[dict[int, int | None]]


def fill(store: sl.Store, states: States) -> None:
    """A snapshot of each state, the last of which stays."""
    store.create_table("t", SCHEMA.empty_table(), key="id")
    for number, rows in enumerate(states):
        store.table("t").overwrite(pa.Table.from_pylist([{"id": i, "v": v} for i, v in rows.items()], SCHEMA))
        store.snapshot(f"s{number}")


def expected(states: States, key: int) -> list[tuple[str, str, int | None]]:
    found, before = [], None
    for number, rows in enumerate(states):
        now = (rows[key],) if key in rows else None
        if now != before:
            kind = "delete" if now is None else "insert" if before is None else "update"
            found.append((f"s{number}", kind, None if now is None else now[0]))
        before = now
    return found


_STATES = st.lists(
    st.dictionaries(st.integers(1, 3), st.sampled_from([None, 1, 2]), max_size=3), min_size=1, max_size=5
)


@for_all(8, states=_STATES)
def test_the_history_of_each_row_is_that_of_its_snapshots(
    tmp_path_factory: pytest.TempPathFactory, states: States
) -> None:
    with sl.create(tmp_path_factory.mktemp("history") / "shop") as store:
        fill(store, states)
        for key in (1, 2, 3):
            rows = store.table("t").history(key).to_pylist()
            assert [(row["_state"], row["_change"], row["v"]) for row in rows] == expected(states, key)


def test_what_no_snapshot_holds_is_now(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1}])
        store.table("t").update(where="id = 1", set={"v": "v + 1"})
        rows = store.table("t").history(1).to_pylist()
        assert [(row["_state"], row["v"]) for row in rows] == [("s0", 1), ("now", 2)]
        assert rows[0]["_commit"] < rows[1]["_commit"]


def test_columns_that_came_later_hold_their_default_before_and_partial_snapshots_tell_nothing(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1}])
        store.create_table("other", SCHEMA.empty_table(), key="id")
        store.snapshot("others", tables=["other"])
        with store.transaction() as tx:
            tx.add_column("t", "note", pa.string(), default="x")
        rows = store.table("t").history(1).to_pylist()
        assert [(row["_state"], row["_change"], row["note"]) for row in rows] == [("s0", "insert", "x")]


def test_a_key_that_does_not_fit_and_a_table_without_one_are_refused(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1}])
        store.create_table("heap", SCHEMA.empty_table())
        with pytest.raises(KeysError, match="the key is id, and 2 values are given"):
            store.table("t").history(1, 2)
        with pytest.raises(KeysError, match="the table has no key"):
            store.table("heap").history(1)
        with pytest.raises(NotFound):
            store.table("gone").history(1)


def test_a_store_tells_what_changed_in_all_of_its_tables(tmp_path: Path) -> None:
    with sl.create(tmp_path / "shop") as store:
        fill(store, [{1: 1, 2: 2}])
        store.create_table("old", SCHEMA.empty_table(), key="id")
        store.snapshot("monday")
        store.drop_table("old")
        store.create_table("new", SCHEMA.empty_table(), key="id")
        store.table("t").delete(where="id = 1")
        found = store.all_changes(since="monday")
        assert (found.created, found.dropped, list(found.tables)) == (("new",), ("old",), ["t"])
        assert found.tables["t"].summary().deleted == 1
        store.snapshot("only t", tables=["t"])
        found = store.all_changes(since="only t")
        assert (found.created, found.dropped, list(found.tables)) == ((), (), ["t"])


Values = tuple[object, ...]


@dataclass(frozen=True)
class Shape:
    """A table of the model: its name, its columns without the key, and the values of its one row, if it has it."""

    name: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    row: Values | None = None


@dataclass
class Tables:
    """A store with one table that is changed, reshaped, renamed and made anew, and one that comes and goes.

    Tables are told apart by numbers of the model. `states` has what each snapshot saw, and which tables it holds.
    """

    store: sl.Store
    tables: dict[int, Shape] = field(default_factory=dict)
    states: list[tuple[dict[int, Shape], set[int]]] = field(default_factory=list)
    count: int = 0

    def create(self, name: str, *columns: tuple[str, pa.DataType]) -> None:
        schema = pa.schema([("id", pa.int64()), *columns])
        self.store.create_table(name, schema.empty_table(), key="id")
        self.count += 1
        names, types = zip(*columns, strict=True)
        self.tables[self.count] = Shape(name, names, types)

    def step(self, what: str) -> None:
        self.count += 1
        number = next(number for number, one in self.tables.items() if one.name != "z")
        one = self.tables[number]
        if what == "put":
            row = tuple(f"{self.count}" if kind == pa.string() else self.count for kind in one.types)
            self.store.table(one.name).upsert([dict(zip(("id", *one.columns), (1, *row), strict=True))])
            self.tables[number] = replace(one, row=row)
        elif what == "delete":
            self.store.table(one.name).delete()
            self.tables[number] = replace(one, row=None)
        elif what == "z":
            there = [other for other, its in self.tables.items() if its.name == "z"]
            if there:
                self.store.drop_table("z")
                del self.tables[there[0]]
            else:
                self.create("z", ("v", pa.int32()))
        elif what == "anew":
            self.store.drop_table(one.name)
            del self.tables[number]
            self.create(one.name, *([("w", pa.string())] if self.count % 2 else [("v", pa.int32())]))
        else:
            with self.store.transaction() as tx:
                self.tables[number] = self.reshape(tx, one, what)

    def reshape(self, tx: TableTransaction, one: Shape, what: str) -> Shape:
        if what == "rename table":
            name = {"t": "u", "u": "t"}[one.name]
            tx.rename_table(one.name, name)
            return replace(one, name=name)
        if what == "rename column":
            tx.rename_column(one.name, one.columns[0], f"r{self.count}")
            return replace(one, columns=(f"r{self.count}", *one.columns[1:]))
        if what == "widen" and one.types[0] == pa.int32():
            tx.widen_column(one.name, one.columns[0], "int64")
            return replace(one, types=(pa.int64(), *one.types[1:]))
        name = f"a{self.count}" if "v" in one.columns else "v"  # a name that another column had
        tx.add_column(one.name, name, pa.string(), default="x")
        row = None if one.row is None else (*one.row, "x")
        return Shape(one.name, (*one.columns, name), (*one.types, pa.string()), row)

    def snapshot(self, *, partial: bool) -> None:
        held = {number for number, one in self.tables.items() if not partial or one.name == "z"}
        if held or not partial:
            names = [self.tables[number].name for number in held]
            self.store.snapshot(f"s{len(self.states)}", tables=names if partial else None)
            self.states.append((dict(self.tables), held))


def padded(row: Values | None, width: int) -> Values | None:
    return None if row is None else (*row, *["x"] * (width - len(row)))[:width]


STEPS = ("put", "put", "delete", "rename column", "add", "widen", "rename table", "anew", "z")


@for_all(25, steps=st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), min_size=2, max_size=9), data=st.data())
def test_tables_are_followed_by_what_they_are_through_names_and_shapes(
    steps: list[tuple[str, bool]], data: st.DataObject
) -> None:
    with create_on(MemoryStorage()) as store:
        model = Tables(store)
        model.create("t", ("v", pa.int32()))
        model.snapshot(partial=False)
        for what, whole in steps:
            model.step(what)
            model.snapshot(partial=not whole)
        places = st.integers(0, len(model.states) - 1)
        check_all_changes(model, data.draw(places), data.draw(places))
        for number, one in model.tables.items():
            check_history(model, number, one)


def check_history(model: Tables, number: int, one: Shape) -> None:
    """The table has the history of its own number, in its present shape."""
    table, expected, before = model.store.table(one.name), [], None
    states = [(f"s{place}", tables.get(number)) for place, (tables, held) in enumerate(model.states)
              if number in held or (number not in tables and len(held) == len(tables))]  # fmt: skip
    for name, then in [*states, ("now", one)]:
        row = None if then is None else padded(then.row, len(one.columns))
        if row != before:
            kind = "delete" if row is None else "insert" if before is None else "update"
            expected.append((name, kind, row if row is not None else (None,) * len(one.columns)))
        before = row
    found = [(r["_state"], r["_change"], tuple(r[c] for c in one.columns)) for r in table.history(1).to_pylist()]
    assert found == expected
    assert table.describe().snapshots == tuple(name for name, then in states if then is not None)
    for name, then in states:
        named = next((tables for place, (tables, _) in enumerate(model.states) if f"s{place}" == name), {})
        if then is not None and one.name not in [its.name for key, its in named.items() if key != number]:
            assert table.describe(at=name).name == then.name
            assert table.to_arrow(at=name).column_names == ["id", *then.columns]


def check_all_changes(model: Tables, since: int, until: int) -> None:
    (older, held), (newer, kept) = model.states[since], model.states[until]
    found = model.store.all_changes(since=f"s{since}", until=f"s{until}")
    both = {number: newer[number].name for number in held & kept}
    assert sorted(found.tables) == sorted(both.values())
    assert found.created == tuple(sorted(newer[number].name for number in kept - older.keys()))
    assert found.dropped == tuple(sorted(older[number].name for number in held - newer.keys()))
    renamed = {name: older[number].name for number, name in both.items() if older[number].name != name}
    assert found.renamed == renamed
    for number, name in both.items():
        width = len(newer[number].columns)
        was, is_now = padded(older[number].row, width), newer[number].row
        rows = model.store.changes(name, since=f"s{since}", until=f"s{until}").to_arrow().to_pylist()
        assert len(rows) == (was != is_now)
        if rows and was is not None:
            assert tuple(rows[0]["_before"].values()) == was


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    with sl.create("shop") as store:
        fill(store, [{1: 1, 2: 2}, {1: 5, 2: 2}])
        store.create_table("heap", pa.table({"at": [1.5]}))
    return Command(capsys)


def test_tables_and_what_they_are(shop: Command) -> None:
    lines = [line.split("\t") for line in shop("tables", "shop").out.splitlines()]
    assert [line[:3] for line in lines] == [["table", "key", "rows"], ["heap", "", "1"], ["t", "id", "2"]]
    assert [row["table"] for row in shop("tables", "shop", "--at", "s0", "--json").json["tables"]] == ["t"]
    ran = shop("describe", "shop", "t")
    assert ran.out.splitlines()[1:] == ["id\tint64\tnot null\tkey", "v\tint64\t\t"]
    assert "2 rows" in ran.err
    assert "Snapshots: s0, s1." in ran.err
    found = shop("describe", "shop", "t", "--json").json
    assert (found["key"], found["columns"][1]) == (["id"], {"name": "v", "type": "int64", "nullable": True})
    assert shop("describe", "shop", "x").code == 2


def test_the_history_of_a_row_on_the_command_line(shop: Command) -> None:
    ran = shop("history", "shop", "t", "1")
    assert [line.split("\t")[0::3] for line in ran.out.splitlines()[1:]] == [["s0", "insert"], ["s1", "update"]]
    assert [one["v"] for one in shop("history", "shop", "t", "1", "--json").json["states"]] == [1, 5]
    ran = shop("history", "shop", "t", "77")
    assert (ran.code, ran.err) == (1, "No snapshot of shop has such a row, and there is none now.\n")
    assert "'x' is no value of id, which is int64" in shop("history", "shop", "t", "x").err
    assert "the key is id, and 2 values" in shop("history", "shop", "t", "1", "2").err


def test_what_changed_in_all_tables_on_the_command_line(shop: Command) -> None:
    ran = shop("changes", "shop", "--since", "s0")
    assert (ran.code, ran.out.splitlines()[1:]) == (1, ["heap\t\t\t\tcreated", "t\t0\t1\t0\t"])
    ran = shop("changes", "shop", "--since", "s0", "--json")
    assert (ran.json["tables"]["t"]["updated"], ran.json["created"]) == (1, ["heap"])
    ran = shop("changes", "shop", "--since", "s0", "--until", "s0")
    assert (ran.code, ran.err) == (0, "Nothing changed.\n")
    with sl.open("shop") as store, store.transaction() as tx:
        tx.rename_table("t", "u")
        tx.add_column("u", "n", pa.int64(), default=0)
    ran = shop("changes", "shop", "--since", "s1")
    assert (ran.code, ran.out.splitlines()[1:]) == (1, ["heap\t\t\t\tcreated", "u\t0\t0\t0\twas t, n"])
    assert shop("changes", "shop", "--since", "s1", "--json").json["renamed"] == {"u": "t"}
    assert shop("changes", "shop", "u", "--since", "s1").code == 1, "a column came"
    assert "Its name was t." in shop("describe", "shop", "u", "--at", "s0").err
    assert "Say which TABLE" in shop("changes", "shop", "--since", "s0", "--out", "x.csv").err
