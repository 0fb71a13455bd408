"""Random transactions of several processes and threads, held against an oracle: a dictionary, and one after the other.

What a transaction did is a list of steps with their results. Replayed on the state before its commit, every step must
give the same result: that is a serial order, the order of the commits. A transaction that was refused must have seen
some state as well: all its steps, replayed on one state that there was, give what it saw.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.tables.properties import given
from tests.tables.shop import numbered, rows, shop

from strandline.errors import Conflict, InputError, NotFound
from strandline.storage import MemoryStorage
from strandline.store import Store, open_on
from strandline.tables import TableTransaction

KEYS = 5
State = dict[Any, Any]
"""The rows of `t` by key, and the names of other tables."""
Step = tuple[str, int, int]


def begin_with(store: Store) -> State:
    """Rows that are alike but for their keys, so that only their numbers tell them apart when they trade these."""
    state: State = {key: key % 2 * 10 for key in range(KEYS)}
    store.create_table("t", [{"id": key, "v": value} for key, value in state.items()], key="id")
    return state


def expected(state: State, step: Step) -> Any:
    """What a step gives, and does to a state."""
    verb, key, value = step
    there = {each: held for each, held in state.items() if isinstance(each, int)}
    if verb == "get" or verb == "handle":
        return [(key, there[key])] if key in there else []
    if verb == "scan":
        return [(each, there[each]) for each in sorted(there) if key <= each <= key + 1]
    if verb == "find":
        return [(each, there[each]) for each in sorted(there) if there[each] == value]
    if verb == "put":
        state[key] = value
        return 1
    if verb == "add":
        changed = [each for each in there if each == key]
        state.update({each: there[each] + 1 for each in changed})
        return len(changed)
    if verb == "delete":
        return 0 if state.pop(key, None) is None else 1
    if verb == "trade":
        ways = {key: key + 2, key + 2: key}
        moved = {ways[each]: state.pop(each) for each in ways if each in there}
        state.update(moved)
        return len(moved)
    name = f"x{key}"
    if verb == "has":
        return name in state
    if (verb == "make") == (name in state):
        return "refused"
    if verb == "make":
        state[name] = True
    else:
        del state[name]
    return "done"


def perform(store: Store, tx: TableTransaction, step: Step) -> Any:
    verb, key, value = step
    if verb == "get":
        return pairs(tx.to_arrow("t", where="id = :k", params={"k": key}))
    if verb == "handle":
        return pairs(store.table("t").to_arrow(where="id = :k", params={"k": key}))
    if verb == "scan":
        return pairs(tx.to_arrow("t", where=f"id >= {key} and id <= {key + 1}"))
    if verb == "find":
        return pairs(tx.to_arrow("t", where="v = :v", params={"v": value}))
    if verb == "put":
        return tx.upsert("t", [{"id": key, "v": value}])
    if verb == "add":
        return tx.update("t", where="id = :k", set={"v": "v + 1"}, params={"k": key})
    if verb == "delete":
        return tx.delete("t", where="id = :k", params={"k": key})
    if verb == "trade":
        ways = f"case id when {key} then {key + 2} else {key} end"
        return tx.update("t", where=f"id in ({key}, {key + 2})", set={"id": ways})
    name = f"x{key}"
    if verb == "has":
        return tx.has_table(name)
    try:
        if verb == "make":
            tx.create_table(name, numbered(1))
        else:
            tx.drop_table(name)
    except (InputError, NotFound):
        return "refused"
    return "done"


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


@dataclass
class Running:
    """A transaction under way: what it did and saw."""

    tx: TableTransaction
    since: int = 0
    steps: list[tuple[Step, Any]] = field(default_factory=list)

    def do(self, store: Store, step: Step) -> None:
        self.steps.append((step, perform(store, self.tx, step)))

    def replayed(self, state: State) -> State | None:
        """The state that all steps make of a state; None when one of them would have given something else."""
        after = dict(state)
        return after if all(expected(after, step) == result for step, result in self.steps) else None


VERBS = ["get", "get", "handle", "scan", "find", "put", "add", "delete", "trade", "has", "make", "drop"]
verbs = st.sampled_from(VERBS)
steps = st.tuples(verbs, st.integers(0, KEYS), st.sampled_from([0, 10, 11, 20]))
ends = st.sampled_from(["commit", "commit", "refresh", "refresh", "abort"])
programs = st.lists(st.tuples(st.integers(0, 2), steps | ends), min_size=10, max_size=40)


@settings(max_examples=examples(40))
@given(programs)
def test_transactions_of_several_processes_have_a_serial_order_and_see_one_state(program: list[Any]) -> None:
    storage = MemoryStorage()
    with shop(storage) as first:
        states = [begin_with(first)]
        stores = [open_on(storage) for _ in range(3)]
        running: dict[int, Running] = {}
        for process, step in program:
            store = stores[process]
            mine = running.get(process)
            if mine is None:
                mine = running[process] = Running(store.transaction().__enter__(), len(states) - 1)
            try:
                if step == "refresh":
                    store.pages.refresh()
                elif isinstance(step, tuple):
                    mine.do(store, step)
                else:
                    del running[process]
                    end(mine, states, commits=step == "commit")
            except Conflict:
                running.pop(process, None)
                assert any(mine.replayed(state) is not None for state in states[mine.since :]), mine.steps
                end(mine, states, commits=False)
        for mine in running.values():
            end(mine, states, commits=False)
        for store in stores:
            assert {row["id"]: row["v"] for row in rows(store, "t")} == {
                key: value for key, value in states[-1].items() if isinstance(key, int)
            }
            assert_numbers_differ(store)
            store.close()


def assert_numbers_differ(store: Store) -> None:
    """No two rows have one number: whose key changes would take the other's place."""
    numbers = store.table("t").to_arrow(columns=["_row"]).column("_row").to_pylist()
    assert len(set(numbers)) == len(numbers), numbers


