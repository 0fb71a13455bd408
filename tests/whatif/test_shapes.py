"""Changes of a table's columns under what-ifs: a state machine against section 2.4's definition, and what it has found.

The model knows no signatures. A column that is added holds its default in every row that anybody has, and in every row
that anybody saw; renaming and widening change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples
from tests.tables.shop import rows, shop
from tests.whatif.model import (
    Level,
    Relation,
    Row,
    chosen,
    conflicts,
    contents,
    do,
    is_busy,
    merge,
    new_name,
    rebase,
)

from strandline.changes import ChangeSet
from strandline.changes.apply import apply
from strandline.errors import ChangesError, InUse, KeysError
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

KINDS = (pa.int16(), pa.int32(), pa.int64(), pa.decimal128(21, 1), pa.decimal128(24, 2))
"""Types of value columns, each of which holds the ones before."""
VALUES: tuple[list[Any], ...] = ([0, 1, 2, None], [1 << 20], [1 << 40], [Decimal("0.5")], [Decimal("0.25")])

ids = st.integers(0, 8)
picks = st.integers(0, 100)


class Shapes(RuleBasedStateMachine):
    """A table `t` (key `id`), and what-ifs `a` on it, `b` on `a`, and `c` on `t`."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.store = create_on(self.storage)
        self.base: Relation = {}
        self.columns: list[tuple[str, int]] = [("v", 0)]
        self.levels: dict[str, Level] = {}
        self.made = 0
        self.steps = 0
        self.called = "t"
        self.remembered: dict[str, dict[str, list[Row]]] = {}
        """By snapshot: the rows that each relation had then, in the present shape."""

    def teardown(self) -> None:
        self.store.close()
        report = check_store(self.storage)
        assert report.ok, (report.findings, report.unreachable)

    @initialize(keys=st.sets(ids, min_size=2))
    def begin(self, keys: set[int]) -> None:
        self.base = {new_name(): (key, 0) for key in sorted(keys)}
        self.store.create_table("t", self.table(list(self.base.values())), key="id")
        a = self.store.table("t").what_if("a")
        a.what_if("b")
        self.store.table("t").what_if("c")
        self.store.view("low", "select id from b where id < 4")
        self.levels = {"a": Level(None), "c": Level(None)}
        self.levels["b"] = Level(self.levels["a"])

    def table(self, several: list[Row]) -> pa.Table:
        columns = {"id": pa.array([row[0] for row in several], pa.int64())}
        for place, (name, kind) in enumerate(self.columns, 1):
            columns[name] = pa.array([row[place] for row in several], KINDS[kind])
        return pa.table(columns)

    @property
    def now(self) -> int:
        return int(self.store.pages.view().commit)

    def pick(self, number: int) -> tuple[Any, Level | None]:
        names = [None, *self.levels]
        name = names[number % len(names)]
        return (self.store.table(self.called), None) if name is None else (self.store.what_if(name), self.levels[name])

    def value(self, place: int, number: int) -> Any:
        choices = [value for more in VALUES[: self.columns[place][1] + 1] for value in more]
        return choices[number % len(choices)]

    def write(self, level: Level | None, changed: dict[int, Row | None]) -> None:
        if level is not None:
            do(level, self.base, self.now, changed)
            return
        self.base = {name: row for name, row in (self.base | changed).items() if row is not None}

    def rows(self, level: Level | None) -> Relation:
        return contents(level, self.base, self.now)

    @rule(pick=picks, key=ids, number=picks)
    def put(self, pick: int, key: int, number: int) -> None:
        relation, level = self.pick(pick)
        row = (key, *(self.value(place, number + place) for place in range(len(self.columns))))
        standing = {each[0]: name for name, each in self.rows(level).items()}
        relation.upsert(self.table([row]))
        self.write(level, {standing.get(key, new_name()): row})

    @rule(pick=picks, low=ids, column=picks, number=picks)
    def update(self, pick: int, low: int, column: int, number: int) -> None:
        relation, level = self.pick(pick)
        place = column % len(self.columns)
        value = self.value(place, number)
        changed: dict[int, Row | None] = {
            name: (*row[: place + 1], value, *row[place + 2 :])
            for name, row in self.rows(level).items()
            if low <= row[0] <= low + 2
        }
        values = {self.columns[place][0]: value}
        where = f"id >= {low} and id <= {low + 2}"
        assert relation.update(where=where, values=values) == len(changed)
        if changed:
            self.write(level, changed)

    @rule(pick=picks, key=ids)
    def delete(self, pick: int, key: int) -> None:
        relation, level = self.pick(pick)
        changed: dict[int, Row | None] = {name: None for name, row in self.rows(level).items() if row[0] == key}
        assert relation.delete(where="id = :key", params={"key": key}) == len(changed)
        if changed:
            self.write(level, changed)

    @rule(kind=st.integers(0, len(KINDS) - 1), number=picks)
    def add(self, kind: int, number: int) -> None:
        if len(self.columns) > 3:
            return
        self.columns.append((f"x{self.made}", kind))
        self.made += 1
        default = self.value(len(self.columns) - 1, number)
        with self.store.transaction() as tx:
            tx.add_column(self.called, self.columns[-1][0], KINDS[kind], default=default)
        self.base = {name: (*row, default) for name, row in self.base.items()}
        for level in self.levels.values():
            level.done = [
                replace(one, row=one.row and (*one.row, default), saw=one.saw and (*one.saw, default))
                for one in level.done
            ]
        self.remembered = {
            snapshot: {name: [(*row, default) for row in several] for name, several in held.items()}
            for snapshot, held in self.remembered.items()
        }

    @rule()
    def remember(self) -> None:
        snapshot = f"s{len(self.remembered)}"
        self.store.snapshot(snapshot)
        every = {"t": None, **self.levels}
        self.remembered[snapshot] = {name: list(self.rows(level).values()) for name, level in every.items()}

    @rule(column=picks)
    def rename(self, column: int) -> None:
        place = column % len(self.columns)
        old, kind = self.columns[place]
        self.columns[place] = (f"n{self.made}", kind)
        self.made += 1
        with self.store.transaction() as tx:
            tx.rename_column(self.called, old, self.columns[place][0])

    @rule(column=picks)
    def widen(self, column: int) -> None:
        place = column % len(self.columns)
        name, kind = self.columns[place]
        if kind + 1 < len(KINDS):
            self.columns[place] = (name, kind + 1)
            with self.store.transaction() as tx:
                tx.widen_column(self.called, name, KINDS[kind + 1])

    @rule()
    def rename_table(self) -> None:
        """What-ifs know their table by its number, and views on what-ifs stay as they are."""
        old, self.called = self.called, f"t{self.made}"
        self.made += 1
        with self.store.transaction() as tx:
            tx.rename_table(old, self.called)

    @rule(name=st.sampled_from("abc"), ours=st.booleans())
    def rebase(self, name: str, ours: bool) -> None:
        relation, level = self.store.what_if(name), self.levels[name]
        found = conflicts(level, self.base, self.now)
        _, stands = chosen(found, "ours" if ours else "theirs")
        assert relation.rebase(resolve="ours" if ours else "theirs") == len({*found.values()})
        if found:
            rebase(level, self.base, self.now, stands)
        assert not len(relation.conflicts())

    @rule(name=st.sampled_from("abc"), choice=st.sampled_from(["ours", "theirs", None]))
    def merge(self, name: str, choice: str | None) -> None:
        relation, level = self.store.what_if(name), self.levels[name]
        if is_busy(self.levels.values(), level, self.now):
            with pytest.raises(InUse):
                relation.merge()
            return
        found = conflicts(level, self.base, self.now)
        seen = relation.conflicts().column("conflict").to_pylist()
        assert sorted(seen) == sorted(one.how for one in {*found.values()})
        if found and choice is None:
            with pytest.raises(ChangesError):
                relation.merge()
            return
        _, stands = chosen(found, choice)
        wanted = merge(level, self.base, self.now, stands)
        if wanted.doubled:
            with pytest.raises(KeysError):
                relation.merge(resolve=choice)
            return
        then = self.now
        relation.merge(resolve=choice)
        if self.now > then:
            level.merges.append(self.now)
            # In the table, a row that takes the key of a deleted one is that tuple with another row.
            gone = {self.base[each][0]: each for each, row in wanted.rows.items() if row is None and each in self.base}
            freed = gone if level.below is None else {}
            below = {**wanted.rows, **{freed.get(row[0], new_name()): row for row in wanted.inserted}}
            if below:
                self.write(level.below, below)

    @rule(pick=picks, name=st.sampled_from("tabc"))
    def changes_since_a_snapshot_are_those_of_the_rows(self, pick: int, name: str) -> None:
        if not self.remembered or (name == "t" and self.called != name):
            return
        snapshot = list(self.remembered)[pick % len(self.remembered)]
        before = {row[0]: row for row in self.remembered[snapshot][name]}
        after = {row[0]: row for row in self.rows(self.levels.get(name)).values()}
        names = ["id", *(column for column, _ in self.columns)]
        changes = self.store.changes(name, since=snapshot).to_arrow()
        kinds = changes.column("_change").to_pylist()
        rows_of_kind = {
            kind: tuples(changes.filter(pa.array([each == kind for each in kinds], pa.bool_())), names)
            for kind in ("insert", "update", "delete")
        }
        assert sorted(row[0] for row in rows_of_kind["delete"]) == sorted(before.keys() - after.keys())
        assert {row[0]: row for row in rows_of_kind["insert"]} == {k: after[k] for k in after.keys() - before.keys()}
        changed = {key: after[key] for key in before.keys() & after.keys() if before[key] != after[key]}
        assert {row[0]: row for row in rows_of_kind["update"]} == changed

    @invariant()
    def everything_is_as_defined(self) -> None:
        if not self.levels:
            return
        self.steps += 1
        low = sorted(row[0] for row in self.rows(self.levels["b"]).values() if row[0] < 4)
        assert sorted(self.store.view("low").to_arrow().column("id").to_pylist()) == low
        names = ["id", *(name for name, _ in self.columns)]
        for relation, level in (self.pick(number) for number in range(len(self.levels) + 1)):
            wanted = sorted(self.rows(level).values(), key=lambda row: row[0])
            assert tuples(relation.to_arrow(), names) == wanted
            if level is self.levels["abc"[self.steps % 3]]:  # one of them after each step: this takes the longest
                before = self.table(sorted(self.rows(level.below).values(), key=lambda row: row[0]))
                changes = relation.changes()
                after = apply(before, ChangeSet(changes.header, changes.to_arrow()))
                assert sorted(tuples(after, names), key=lambda row: row[0]) == wanted


