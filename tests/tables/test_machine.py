"""A Hypothesis state machine against one dictionary per version: every verb, tables that come and go, snapshots
(named, temporary, partial, kept, demoted), branches (named, temporary, kept), drops, reopening.

Pages are tiny, so that overlays, folding, cutting and joining happen all the time. The store's own check runs at the
end of every history, and row numbers are watched: unique, never used again, and the same for a key that stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from tests.examples import examples
from tests.pages.toy import live_entries
from tests.tables.verbs import SCHEMA, VERBS, Model, Row, ids, move, new_rows

from strandline.changes import Changes, ChangeSet
from strandline.changes.apply import apply
from strandline.errors import InputError, InUse, StrandlineError
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.store import Snapshot, Store, create_on, open_on
from strandline.tables import Limits, TableTransaction, page_cache, page_update, page_writer, row_locks

TINY = Limits(page_rows=8, cut_rows=6, join_rows=3, most_in_overlay=3, fewest_for_overlay=4)


class Machine(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")
    temporaries = Bundle("temporaries")
    branches = Bundle("branches")

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.store = create_on(self.storage, limits=TINY)
        self.versions: dict[str, Store] = {"main": self.store}
        self.models: dict[str, Model] = {"main": Model()}
        self.frozen: dict[str, tuple[str, Model]] = {}
        self.partial: dict[str, str] = {}
        self.held: dict[int, tuple[str, Snapshot, Model]] = {}
        self.numbers: dict[str, dict[int, int]] = {"main": {}}
        self.used: dict[str, set[int]] = {"main": set()}
        self.count = 0

    @initialize(rows=new_rows, target=branches)
    def begin(self, rows: dict[int, Row]) -> str:
        with self.store.transaction() as tx:
            tx.create_table("t", self.models["main"].table(rows), key="id")
            tx.create_table("h", SCHEMA)
        self.models["main"].keyed = dict(rows)
        return "main"

    @rule(version=branches, data=st.data())
    def transact(self, version: str, data: st.DataObject) -> None:
        """One transaction of a few verbs, committed or aborted; in between it must see its own writes."""
        if version not in self.versions:
            return
        model = self.models[version].copy()
        tx = self.versions[version].transaction()
        moved = False
        for _ in range(data.draw(st.integers(1, 3))):
            moved |= self._verb(tx, model, data)
            assert _rows(tx.to_arrow("t")) == self._expected(model)
            assert _rows(tx.to_arrow("h")) == model.heap
        if data.draw(st.booleans()) or data.draw(st.booleans()):
            tx.commit()
            self.models[version] = model
        else:
            tx.abort()
        self._watch_numbers(version, moved=moved)

    def _verb(self, tx: TableTransaction, model: Model, data: st.DataObject) -> bool:
        """One verb; whether it changes keys."""
        verb = data.draw(st.sampled_from(VERBS))
        verb(tx, model, data.draw)
        return verb is move

    def _expected(self, model: Model) -> list[Row]:
        return [(key, *row) for key, row in sorted(model.keyed.items())]

    def _watch_numbers(self, version: str, *, moved: bool) -> None:
        now = _numbers(self.versions[version])
        assert len(set(now.values())) == len(now), "row numbers are unique"
        came = set(now.values()) - set(self.numbers[version].values())
        assert not came & self.used[version], ("row numbers are never used again", now, self.numbers[version], came)
        before = self.numbers[version]
        if not moved:
            stayed = before.keys() & now.keys()
            assert {k: before[k] for k in stayed} == {k: now[k] for k in stayed}, "a row keeps its number"
        self.used[version] |= set(now.values())
        self.numbers[version] = now

    @rule(version=branches, kind=st.sampled_from(["rename", "add", "widen"]))
    def reshape(self, version: str, kind: str) -> None:
        if version not in self.versions:
            return
        model = self.models[version]
        self.count += 1
        with self.versions[version].transaction() as tx:
            if kind == "rename":
                old, new = model.columns[0], f"v{self.count}"
                tx.rename_column("t", old, new)
                model.columns = (new, *model.columns[1:])
            elif kind == "widen" and model.narrow:
                name = min(model.narrow)
                tx.widen_column("t", name, pa.int64())
                model.narrow -= {name}
            elif len(model.columns) < 6:
                name = f"c{self.count}" if "v" in model.columns else "v"  # a name that another column had
                tx.add_column("t", name, pa.int32(), default=5)
                model.columns, model.narrow = (*model.columns, name), model.narrow | {name}
                model.keyed = {key: (*row, 5) for key, row in model.keyed.items()}

    @rule(version=branches, rows=st.dictionaries(ids, st.integers(0, 9), max_size=9))
    def make_or_drop_a_table(self, version: str, rows: dict[int, int]) -> None:
        if version not in self.versions:
            return
        model = self.models[version]
        if model.extra is None:
            table = pa.table({"id": pa.array(rows, pa.int64()), "n": pa.array(rows.values(), pa.int64())})
            self.versions[version].create_table("x", table, key="id")
            model.extra = rows
        else:
            self.versions[version].drop_table("x")
            model.extra = None

    def _next_name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    @rule(version=branches, tables=st.sampled_from([None, ["t"], ["h"]]), target=snapshots)
    def snapshot(self, version: str, tables: list[str] | None) -> Any:
        if version not in self.versions:
            return multiple()
        name = self._next_name("s")
        self.versions[version].snapshot(name, tables=tables)
        self.frozen[name] = (version, self.models[version].copy())
        if tables is not None:
            self.partial[name] = tables[0]
        return name

    @rule(version=branches, target=temporaries)
    def take(self, version: str) -> Any:
        if version not in self.versions:
            return multiple()
        self.count += 1
        self.held[self.count] = (version, self.versions[version].snapshot(), self.models[version].copy())
        return self.count

    @rule(key=temporaries, target=snapshots)
    def keep(self, key: int) -> Any:
        """A temporary snapshot becomes permanent."""
        if key not in self.held:
            return multiple()
        version, snapshot, model = self.held.pop(key)
        name = self._next_name("s")
        snapshot.keep(name)
        snapshot.close()
        self.frozen[name] = (version, model)
        return name

    @rule(name=snapshots, target=temporaries)
    def demote(self, name: str) -> Any:
        """A permanent snapshot becomes temporary."""
        if name not in self.frozen or name in self.partial:
            return multiple()
        version, model = self.frozen[name]
        try:
            snapshot = self.versions[version].demote_snapshot(name)
        except InUse:
            return multiple()  # a branch stands on it
        del self.frozen[name]
        self.count += 1
        self.held[self.count] = (version, snapshot, model)
        return self.count

    @rule(key=temporaries)
    def close(self, key: int) -> None:
        if key in self.held:
            self.held.pop(key)[1].close()

    @rule(name=snapshots)
    def read_snapshot(self, name: str) -> None:
        if name not in self.frozen:
            return
        version, model = self.frozen[name]
        store = self.versions[version]
        for table, expected in (("t", self._expected(model)), ("h", model.heap)):
            if self.partial.get(name, table) == table:
                assert _rows(store.table(table).to_arrow(at=name)) == expected
            else:
                with pytest.raises(StrandlineError):
                    store.table(table).to_arrow(at=name)

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

    def _new_version(self, name: str, parent: str | None, store: Store, model: Model) -> str:
        """`parent` is the version whose numbers it goes on with; a branch of a snapshot begins at the snapshot's."""
        self.versions[name], self.models[name] = store, model
        self.numbers[name] = _numbers(store)
        self.used[name] = {*self.numbers[name].values(), *(self.used[parent] if parent is not None else ())}
        return name

    @rule(version=branches, target=branches)
    def branch(self, version: str) -> Any:
        if version not in self.versions or len(self.versions) > 3:
            return multiple()
        name = self._next_name("b")
        self._new_version(name, version, self.versions[version].branch(name), self.models[version].copy())
        return name

    @rule(snapshot=snapshots, target=branches)
    def branch_of_a_snapshot(self, snapshot: str) -> Any:
        if snapshot not in self.frozen or len(self.versions) > 3:
            return multiple()
        version, model = self.frozen[snapshot]
        name = self._next_name("b")
        if snapshot in self.partial:
            with pytest.raises(InputError, match="partial"):
                self.versions[version].branch(name, at=snapshot)
            return multiple()
        return self._new_version(name, None, self.versions[version].branch(name, at=snapshot), model.copy())

    @rule(version=branches, data=st.data(), kept=st.booleans(), target=branches)
    def try_out(self, version: str, data: st.DataObject, kept: bool) -> Any:
        """A temporary branch: changed, then forgotten or kept."""
        if version not in self.versions:
            return multiple()
        model, before = self.models[version].copy(), set(self.storage.objects)
        trial = self.versions[version].branch()
        for _ in range(data.draw(st.integers(1, 2))):
            with trial.transaction() as tx:
                self._verb(tx, model, data)
            assert _rows(trial.table("t").to_arrow()) == self._expected(model)
            assert _rows(trial.table("h").to_arrow()) == model.heap
        assert set(self.storage.objects) == before, "nothing was written"
        if kept and len(self.versions) <= 3:
            name = self._next_name("b")
            return self._new_version(name, version, trial.keep(name), model)
        trial.close()
        return multiple()

    @rule(version=branches)
    def drop_branch(self, version: str) -> None:
        if version not in self.versions or any(one == version for one, _, _ in self.held.values()):
            return
        try:
            self.store.drop_branch(version)
        except InUse:
            named = any(one == version for one, _ in self.frozen.values())
            assert version == "main" or named or self.versions[version].pages.pointer().forks
            return
        del self.versions[version], self.models[version]

    def _same_shape(self, name: str) -> bool:
        if name not in self.frozen or self.partial.get(name, "t") != "t":
            return False
        version, model = self.frozen[name]
        now = self.models[version]
        return (model.columns, model.narrow) == (now.columns, now.narrow)

    @rule(name=snapshots)
    def changes_since(self, name: str) -> None:
        """What changed since a snapshot, applied to it, gives the present."""
        if name not in self.frozen:
            return
        version, _ = self.frozen[name]
        store = self.versions[version]
        if self._same_shape(name):
            changes = _in_memory(store.changes("t", since=name))
            applied = apply(store.table("t").to_arrow(at=name), changes)
            assert sorted(_rows(applied), key=_key) == self._expected(self.models[version])
        if self.partial.get(name, "h") == "h":
            counted = _in_memory(store.changes("h", since=name))
            applied = apply(store.table("h").to_arrow(at=name), counted)
            assert Counter(_rows(applied)) == Counter(self.models[version].heap)

    @rule(name=snapshots, back=st.booleans())
    def changes_over_shapes(self, name: str, back: bool) -> None:
        """Columns keep their places in the model, whatever their names and types: those of both states are compared."""
        if self.partial.get(name, "t") != "t" or name not in self.frozen:
            return
        version, then = self.frozen[name]
        states = [(then, name), (self.models[version], None)]
        (old, since), (new, until) = states[::-1] if back else states
        found = self.versions[version].changes("t", since=since, until=until)
        width = len(new.columns)
        before = {key: (*row, *[5] * (width - len(row)))[:width] for key, row in old.keyed.items()}
        expected = {
            key: (before.get(key), new.keyed.get(key))
            for key in before.keys() | new.keyed.keys()
            if before.get(key) != new.keyed.get(key)
        }
        assert found.header.columns == ("id", *new.columns)
        assert {row["id"]: _images(row, new.columns) for row in found.to_arrow().to_pylist()} == expected

    @rule(name=snapshots)
    def go_back(self, name: str) -> None:
        """What changed since a snapshot, taken back, gives the snapshot's rows."""
        if self._same_shape(name):
            version, model = self.frozen[name]
            store = self.versions[version]
            store.table("t").apply(store.changes("t", since=name).invert())
            self.models[version].keyed = dict(model.keyed)
            self._watch_numbers(version, moved=False)

    @rule()
    def reopen(self) -> None:
        for _, snapshot, _ in self.held.values():
            snapshot.close()
        self.held.clear()
        self.store.close()
        self.store = open_on(self.storage, limits=TINY)
        self.versions = {name: self.store.version(name) for name in self.versions}

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for name, store in self.versions.items():
            if store.tables():
                assert _rows(store.table("t").to_arrow()) == self._expected(self.models[name])
                assert _rows(store.table("h").to_arrow()) == self.models[name].heap
                assert store.table("t").count() == len(self.models[name].keyed)
                extra = self.models[name].extra
                assert store.tables() == (["h", "t"] if extra is None else ["h", "t", "x"])
                if extra is not None:
                    assert dict(_rows(store.table("x").to_arrow())) == extra
                self._pages_are_sound(store)
        for version, snapshot, model in self.held.values():
            assert _rows(self.versions[version].table("t").to_arrow(at=snapshot)) == self._expected(model)

    def _pages_are_sound(self, store: Store) -> None:
        view = store.pages.view()
        for table in ("t", "h"):
            found = view.find_domain(table)
            assert found is not None
            pages = list(view.pages_between(found.domain))
            assert pages[0][0] == b""
            assert len(pages) == len(live_entries(view, found.domain))
            ends = [*(separator for separator, _ in pages[1:]), None]
            for (separator, entry), end in zip(pages, ends, strict=True):
                if entry.rows:
                    assert entry.least is not None
                    assert entry.greatest is not None
                    assert separator <= entry.least <= entry.greatest
                    assert end is None or entry.greatest < end

    def teardown(self) -> None:
        for _, snapshot, _ in self.held.values():
            snapshot.close()
        self.store.close()
        report = check_store(self.storage)
        assert report.ok, (report.findings, report.unreachable)


