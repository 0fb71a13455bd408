"""A state machine over transactions, snapshots, versions, drops and reopening, against one dictionary per
state.
"""

# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import copy
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests.examples import examples
from tests.pages.faults import Fault, FaultyStorage
from tests.pages.toy import Clock, all_rows, assert_sound, created, opened, write

from strandline.pages import PageSnapshot, PageStore
from strandline.storage import MemoryStorage

TABLES = ["red", "green", "blue"]
KEYS = [f"{n:02}" for n in range(30)]
Rows = dict[str, dict[str, object]]


class StoreMachine(RuleBasedStateMachine):
    versions = Bundle("versions")
    names = Bundle("names")
    temporaries = Bundle("temporaries")

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.faulty = FaultyStorage(self.storage)
        self.clock = Clock()
        self.store: PageStore = created(self.faulty, self.clock)
        self.current: dict[str, Rows] = {"main": {}}
        self.named: dict[tuple[str, str], Rows] = {}
        self.open: dict[int, tuple[str, PageSnapshot, Rows]] = {}
        self.counter = 0

    @initialize(target=versions)
    def begin(self) -> str:
        return "main"

    def _alive(self, version: str) -> bool:
        return version in self.current

    @rule(
        version=versions,
        changes=st.lists(
            st.tuples(st.sampled_from(TABLES), st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9))),
            max_size=25,
        ),
        fate=st.sampled_from(["commit", "commit", "abort", "lose", "interrupt", "interrupt after"]),
        at=st.integers(0, 12),
    )
    def change_rows(self, version: str, changes: list[tuple[str, str, int | None]], fate: str, at: int) -> None:
        if not self._alive(version):
            return
        handle = self.store.version(version)
        model = copy.deepcopy(self.current[version])
        transaction = handle.begin()
        new = {}
        for table, key, value in changes:
            found = handle.view().find_domain(table)
            if found is None and table not in new:
                new[table] = transaction.create_domain(table, b"{}")
            domain = found.domain if found is not None else new[table]
            write(transaction, domain, key, value)
            rows = model.setdefault(table, {})
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        if fate == "commit":
            transaction.commit()
            self.current[version] = model
        elif fate == "abort":
            transaction.abort()
        elif fate != "lose":
            self.faulty.fault = Fault.INTERRUPT if fate == "interrupt" else Fault.INTERRUPT_AFTER
            self.faulty.at = self.faulty.operations + at
            with suppress(KeyboardInterrupt):
                transaction.commit()
            self.faulty.at = -1
            seen = all_rows(handle.refresh())
            assert seen in (model, self.current[version])
            self.current[version] = seen

    @rule(version=versions, table=st.sampled_from(TABLES))
    def drop_table(self, version: str, table: str) -> None:
        if not self._alive(version) or table not in self.current[version]:
            return
        handle = self.store.version(version)
        found = handle.view().find_domain(table)
        assert found is not None
        with handle.begin() as transaction:
            transaction.drop_domain(found.domain, table)
        del self.current[version][table]

    @rule(target=names, version=versions, tables=st.one_of(st.none(), st.sets(st.sampled_from(TABLES))))
    def name_snapshot(self, version: str, tables: set[str] | None) -> object:
        if not self._alive(version):
            return multiple()
        handle = self.store.version(version)
        self.counter += 1
        name = f"s{self.counter}"
        chosen = None
        rows = copy.deepcopy(self.current[version])
        if tables is not None:
            rows = {table: kept for table, kept in rows.items() if table in tables}
            chosen = [e.domain for e in handle.view().domains() if e.name in tables]
        handle.name_snapshot(name, domains=chosen)
        self.named[version, name] = rows
        return (version, name)

    @rule(
        target=names,
        version=versions,
        table=st.sampled_from(TABLES),
        values=st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9)), max_size=3),
    )
    def commit_as_a_snapshot(self, version: str, table: str, values: dict[str, int | None]) -> object:
        """Also a commit that changes nothing has its name."""
        found = self.store.version(version).view().find_domain(table) if self._alive(version) else None
        if found is None:
            return multiple()
        transaction, rows = self.store.version(version).begin(), self.current[version][table]
        for key, value in values.items():
            write(transaction, found.domain, key, value)
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        self.counter += 1
        name = f"s{self.counter}"
        transaction.commit(snapshot=name)
        self.named[version, name] = copy.deepcopy(self.current[version])
        return (version, name)

    @rule(target=names, key=consumes(temporaries))
    def promote(self, key: int) -> object:
        version, snapshot, rows = self.open.pop(key)
        if not self._alive(version):
            return multiple()
        self.counter += 1
        name = f"s{self.counter}"
        self.store.version(version).name_snapshot(name, of=snapshot)
        snapshot.close()
        self.named[version, name] = rows
        return (version, name)

    @rule(target=temporaries, which=consumes(names))
    def demote(self, which: tuple[str, str]) -> object:
        version, name = which
        if which not in self.named or self._is_fork(version, name):
            return multiple()
        snapshot = self.store.version(version).demote(name)
        self.counter += 1
        self.open[self.counter] = (version, snapshot, self.named.pop(which))
        return self.counter

    @rule(target=temporaries, version=versions)
    def take(self, version: str) -> object:
        if not self._alive(version):
            return multiple()
        self.counter += 1
        rows = copy.deepcopy(self.current[version])
        self.open[self.counter] = (version, self.store.version(version).snapshot(), rows)
        return self.counter

    @rule(key=consumes(temporaries))
    def close(self, key: int) -> None:
        self.open.pop(key)[1].close()

    def _is_fork(self, version: str, name: str) -> bool:
        handle = self.store.version(version)
        commit = next(one.commit for one in handle.snapshots() if one.name == name)
        return any(fork.commit == commit for fork in handle.pointer().forks)

    @rule(which=consumes(names))
    def drop_snapshot(self, which: tuple[str, str]) -> None:
        version, name = which
        if which in self.named and not self._is_fork(version, name):
            self.store.version(version).drop_snapshot(name)
            del self.named[which]

    @rule(target=versions, parent=versions)
    def fork(self, parent: str) -> object:
        if not self._alive(parent) or len(self.current) > 4:
            return multiple()
        self.counter += 1
        name = f"v{self.counter}"
        self.store.fork(name, parent=parent)
        self.current[name] = copy.deepcopy(self.current[parent])
        return name

    @rule(target=versions, which=names)
    def fork_of_a_snapshot(self, which: tuple[str, str]) -> object:
        version, name = which
        if which not in self.named or len(self.current) > 4:
            return multiple()
        with self.store.version(version).at(name) as snapshot:
            if snapshot.view.state.domains is not None:
                return multiple()
            self.counter += 1
            self.store.fork(f"v{self.counter}", parent=version, of=snapshot)
        self.current[f"v{self.counter}"] = copy.deepcopy(self.named[which])
        return f"v{self.counter}"

    @rule(version=versions)
    def drop_version(self, version: str) -> None:
        if version == "main" or not self._alive(version):
            return
        busy = any(v == version for v, _ in self.named) or any(v == version for v, _, _ in self.open.values())
        if busy or self.store.version(version).pointer().forks:
            return
        self.store.drop_version(version)
        del self.current[version]

    @rule()
    def reopen(self) -> None:
        for _, snapshot, _ in self.open.values():
            snapshot.close()
        self.store.close()
        self.store = opened(self.faulty, self.clock)
        for key in list(self.open):
            version, _, rows = self.open[key]
            if all_rows(self.store.version(version).view()) != rows:
                # A closed state is gone; the model goes on with the current one in its place.
                rows = copy.deepcopy(self.current[version])
            self.open[key] = (version, self.store.version(version).snapshot(), rows)

    @rule()
    def crash_and_be_buried(self) -> None:
        """The process stops without a word; another one takes over and buries it."""
        self.store = opened(self.faulty, self.clock)
        self.store.beat()
        self.clock.time += 61
        self.store.beat()
        for key, (version, _, _) in list(self.open.items()):
            rows = copy.deepcopy(self.current[version])
            self.open[key] = (version, self.store.version(version).snapshot(), rows)

    @invariant()
    def every_state_reads_as_the_model_says(self) -> None:
        assert set(self.store.versions()) == set(self.current)
        for version, rows in self.current.items():
            assert all_rows(self.store.version(version).view()) == rows
        for (version, name), rows in self.named.items():
            with self.store.version(version).at(name) as snapshot:
                assert all_rows(snapshot.view) == rows
        for _, snapshot, rows in self.open.values():
            assert all_rows(snapshot.view) == rows

    def teardown(self) -> None:
        for _, snapshot, _ in self.open.values():
            snapshot.close()
        self.store.close()
        assert_sound(self.storage)


StoreMachine.TestCase.settings = settings(
    max_examples=examples(50),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestStoreMachine = StoreMachine.TestCase