def tuples(table: pa.Table, names: list[str]) -> list[Row]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


Shapes.TestCase.settings = settings(
    max_examples=examples(15),
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
TestShapes = Shapes.TestCase


def table(*several: tuple[int, int]) -> pa.Table:
    ids, values = zip(*several, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int32())})


def test_changes_of_a_what_if_between_two_states_go_by_column_and_not_by_name() -> None:
    with shop() as store:
        held = pa.table({"k": [0, 1, 2], "v": pa.array([0, 1, 2], pa.int32()), "u": [5, 6, 7]})
        t = store.create_table("t", held, key="k")
        cut = t.what_if("cut")
        cut.update(where="k = 1", values={"v": 11})
        store.snapshot("mon")
        with store.transaction() as tx:
            tx.rename_column("t", "v", "x")
            tx.rename_column("t", "u", "v")
            tx.rename_column("t", "x", "u")
            tx.widen_column("t", "u", "int64")
            tx.add_column("t", "c", "int64", default=7)
            tx.rename_column("t", "k", "id")
        assert len(store.changes("cut", since="mon")) == 0
        t.update(where="id = 2", values={"c": 9})
        cut.update(where="id = 0", values={"u": 1 << 40})
        changes = cut.changes_between("mon").to_arrow()
        assert changes.select(["_change", "_changed", "id", "u", "v", "c"]).to_pylist() == [
            {"_change": "update", "_changed": ["u"], "id": 0, "u": 1 << 40, "v": 5, "c": 7},
            {"_change": "update", "_changed": ["c"], "id": 2, "u": 2, "v": 7, "c": 9},
        ]
        assert changes.schema == store.changes("t", since="mon").to_arrow().schema