def _numbers(store: Store) -> dict[int, int]:
    """The row numbers of the keyed table, by key."""
    found = store.table("t").to_arrow(columns=["_row", "id"])
    return dict(zip(found["id"].to_pylist(), found["_row"].to_pylist(), strict=True))


def _images(row: dict[str, Any], columns: Sequence[str]) -> tuple[Row | None, Row | None]:
    """What a row of a change set says that was, and is."""
    was = None if row["_before"] is None else tuple(row["_before"][name] for name in columns)
    return was, None if row["_change"] == "delete" else tuple(row[name] for name in columns)


def _rows(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def _in_memory(changes: Changes) -> ChangeSet:
    return ChangeSet(changes.header, changes.to_arrow())


def _key(row: Row) -> Any:
    return row[0]


MACHINE = settings(
    max_examples=examples(25),
    stateful_step_count=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a history is readable as it is, and shrinking takes minutes
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def _small_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 10)
    monkeypatch.setattr(
        page_writer, "BULK", Limits(page_rows=14, cut_rows=10, most_in_overlay=4, fewest_for_overlay=4, by_bytes=True)
    )
    monkeypatch.setattr(row_locks, "MANY_ROWS", 6)
    monkeypatch.setattr(page_cache, "KEPT_ROWS", 2)
    monkeypatch.setattr(page_update, "MANY", 2)
    monkeypatch.setattr(row_locks, "PAGE_LOCKS_FROM", 3)


class RowByRow(Machine):
    """Changes installed by the commit batch."""


TestRowByRow = RowByRow.TestCase
TestRowByRow.settings = MACHINE


@pytest.mark.usefixtures("_small_bulk")
def test_the_same_holds_when_transactions_change_whole_pages() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Machine, settings=MACHINE)