def end(mine: Running, states: list[State], *, commits: bool) -> None:
    if mine.tx.ended:
        return
    if commits:
        mine.tx.commit()
        # Who changed nothing stands behind the state that it saw.
        candidates = states[-1:] if changes(mine) else states[mine.since :]
        after = next((after for state in candidates if (after := mine.replayed(state)) is not None), None)
        assert after is not None, mine.steps
        if changes(mine):
            states.append(after)
    else:
        assert any(mine.replayed(state) is not None for state in states[mine.since :]), mine.steps
        mine.tx.abort()
    mine.tx.__exit__(None, None, None)


def test_transactions_of_threads_in_two_processes_have_a_serial_order() -> None:
    """The order is that of the commits; those of one batch have nothing in common."""
    storage = MemoryStorage()
    with shop(storage) as store, open_on(storage) as other:
        state = begin_with(store)
        done: list[tuple[int, Running]] = []

        def work(number: int) -> None:
            rng = random.Random(number)
            mine = (store, other)[number % 2]
            for _ in range(6):
                chosen = [(rng.choice(VERBS), rng.randrange(KEYS), rng.choice([0, 10, 11, 20])) for _ in range(3)]
                try:
                    with mine.transaction() as tx:
                        running = Running(tx)
                        for step in chosen:
                            running.do(mine, step)
                        done.append((int(tx.commit()), running))
                except Conflict:
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done
        batches: dict[int, list[Running]] = {}
        for commit, running in done:
            batches.setdefault(commit, []).append(running)
        for commit in sorted(batches):
            # Who changed nothing has the number of the state that it read, and comes after who made that state.
            writers = sorted(batches[commit], key=lambda running: not changes(running))
            for running in writers:
                after = running.replayed(state)
                assert after is not None, (commit, running.steps)
                state = after


def changes(running: Running) -> bool:
    quiet = {"get", "handle", "scan", "find", "has"}
    return any(step[0] not in quiet and result not in (0, "refused") for step, result in running.steps)


@pytest.fixture
def two() -> Any:
    storage = MemoryStorage()
    with shop(storage) as store, open_on(storage) as other:
        begin_with(store)
        other.pages.refresh()
        yield store, other