def test_a_merge_leaves_a_row_that_the_base_got_while_ours_was_deleted_again() -> None:
    with shop() as store:
        store.create_table("t", table((1, 1)), key="id")
        cut = store.table("t").what_if("cut")
        cut.insert(table((5, 5)))
        cut.delete(where="id = 5")
        store.table("t").insert(table((5, 50)))
        assert len(cut.merge().to_arrow()) == 0
        assert rows(store, "t") == [{"id": 1, "v": 1}, {"id": 5, "v": 50}]


def test_an_update_of_a_column_that_came_later_is_a_conflict() -> None:
    with shop() as store:
        store.create_table("t", table((1, 1), (2, 2)), key="id")
        cut = store.table("t").what_if("cut")
        cut.update(values={"v": 10})
        with store.transaction() as tx:
            tx.add_column("t", "x", "int64", default=7)
        assert len(cut.conflicts()) == 0
        store.table("t").update(where="id = 1", values={"x": 99})
        assert cut.conflicts().select(["conflict", "id"]).to_pylist() == [{"conflict": "changed", "id": 1}]
        with pytest.raises(ChangesError):
            cut.merge()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int16(), pa.float32()),
        (pa.int32(), pa.decimal128(12, 2)),
        (pa.decimal128(5, 2), pa.decimal128(12, 4)),
        (pa.decimal128(5, 2), pa.decimal256(50, 4)),
        (pa.float32(), pa.float64()),
        (pa.time32("s"), pa.time32("ms")),
        (pa.null(), pa.int64()),
    ],
    ids=str,
)
def test_widening_changes_no_row(old: pa.DataType, new: pa.DataType) -> None:
    with shop() as store:
        held = pa.table({"id": [1, 2], "v": pa.array([None, None] if old == pa.null() else [1, 2], old), "w": [1, 1]})
        store.create_table("t", held, key="id")
        cut = store.table("t").what_if("cut")
        cut.update(values={"w": 10})
        with store.transaction() as tx:
            tx.widen_column("t", "v", new)
        assert len(cut.conflicts()) == 0
        cut.update(where="id = 1", values={"w": 11})
        cut.merge()
        assert [row["w"] for row in rows(store, "t")] == [11, 10]


