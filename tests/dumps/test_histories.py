"""A state machine: random histories with dumps of random levels in between, by a clock that is set at will; every point
restores to the model, and the last dump is the last.
"""

# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.dumps.toys import Facts, dumped, facts, facts_of_one, restored_facts
from tests.examples import examples
from tests.pages.toy import Clock, created, domain_of, opened, write

from strandline.dumps.catalog import CATALOG, require_catalog
from strandline.dumps.prune import kept_by, prune
from strandline.dumps.take_dump import synthesize
from strandline.dumps.target import Target
from strandline.errors import InUse
from strandline.pages import PageStore, swap
from strandline.pages.format import pointer
from strandline.pages.format.page_table import items
from strandline.storage import MemoryStorage, Stored

TABLES = ["red", "green", "blue"]
KEYS = [f"{n:02}" for n in range(40)]
SPACE = st.integers(0, 10)


class Shelf(MemoryStorage):
    """A target at which something else happens when its catalog is read for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.meanwhile: Callable[[], None] | None = None

    def get_with_token(self, name: str) -> Stored:
        if name == CATALOG and self.meanwhile is not None:
            self.reads += 1
            if self.reads == 2:
                happen, self.meanwhile = self.meanwhile, None
                happen()
        return super().get_with_token(name)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.storage, self.target, self.clock = MemoryStorage(), Shelf(), Clock()
        self.store: PageStore = created(self.storage, self.clock)
        self.points: dict[str, Facts] = {}
        self.order: list[str] = []
        self.copies: list[dict[str, bytes]] = []
        self.counter = 0

    def _version(self, pick: int) -> str:
        names = sorted(self.store.versions())
        return names[pick % len(names)]

    @initialize()
    def begin(self) -> None:
        self._write("main", [(table, key, 0) for table in TABLES for key in KEYS[::2]])

    def _write(self, version: str, changes: list[tuple[str, str, int | None]]) -> None:
        handle = self.store.version(version)
        new = {}
        with handle.begin() as transaction:
            for table, key, value in changes:
                found = handle.view().find_domain(table)
                if found is None and table not in new:
                    new[table] = transaction.create_domain(table, b"{}")
                write(transaction, found.domain if found is not None else new[table], key, value)

    @rule(
        pick=SPACE,
        changes=st.lists(
            st.tuples(st.sampled_from(TABLES), st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9))),
            min_size=1,
            max_size=25,
        ),
    )
    def change_rows(self, pick: int, changes: list[tuple[str, str, int | None]]) -> None:
        self._write(self._version(pick), changes)

    @rule(pick=SPACE, table=st.sampled_from(TABLES))
    def drop_table(self, pick: int, table: str) -> None:
        handle = self.store.version(self._version(pick))
        if handle.view().find_domain(table) is not None:
            with handle.begin() as transaction:
                transaction.drop_domain(domain_of(handle, table), table)

    @rule(pick=SPACE)
    def name_snapshot(self, pick: int) -> None:
        self.counter += 1
        self.store.version(self._version(pick)).name_snapshot(f"s{self.counter}")

    @rule(pick=SPACE, table=st.sampled_from(TABLES), written=st.sets(st.sampled_from(TABLES)))
    def name_partial_snapshot(self, pick: int, table: str, written: set[str]) -> None:
        version = self._version(pick)
        self._write(version, [(one, key, self.counter) for one in sorted(written) for key in KEYS[::7]])
        handle = self.store.version(version)
        self.counter += 1
        if handle.view().find_domain(table) is not None:
            handle.name_snapshot(f"s{self.counter}", domains=[domain_of(handle, table)])

    @rule(pick=SPACE, changes=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5), level=st.integers(0, 3))
    def name_a_state_of_the_past(self, pick: int, changes: list[str], level: int) -> None:
        version = self._version(pick)
        handle = self.store.version(version)
        self.counter += 1
        with handle.snapshot() as past:
            self._write(version, [("red", key, self.counter) for key in changes])
            self.dump(level)
            handle.name_snapshot(f"s{self.counter}", of=past)
        self.dump(level + 1)

    @rule(pick=SPACE, which=SPACE)
    def drop_snapshot(self, pick: int, which: int) -> None:
        handle = self.store.version(self._version(pick))
        names = [one.name for one in handle.snapshots()]
        if names:
            try:
                handle.drop_snapshot(names[which % len(names)])
            except InUse:
                return

    @rule(pick=SPACE, which=SPACE)
    def fork(self, pick: int, which: int) -> None:
        parent = self._version(pick)
        handle = self.store.version(parent)
        full = [one.name for one in handle.snapshots() if one.domains is None]
        self.counter += 1
        if full and which % 2:
            with handle.at(full[which % len(full)]) as snapshot:
                self.store.fork(f"v{self.counter}", parent=parent, of=snapshot)
        else:
            self.store.fork(f"v{self.counter}", parent=parent)

    @rule(pick=SPACE)
    def drop_version(self, pick: int) -> None:
        try:
            self.store.drop_version(self._version(pick))
        except InUse:
            return

    @rule(level=st.integers(0, 4))
    def dump(self, level: int) -> None:
        made = dumped(self.store, self.target, level)
        self.points[made.id] = facts(self.store)
        self.order.append(made.id)
        self._check_size(made.id)
        self._check_order()

    @rule(level=st.integers(0, 4), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def dump_while_another_dump_is_planned(self, level: int, keys: list[str]) -> None:
        """The one that was begun first, and is announced last, holds the older state."""
        held = facts(self.store)

        def meanwhile() -> None:
            self._write("main", [("red", key, level) for key in keys])
            self.dump(0)

        self.target.reads, self.target.meanwhile = 0, meanwhile
        made = dumped(self.store, self.target, level)
        self.points[made.id] = held
        self.order.insert(-1, made.id)
        self._check_order()

    @rule(hours=st.integers(-48, 48))
    def set_the_clock(self, hours: int) -> None:
        self.clock.ahead = hours * 3600.0

    @rule(which=SPACE)
    def combine(self, which: int) -> None:
        dumps = require_catalog(self.target).complete() if self.order else []
        higher = [one.id for one in dumps if one.level]
        if higher:
            source = higher[which % len(higher)]
            made = synthesize(Target(self.target), source)
            self.points[made.id] = self.points[source]
            self.order.insert(self.order.index(source) + 1, made.id)
            self._check_order()

    def _check_order(self) -> None:
        """Dumps are in the order of their states; whatever a rule says of days, the last of them stays."""
        dumps = require_catalog(self.target).complete()
        assert [one.id for one in dumps] == self.order
        assert self.order[-1] in kept_by(dumps, {"daily": 1})
        assert list(prune(Target(self.target), "2 last").kept)[-1] == self.order[-1]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = opened(self.storage, self.clock)

    @rule()
    def copy_the_folder(self) -> None:
        self.copies.append(dict(self.storage.objects))

    @rule(which=SPACE, writes=st.integers(0, 30), level=st.integers(1, 4))
    def put_an_older_copy_back(self, which: int, writes: int, level: int) -> None:
        """Commit numbers and names of pages are given anew, to other contents, and the log may forget."""
        if self.copies:
            self.store.close()
            self.storage = MemoryStorage(self.copies[which % len(self.copies)])
            self.clock.time += 61
            self.store = opened(self.storage, self.clock)
            self._write("main", [("red", KEYS[number % 40], -number) for number in range(writes)])
            for number in range(writes):
                self._write("main", [("green", KEYS[number % 40], -number)])
            self.dump(level)

    @rule(which=SPACE)
    def restore(self, which: int) -> None:
        if self.points:
            chosen = list(self.points)[which % len(self.points)]
            assert restored_facts(self.target, chosen) == self.points[chosen]
            assert restored_facts(self.target) == self.points[self.order[-1]]

    @rule(which=SPACE, pick=SPACE)
    def restore_one_version(self, which: int, pick: int) -> None:
        """Alone, whatever it stands on, and whatever stands on it."""
        if self.points:
            chosen = list(self.points)[which % len(self.points)]
            names = sorted({fact.split()[0] for fact in self.points[chosen] if fact.endswith(" commit")})
            name = names[pick % len(names)]
            assert restored_facts(self.target, chosen, name) == facts_of_one(self.points[chosen], name)

    def _check_size(self, id_: str) -> None:
        """The dump's pages are those of the store's states that its parent does not have, no more and no less."""
        catalog, target = require_catalog(self.target), Target(self.target)
        entry = catalog.find(id_)
        assert entry is not None
        packs = target.folder(id_).with_pages(target.manifest(entry))
        own = {page.name for pack in packs for page in pack.pages}
        assert entry.bytes == sum(page.size for pack in packs for page in pack.pages)
        inherited: set[str] = set()
        while entry.parent is not None:
            entry = catalog.find(entry.parent)
            assert entry is not None
            packs = target.folder(entry.id).with_pages(target.manifest(entry))
            inherited |= {page.name for pack in packs for page in pack.pages}
        assert own == self._all_pages() - inherited

    def _all_pages(self) -> set[str]:
        """Every page that a permanent or present state names, found without commit numbers."""
        found: set[str] = set()
        for name in self.store.versions():
            pointer = self.store.version(name).pointer()
            objects = self.store.context.objects
            states = [(one.root, one.domains) for one in pointer.chain(objects.chunk)]
            for root, domains in [*states, (pointer.root, None)]:
                for header in items(objects.node, root):
                    if domains is None or header.domain in domains or header.domain == 0:  # type: ignore[union-attr]
                        found |= {header.record.name} if header.record else set()  # type: ignore[union-attr]
                        for entry in items(objects.node, header.root):  # type: ignore[union-attr]
                            found |= {page.name for page in entry.pages}  # type: ignore[union-attr]
        return found

    def teardown(self) -> None:
        self.store.close()
        for id_, expected in self.points.items():
            assert restored_facts(self.target, id_) == expected


@pytest.mark.parametrize("kept", [swap.LOG_CHUNKS, 0])
def test_every_dump_of_a_history_restores_to_its_point(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the log keeps hardly anything, so that it proves no descent."""
    monkeypatch.setattr(swap, "LOG_CHUNKS", kept)
    if not kept:
        monkeypatch.setattr(pointer, "INLINE", 4)
    run_state_machine_as_test(Histories, settings=settings(max_examples=examples(25), stateful_step_count=18))