def test_half_of_a_foreign_commit_is_never_seen(two: tuple[Store, Store]) -> None:
    store, other = two
    tx = store.transaction()
    assert pairs(tx.to_arrow("t", where="id = 1")) == [(1, 10)]
    other.table("t").update(where="id in (1, 2)", values={"v": 77})
    store.pages.refresh()
    with pytest.raises(Conflict):
        tx.to_arrow("t", where="id = 2")
    with pytest.raises(Conflict):
        tx.to_arrow("t", where="id = 3")
    tx.abort()


def test_a_transaction_goes_on_beside_foreign_commits_that_do_not_concern_it(two: tuple[Store, Store]) -> None:
    store, other = two
    with store.transaction() as tx:
        assert pairs(tx.to_arrow("t", where="id = 1")) == [(1, 10)]
        other.table("t").update(where="id = 2", values={"v": 77})
        store.pages.refresh()
        assert pairs(tx.to_arrow("t", where="id = 2")) == [(2, 77)]
        tx.update("t", where="id = 1", values={"v": 5})
    assert rows(other, "t", where="id in (1, 2)")[1] == {"id": 2, "v": 77}


FOREIGN: dict[str, Callable[[Store], Any]] = {
    "trade their keys": lambda store: store.table("t").update(
        where="id in (1, 3)", set={"id": "case id when 1 then 3 else 1 end"}
    ),
    "are deleted and come again": lambda store: (
        store.table("t").delete(where="id = 1"),
        store.table("t").insert([{"id": 1, "v": 10}]),
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_rows_that_are_alike_are_told_apart_when_they(what: str, two: tuple[Store, Store]) -> None:
    """By their numbers: who changes a row has read its number."""
    store, other = two
    tx = store.transaction()
    tx.update("t", where="id = 1", set={"v": "v + 1"})
    FOREIGN[what](other)
    numbers = other.table("t").to_arrow(columns=["_row", "id"])
    with pytest.raises(Conflict):
        tx.commit()
    assert store.table("t").update(where="id = 1", set={"v": "v + 1"}) == 1
    assert store.table("t").to_arrow(columns=["_row", "id"]) == numbers


def miss(tx: TableTransaction) -> None:
    with pytest.raises(NotFound):
        tx.to_arrow("new")


LOOKS: list[tuple[str, Callable[[TableTransaction], Any], Callable[[TableTransaction], Any]]] = [
    ("looked for a table that came", lambda tx: tx.has_table("new"), lambda tx: tx.create_table("new", numbered(1))),
    ("looked for a table that went", lambda tx: tx.has_table("t"), lambda tx: tx.drop_table("t")),
    ("missed a table that came", lambda tx: miss(tx), lambda tx: tx.create_table("new", numbered(1))),
]


@pytest.mark.parametrize(("why", "look", "foreign"), LOOKS, ids=[why for why, _, _ in LOOKS])
def test_a_transaction_is_tried_again_when_it(why: str, look: Any, foreign: Any, two: tuple[Store, Store]) -> None:
    store, other = two
    store.create_table("log", numbered(1))
    tx = store.transaction()
    look(tx)
    tx.insert("log", numbered(1, 5))
    other.autocommit(foreign)
    with pytest.raises(Conflict):
        tx.commit()


@pytest.mark.parametrize(("why", "look", "change"), LOOKS, ids=[why for why, _, _ in LOOKS])
def test_another_thread_waits_for_a_transaction_that(why: str, look: Any, change: Any) -> None:
    with shop() as store:
        begin_with(store)
        tx = store.transaction()
        look(tx)
        done = threading.Event()

        def work() -> None:
            store.autocommit(change)
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(0.2)
        tx.commit()
        thread.join()
        assert done.is_set()


def test_a_table_that_is_read_inside_a_transaction_belongs_to_it(two: tuple[Store, Store]) -> None:
    store, other = two

    def work(tx: TableTransaction) -> None:
        tx.upsert("t", [{"id": 3, "v": 1}])
        assert rows(store, "t", where="id = 3") == [{"id": 3, "v": 1}], "its own changes are there"
        assert store.table("t").count() == KEYS
        assert rows(store, "t", where="id = 1") == [{"id": 1, "v": 10}]
        other.table("t").delete(where="id = 1")

    with pytest.raises(Conflict):
        store.autocommit(work, attempts=1)
    assert rows(store, "t", where="id = 3") == [{"id": 3, "v": 10}]
