"""A Hypothesis state machine: every verb, snapshots, branches, reopening, against one dictionary per version.

Pages are tiny, so that overlays, folding, cutting and joining happen all the time. The store's own check runs at the
end of every history, and row numbers are watched: unique, never used again, and the same for a key that stays.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from strandline.changes import Changes, ChangeSet
from strandline.changes.apply import apply
from strandline.errors import InUse, KeysError
from strandline.pages import check
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on, open_on
from strandline.tables import Limits, TableTransaction, rewriting, selecting

TINY = Limits(page_rows=8, cut_rows=6, join_rows=3, most_in_overlay=3, fewest_for_overlay=4)
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64()), pa.field("s", pa.string())])

Row = tuple[Any, ...]
"""Value columns of a row."""


@dataclass
class Model:
    """What a version holds: rows by key, and rows of the table without a key in order."""

    keyed: dict[int, Row] = field(default_factory=dict)
    heap: list[Row] = field(default_factory=list)
    columns: tuple[str, ...] = ("v", "s")

    def copy(self) -> Model:
        return Model(dict(self.keyed), list(self.heap), self.columns)


ids = st.integers(0, 40)
values = st.integers(-3, 3) | st.none()
texts = st.sampled_from(["", "a", "b", "\0x", "ä"]) | st.none()
new_rows = st.dictionaries(ids, st.tuples(values, texts), max_size=12)


class Machine(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")
    branches = Bundle("branches")

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.store = create_on(self.storage, limits=TINY)
        self.versions: dict[str, Store] = {"main": self.store}
        self.models: dict[str, Model] = {"main": Model()}
        self.frozen: dict[str, tuple[str, Model]] = {}
        self.numbers: dict[str, dict[int, int]] = {"main": {}}
        self.used: dict[str, set[int]] = {"main": set()}
        self.count = 0

    @initialize(rows=new_rows, target=branches)
    def begin(self, rows: dict[int, Row]) -> str:
        with self.store.transaction() as tx:
            tx.create_table("t", self._table(rows, "main"), key="id")
            tx.create_table("h", SCHEMA)
        self.models["main"].keyed = dict(rows)
        return "main"

    def _table(self, rows: dict[int, Row], version: str) -> pa.Table:
        names = self.models[version].columns
        columns: dict[str, Any] = {"id": pa.array(list(rows), pa.int64())}
        for place, name in enumerate(names):
            kind = pa.string() if place == 1 else pa.int64()
            padded = [(*row, *[7] * 9)[place] for row in rows.values()]
            columns[name] = pa.array(padded, kind)
        return pa.table(columns)

    def _pad(self, row: Row, version: str) -> Row:
        return (*row, *[7] * 9)[: len(self.models[version].columns)]

    @rule(version=branches, data=st.data())
    def transact(self, version: str, data: st.DataObject) -> None:
        """One transaction of a few verbs, committed or aborted; in between it must see its own writes."""
        model = self.models[version].copy()
        tx = self.versions[version].transaction()
        moved = False
        for _ in range(data.draw(st.integers(1, 3))):
            moved |= self._verb(tx, model, version, data) == "move"
            assert _rows(tx.to_arrow("t")) == self._expected(model)
            assert _heap(tx.to_arrow("h")) == model.heap
        if data.draw(st.booleans()) or data.draw(st.booleans()):
            tx.commit()
            self.models[version] = model
        else:
            tx.abort()
        self._watch_numbers(version, moved=moved)

    def _verb(self, tx: TableTransaction, model: Model, version: str, data: st.DataObject) -> str:
        verb = data.draw(
            st.sampled_from(
                ["insert", "upsert", "update", "point", "move", "delete", "range", "heap", "drop", "overwrite"]
            )
        )
        v, s = model.columns[:2]
        if verb == "insert":
            rows = data.draw(new_rows)
            taken = rows.keys() & model.keyed.keys()
            if taken:
                with pytest.raises(KeysError):
                    tx.insert("t", self._table(rows, version))
                rows = {key: row for key, row in rows.items() if key not in taken}
            tx.insert("t", self._table(rows, version))
            model.keyed |= {key: self._pad(row, version) for key, row in rows.items()}
        elif verb == "upsert":
            rows = data.draw(new_rows)
            tx.upsert("t", self._table(rows, version))
            model.keyed |= {key: self._pad(row, version) for key, row in rows.items()}
        elif verb == "update":
            bound = data.draw(st.integers(-3, 3))
            tx.update("t", where=f'"{v}" >= :b', set={v: f'"{v}" - 1'}, params={"b": bound})
            model.keyed = {
                key: (row[0] - 1, *row[1:]) if row[0] is not None and row[0] >= bound else row
                for key, row in model.keyed.items()
            }
        elif verb == "point":
            key, value = data.draw(ids), data.draw(values)
            count = tx.update("t", where="id = :k", values={v: value}, params={"k": key})
            assert count == (key in model.keyed)
            if key in model.keyed:
                model.keyed[key] = (value, *model.keyed[key][1:])
        elif verb == "move":
            low, shift = data.draw(ids), data.draw(st.integers(-3, 50))
            moved = {key + shift: row for key, row in model.keyed.items() if key >= low}
            stays = {key: row for key, row in model.keyed.items() if key < low}
            if moved.keys() & stays.keys():
                with pytest.raises(KeysError):
                    tx.update("t", where=f"id >= {low}", set={"id": f"id + {shift}"})
            else:
                tx.update("t", where=f"id >= {low}", set={"id": f"id + {shift}"})
                model.keyed = stays | moved
        elif verb == "delete":
            text = data.draw(texts)
            where, params = (f'"{s}" IS NULL', {}) if text is None else (f'"{s}" = :t', {"t": text})
            tx.delete("t", where=where, params=params)
            model.keyed = {key: row for key, row in model.keyed.items() if row[1] != text}
        elif verb == "overwrite":
            rows = data.draw(new_rows)
            tx.overwrite("t", self._table(rows, version))
            model.keyed = {key: self._pad(row, version) for key, row in rows.items()}
            again = [row for row in model.heap if row[0] % 2]
            tx.overwrite("h", pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in again], SCHEMA))
            model.heap = again
        elif verb == "range":
            low, high = data.draw(ids), data.draw(ids)
            tx.delete("t", where="id between :a and :b", params={"a": low, "b": high})
            model.keyed = {key: row for key, row in model.keyed.items() if not low <= key <= high}
        elif verb == "heap":
            rows = data.draw(new_rows)
            tx.insert(
                "h",
                pa.table(
                    {"id": list(rows), "v": [r[0] for r in rows.values()], "s": [r[1] for r in rows.values()]},
                    schema=SCHEMA,
                ),
            )
            model.heap += [(key, *row) for key, row in rows.items()]
            bound = data.draw(ids)
            tx.update("h", where=f"id < {bound}", values={"v": 9})
            model.heap = [(row[0], 9, row[2]) if row[0] < bound else row for row in model.heap]
        else:
            bound = data.draw(ids)
            tx.delete("h", where=f"id > {bound}")
            model.heap = [row for row in model.heap if row[0] <= bound]
        return str(verb)

    def _expected(self, model: Model) -> list[Row]:
        return [(key, *row) for key, row in sorted(model.keyed.items())]

    def _watch_numbers(self, version: str, *, moved: bool) -> None:
        found = self.versions[version].table("t").to_arrow(columns=["_row", "id"])
        now = dict(zip(found["id"].to_pylist(), found["_row"].to_pylist(), strict=True))
        assert len(set(now.values())) == len(now), "row numbers are unique"
        came = set(now.values()) - set(self.numbers[version].values())
        assert not came & self.used[version], ("row numbers are never used again", now, self.numbers[version], came)
        before = self.numbers[version]
        if not moved:
            stayed = before.keys() & now.keys()
            assert {k: before[k] for k in stayed} == {k: now[k] for k in stayed}, "a row keeps its number"
        self.used[version] |= set(now.values())
        self.numbers[version] = now

    @rule(version=branches, kind=st.sampled_from(["rename", "add"]))
    def reshape(self, version: str, kind: str) -> None:
        model = self.models[version]
        self.count += 1
        with self.versions[version].transaction() as tx:
            if kind == "rename":
                old, new = model.columns[0], f"v{self.count}"
                tx.rename_column("t", old, new)
                model.columns = (new, *model.columns[1:])
            elif len(model.columns) < 6:
                tx.add_column("t", f"c{self.count}", pa.int64(), default=5)
                model.columns = (*model.columns, f"c{self.count}")
                model.keyed = {key: (*row, 5) for key, row in model.keyed.items()}

    @rule(version=branches, target=snapshots)
    def snapshot(self, version: str) -> str:
        self.count += 1
        name = f"s{self.count}"
        self.versions[version].snapshot(name)
        self.frozen[name] = (version, self.models[version].copy())
        return name

    @rule(name=snapshots)
    def read_snapshot(self, name: str) -> None:
        if name in self.frozen:
            version, model = self.frozen[name]
            store = self.versions[version]
            assert _rows(store.table("t").to_arrow(at=name)) == self._expected(model)
            assert _heap(store.table("h").to_arrow(at=name)) == model.heap

    @rule(name=snapshots)
    def drop_snapshot(self, name: str) -> None:
        if name not in self.frozen:
            return
        version, _ = self.frozen[name]
        try:
            self.versions[version].drop_snapshot(name)
        except InUse:
            return  # a branch stands on it; the name stays
        del self.frozen[name]

    @rule(version=branches, target=branches)
    def branch(self, version: str) -> Any:
        if len(self.versions) > 3:
            return multiple()
        self.count += 1
        name = f"b{self.count}"
        self.versions[name] = self.versions[version].branch(name)
        self.models[name] = self.models[version].copy()
        self.numbers[name] = dict(self.numbers[version])
        self.used[name] = set(self.used[version])
        return name

    @rule(name=snapshots)
    def changes_since(self, name: str) -> None:
        """What changed since a snapshot, applied to it, gives the present."""
        if name not in self.frozen:
            return
        version, model = self.frozen[name]
        store = self.versions[version]
        if model.columns == self.models[version].columns:
            changes = _in_memory(store.changes("t", since=name))
            applied = apply(store.table("t").to_arrow(at=name), changes)
            assert sorted(_rows(applied), key=_key) == self._expected(self.models[version])
        counted = _in_memory(store.changes("h", since=name))
        applied = apply(store.table("h").to_arrow(at=name), counted)
        assert Counter(_heap(applied)) == Counter(self.models[version].heap)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_on(self.storage, limits=TINY)
        self.versions = {name: self.store.version(name) for name in self.versions}

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for name, store in self.versions.items():
            if store.tables():
                assert _rows(store.table("t").to_arrow()) == self._expected(self.models[name])
                assert _heap(store.table("h").to_arrow()) == self.models[name].heap
                assert store.table("t").count() == len(self.models[name].keyed)
                self._pages_are_sound(store)

    def _pages_are_sound(self, store: Store) -> None:
        view = store.pages.view()
        for table in ("t", "h"):
            found = view.find_domain(table)
            assert found is not None
            pages = list(view.pages_between(found.domain))
            assert pages[0][0] == b""
            assert len(pages) == len(list(view.entries(found.domain)))
            ends = [*(separator for separator, _ in pages[1:]), None]
            for (separator, entry), end in zip(pages, ends, strict=True):
                if entry.rows:
                    assert entry.least is not None
                    assert entry.greatest is not None
                    assert separator <= entry.least <= entry.greatest
                    assert end is None or entry.greatest < end

    def teardown(self) -> None:
        self.store.close()
        report = check(self.storage)
        assert report.ok, (report.findings, report.unreachable)


def _rows(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def _heap(table: pa.Table) -> list[Row]:
    return _rows(table)


def _in_memory(changes: Changes) -> ChangeSet:
    return ChangeSet(changes.header, changes.to_arrow())


def _key(row: Row) -> Any:
    return row[0]


MACHINE = settings(
    max_examples=int(os.environ.get("STRANDLINE_EXAMPLES", "25")),
    stateful_step_count=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a history is readable as it is, and shrinking takes minutes
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def _small_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "BULK_ROWS", 10)
    monkeypatch.setattr(rewriting, "BULK", Limits(page_rows=14, cut_rows=10, most_in_overlay=4, fewest_for_overlay=4))
    monkeypatch.setattr(selecting, "MANY_ROWS", 6)
    monkeypatch.setattr(selecting, "MANY_KEYS", 3)


class RowByRow(Machine):
    """Changes installed by the commit batch."""


TestRowByRow = RowByRow.TestCase
TestRowByRow.settings = MACHINE


@pytest.mark.usefixtures("_small_bulk")
def test_the_same_holds_when_transactions_change_whole_pages() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Machine, settings=MACHINE)