def test_both_sides_may_insert_the_same_row() -> None:
    with shop() as store:
        store.create_table("t", table((1, 1)), key="id")
        cut = store.table("t").what_if("cut")
        cut.insert(table((5, 5), (6, 6)))
        store.table("t").insert(table((5, 5), (6, 7)))
        assert cut.conflicts().column("id").to_pylist() == [6]
        cut.merge(resolve="ours")
        assert rows(store, "t") == [{"id": 1, "v": 1}, {"id": 5, "v": 5}, {"id": 6, "v": 6}]


def test_a_what_if_is_merged_once_those_above_it_are() -> None:
    with shop() as store:
        store.create_table("t", table((1, 1), (2, 2)), key="id")
        lower = store.table("t").what_if("lower")
        upper = lower.what_if("upper")
        top = upper.what_if("top")
        lower.update(where="id = 2", values={"v": 20})
        top.insert(table((3, 3)))
        with pytest.raises(InUse, match="top stands on lower"):
            lower.merge()
        top.merge()
        upper.merge()
        lower.merge()
        for relation in (store.table("t"), lower, upper, top):
            assert relation.to_arrow().column("v").to_pylist() == [1, 20, 3]
        top.update(where="id = 3", values={"v": 30})
        assert store.table("t").to_arrow().column("v").to_pylist() == [1, 20, 3]
