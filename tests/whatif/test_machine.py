"""A Hypothesis state machine: trees of what-ifs up to four levels over a live base, against section 2.4's definition.

Pages are tiny, so that differential relations have many, and indexes of their ids. After every step each what-if reads
as the model has it; work items give the same, and a read restricted by key is the full read, filtered. What changed
since a state that was kept leads from there to now.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.whatif.model import (
    Conflicts,
    Level,
    Relation,
    Row,
    Told,
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
from strandline.errors import ChangesError, InputError, InUse, KeysError
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.store import Snapshot, Store, create_on
from strandline.tables import Limits
from strandline.tables.keys import encode_key
from strandline.tables.predicates import ALL, KeyBounds
from strandline.whatif import conflicts as comparing
from strandline.whatif import merge as merging
from strandline.whatif import relation_of
from strandline.whatif.scan import PageSpan

TINY = Limits(page_rows=4, cut_rows=3, join_rows=2, most_in_overlay=1, fewest_for_overlay=3)
DEEPEST = 4
MOST = 4

ids = st.integers(0, 30)
values = st.integers(-3, 3) | st.none()
new_rows = st.dictionaries(ids, values, min_size=1, max_size=6)
picks = st.integers(0, 100)
deeds = st.sampled_from(["nothing", "update", "delete", "insert again", "swap"])
choices = st.sampled_from(["ours", "theirs", None]) | st.lists(st.booleans(), min_size=1, max_size=4)
"""How conflicts are resolved: all alike, or each by its turn."""


class Machine(RuleBasedStateMachine):
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.store = create_on(self.storage, limits=TINY)
        self.base: Relation = {}
        self.levels: dict[str, Level] = {}
        self.dates: list[int] = []
        self.made = 0
        self.held: Snapshot | None = None
        self.then: dict[str, Relation] = {}
        self.thresholds = pytest.MonkeyPatch()

    def teardown(self) -> None:
        self.thresholds.undo()
        if self.held is not None:
            self.held.close()
        self.store.close()
        report = check_store(self.storage)
        assert report.ok, (report.findings, report.unreachable)

    @initialize(rows=st.dictionaries(ids, values, min_size=3, max_size=25), many=st.sampled_from([None, 0, 2]))
    def begin(self, rows: dict[int, int | None], many: int | None) -> None:
        if many is not None:  # what counts as many tuples, so that comparing and merging take both ways
            self.thresholds.setattr(comparing, "MOST_POINTS", many)
            self.thresholds.setattr(merging, "NOTED_KEYS", many)
        self.store.create_table("t", _table(rows), key="id")
        self.base = {new_name(): (key, rows[key]) for key in sorted(rows)}
        self.store.table("t").what_if("w0")
        self.levels["w0"] = Level(None)
        self.made = 1

    # Which relation a rule is about: 0 is the table.

    def pick(self, number: int) -> tuple[Any, Level | None]:
        names = list(self.levels)
        place = number % (len(names) + 1)
        if not place:
            return self.store.table("t"), None
        return self.store.what_if(names[place - 1]), self.levels[names[place - 1]]

    @property
    def now(self) -> int:
        return int(self.store.pages.view().commit)

    def write(self, level: Level | None, rows: dict[int, Row | None]) -> None:
        """The model after a commit."""
        if level is not None:
            do(level, self.base, self.now, rows)
            self.dates.append(self.now)
            return
        for name, row in rows.items():
            if row is None:
                del self.base[name]
            else:
                self.base[name] = row

    def rows(self, level: Level | None) -> Relation:
        return contents(level, self.base, self.now)

    @precondition(lambda self: len(self.levels) < MOST)
    @rule(pick=picks)
    def create(self, pick: int) -> None:
        relation, level = self.pick(pick)
        if _depth(level) >= DEEPEST:
            return
        name = f"w{self.made}"
        self.made += 1
        relation.what_if(name)
        self.levels[name] = Level(level)

    @rule(pick=picks, rows=new_rows)
    def insert(self, pick: int, rows: dict[int, int | None]) -> None:
        relation, level = self.pick(pick)
        if {*rows} & {row[0] for row in self.rows(level).values()}:
            with pytest.raises(KeysError):
                relation.insert(_table(rows))
            return
        relation.insert(_table(rows))
        self.write(level, {new_name(): (key, value) for key, value in rows.items()})

    @rule(pick=picks, rows=new_rows)
    def upsert(self, pick: int, rows: dict[int, int | None]) -> None:
        relation, level = self.pick(pick)
        standing = {row[0]: name for name, row in self.rows(level).items()}
        relation.upsert(_table(rows))
        self.write(level, {standing.get(key, new_name()): (key, value) for key, value in rows.items()})

    @rule(pick=picks, low=ids, width=st.integers(0, 8), value=values)
    def update(self, pick: int, low: int, width: int, value: int | None) -> None:
        relation, level = self.pick(pick)
        rows = {n: (r[0], value) for n, r in self.rows(level).items() if low <= r[0] <= low + width}
        count = relation.update(
            where="id between :low and :high", values={"v": value}, params={"low": low, "high": low + width}
        )
        assert count == len(rows)
        if rows:
            self.write(level, {**rows})

    @rule(pick=picks, low=ids, width=st.integers(0, 6), shift=st.integers(-7, 7))
    def move(self, pick: int, low: int, width: int, shift: int) -> None:
        relation, level = self.pick(pick)
        before = self.rows(level)
        rows = {n: (r[0] + shift, r[1]) for n, r in before.items() if low <= r[0] <= low + width}
        stay = {r[0] for n, r in before.items() if n not in rows}

        def verb() -> int:
            found: int = relation.update(where=f"id >= {low} and id <= {low + width}", set={"id": f"id + ({shift})"})
            return found

        if stay & {row[0] for row in rows.values()}:
            with pytest.raises(KeysError):
                verb()
            return
        assert verb() == len(rows)
        if rows:
            self.write(level, {**rows})

    @rule(pick=picks, low=ids, apart=st.integers(1, 9))
    def swap(self, pick: int, low: int, apart: int) -> None:
        """Two keys are exchanged, or one becomes the other."""
        relation, level = self.pick(pick)
        both = (low, low + apart)
        rows = {n: (sum(both) - r[0], r[1]) for n, r in self.rows(level).items() if r[0] in both}
        assert relation.update(where=f"id in {both}", set={"id": f"{sum(both)} - id"}) == len(rows)
        if rows:
            self.write(level, {**rows})

    @rule(pick=picks, low=ids, apart=st.integers(1, 4), ours=st.tuples(deeds, deeds), theirs=st.tuples(deeds, deeds))
    def change_on_both_sides(
        self, pick: int, low: int, apart: int, ours: tuple[str, str], theirs: tuple[str, str]
    ) -> None:
        """Something is done to two keys of a what-if, then of the relation below it."""
        relation, level = self.pick(pick)
        if level is None:
            return
        below = next(n for n, one in enumerate([None, *self.levels.values()]) if one is level.below)
        for side, deeds_there in ((pick, ours), (below, theirs)):
            for key, deed in zip((low, low + apart), deeds_there, strict=True):
                if deed in ("delete", "insert again"):
                    self.delete(side, key, 0)
                if deed == "insert again":
                    self.insert(side, {key: 9})
                if deed == "update":
                    self.update(side, key, 0, 8)
                if deed == "swap":
                    self.swap(side, low, apart)
        self.conflicts(relation, level)

    @rule(pick=picks, low=ids, width=st.integers(0, 5))
    def delete(self, pick: int, low: int, width: int) -> None:
        relation, level = self.pick(pick)
        rows: dict[int, Row | None] = {n: None for n, r in self.rows(level).items() if low <= r[0] <= low + width}
        assert relation.delete(where=f"id >= {low} and id <= {low + width}") == len(rows)
        if rows:
            self.write(level, rows)

    @rule(pick=picks, date=picks)
    def read_as_of(self, pick: int, date: int) -> None:
        relation, level = self.pick(pick)
        if level is None or not self.dates:
            return
        when = self.dates[date % len(self.dates)]
        if when < _purged(level):
            with pytest.raises(InputError, match="purged"):
                relation.to_arrow(as_of=when)
            return
        assert _read(relation, as_of=when) == _sorted(contents(level, self.base, when))
        low = date % 30
        part = [row for row in _sorted(contents(level, self.base, when)) if low <= row[0] <= low + 4]
        assert _read(relation, as_of=when, where=f"id between {low} and {low + 4}") == part

    @rule(pick=picks, date=picks)
    def purge(self, pick: int, date: int) -> None:
        relation, level = self.pick(pick)
        if level is None or not self.dates:
            return
        when = self.dates[date % len(self.dates)]
        relation.purge(before=when)
        level.purged = max(level.purged, when)

    def conflicts(self, relation: Any, level: Level) -> Conflicts:
        """The conflicts as the model has them, which are those that users see."""
        found = conflicts(level, self.base, self.now)
        sides = zip(relation.conflict_keys(), relation.conflicts().to_pylist(), strict=True)
        told = [Told(name, one["conflict"], _row(one["ours"]), _row(one["theirs"])) for name, one in sides]
        assert len(told) == len({one.name for one in told})
        assert {*told} == {*found.values()}
        return found

    @rule(pick=picks, choice=choices)
    def merge(self, pick: int, choice: str | list[bool] | None) -> None:
        relation, level = self.pick(pick)
        if level is None:
            return
        if is_busy(self.levels.values(), level, self.now):
            with pytest.raises(InUse):
                relation.merge()
            return
        found = self.conflicts(relation, level)
        if found and choice is None:
            with pytest.raises(ChangesError):
                relation.merge()
            return
        resolve, stands = chosen(found, choice)
        wanted = merge(level, self.base, self.now, stands)
        if wanted.doubled:
            with pytest.raises(KeysError):
                relation.merge(resolve=resolve)
            return
        before, then = self.rows(level.below), self.now
        changes = relation.merge(resolve=resolve)
        if self.now > then:
            level.merges.append(self.now)
            self.dates.append(self.now)
            self.put_below(level, wanted.rows, wanted.inserted)
        assert _applied(changes, before) == _sorted(self.rows(level.below))

    @rule(pick=picks, choice=choices)
    def rebase(self, pick: int, choice: str | list[bool] | None) -> None:
        """Afterwards there is no conflict, and with the same choice a merge would have done the same."""
        relation, level = self.pick(pick)
        if level is None:
            return
        found = self.conflicts(relation, level)
        resolve, stands = chosen(found, choice)
        if found and choice is None:
            with pytest.raises(ChangesError):
                relation.rebase(resolve=None)
            return
        if merge(level, self.base, self.now, stands).doubled:
            with pytest.raises(KeysError):
                relation.rebase(resolve=resolve)
            return
        assert relation.rebase(resolve=resolve) == len({*found.values()})
        if found:
            rebase(level, self.base, self.now, stands)
            self.dates.append(self.now)
        assert not len(relation.conflicts())
        assert not conflicts(level, self.base, self.now)

    def put_below(self, level: Level, rows: dict[int, Row | None], inserted: list[Row]) -> None:
        """In the table, a row that takes the key of a deleted one is that tuple with another row."""
        names = [new_name() for _ in inserted]
        if level.below is None:
            freed = {self.base[name][0]: name for name, row in rows.items() if row is None}
            names = [freed.get(row[0], name) for row, name in zip(inserted, names, strict=True)]
        if rows or inserted:
            self.write(level.below, rows | dict(zip(names, inserted, strict=True)))

    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        relation, level = self.pick(pick)
        if level is None or len(self.levels) < 2:
            return
        if any(other.below is level for other in self.levels.values()):
            with pytest.raises(InUse):
                relation.drop()
            return
        relation.drop()
        del self.levels[relation.name]

    @invariant()
    def every_what_if_is_as_defined(self) -> None:
        """Read whole; by work items, a page of the base each; by a range and by single keys."""
        with self.store.state() as view:
            for name, level in self.levels.items():
                rows = _sorted(self.rows(level))
                reader = relation_of(view, self.store.cache, name, "").reader
                assert _rows(reader.rows(None, None, ALL)) == rows
                separators = [separator for separator, _ in reader.base_pages(ALL)]
                spans = [PageSpan(*ends) for ends in zip(separators, [*separators[1:], None], strict=True)]
                assert [row for one in spans for row in _rows(reader.rows_within(one, ["id", "v"]))] == rows
                low = self.now * 7 % 37 - 7
                chosen = {*range(low, low + 6)}
                ends = [encode_key([key], [pa.int64()]) for key in (low, low + 5, low + 9)]
                part = [row for row in rows if row[0] in chosen]
                read = _rows(reader.rows(None, None, KeyBounds(ends[0], ends[1])))
                assert [row for row in read if row[0] in chosen] == part
                read = _rows(reader.rows(None, None, KeyBounds(ends[0], ends[2], (ends[0], ends[2]))))
                assert [row for row in read if row[0] in (low, low + 9)] == [r for r in rows if r[0] in (low, low + 9)]
        if self.made:
            assert _read(self.store.table("t")) == _sorted(self.base)

    @rule(pick=picks, low=ids, width=st.integers(0, 9))
    def read_a_range(self, pick: int, low: int, width: int) -> None:
        relation, level = self.pick(pick)
        rows = _sorted(self.rows(level))
        part = [row for row in rows if low <= row[0] < low + width]
        assert _read(relation, where=f"id >= {low} and id < {low + width}") == part
        assert _read(relation, where=f"id in ({low}, {low + 9})") == [row for row in rows if row[0] in (low, low + 9)]

    @rule()
    def remember(self) -> None:
        """Keep a state, to be compared with later ones."""
        if self.held is not None:
            self.held.close()
        self.held = self.store.snapshot()
        self.then = {name: self.rows(level) for name, level in self.levels.items()}

    @precondition(lambda self: self.held is not None)
    @rule(pick=picks)
    def changes_lead_from_then_to_now(self, pick: int) -> None:
        relation, level = self.pick(pick)
        if level is not None and relation.name in self.then:
            found = relation.changes_between(self.held)
            assert _applied(found, self.then[relation.name]) == _sorted(self.rows(level))

    @rule(pick=picks)
    def changes_lead_from_below(self, pick: int) -> None:
        relation, level = self.pick(pick)
        if level is not None:
            assert _applied(relation.changes(), self.rows(level.below)) == _sorted(self.rows(level))


def _table(rows: dict[int, int | None]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "v": pa.array(list(rows.values()), pa.int64())})


def _read(relation: Any, **how: Any) -> list[Row]:
    return _rows(relation.to_arrow(**how))


def _rows(found: pa.Table) -> list[Row]:
    return list(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))


def _row(struct: dict[str, Any] | None) -> Row | None:
    return None if struct is None else (struct["id"], struct["v"])


def _sorted(relation: Relation) -> list[Row]:
    return sorted(relation.values(), key=lambda row: row[0])


def _applied(changes: Any, relation: Relation) -> list[Row]:
    rows = _table({row[0]: row[1] for row in relation.values()})
    after = apply(rows, ChangeSet(changes.header, changes.to_arrow()))
    found = zip(after.column("id").to_pylist(), after.column("v").to_pylist(), strict=True)
    return sorted(found, key=lambda row: row[0])


def _depth(level: Level | None) -> int:
    return 0 if level is None else 1 + _depth(level.below)


def _purged(level: Level | None) -> int:
    return 0 if level is None else max(level.purged, _purged(level.below))


Machine.TestCase.settings = settings(
    max_examples=examples(12),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
TestMachine = Machine.TestCase
