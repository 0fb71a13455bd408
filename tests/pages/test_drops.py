"""What dropping frees: the change sets of section 3.2.1 as oracle, and how many nodes are visited."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pages.toy import all_rows, assert_sound, created, domain_of, live_entries, opened, put, write

from strandline.errors import InUse
from strandline.pages import CATALOG, PageSnapshot, PageStore, TableId, Version
from strandline.pages.format.node import NodeRef, TableEntry
from strandline.pages.format.page_table import Visits, find, items, only_in
from strandline.pages.format.pointer import Pointer, SnapshotRecord
from strandline.pages.ids import NEVER
from strandline.pages.reclamation import freed_by_drop
from strandline.storage import MemoryStorage

Places = dict[object, str]


def places(store: PageStore, state: SnapshotRecord, domain: TableId) -> Places:
    """Every object of a domain in a state, by its place in the page table."""
    load = store.context.objects.node
    item = find(load, state.root, domain)
    if not isinstance(item, TableEntry):
        return {}
    found: Places = {}

    def nodes(ref: NodeRef | None, first: int) -> None:
        if ref is not None:
            found["node", ref.level, first] = ref.name
            node = load(ref)
            for slot, child in node.slots.items():
                if isinstance(child, NodeRef):
                    nodes(child, first + (slot << (7 * node.level)))

    nodes(item.root, 0)
    if item.record is not None:
        found["record"] = item.record.name
    for entry in items(load, item.root):
        for kind, page in enumerate(getattr(entry, "pages", ())):
            found["page", entry.number, kind] = page.name  # type: ignore[union-attr]
    return found


def change_set(left: Places, right: Places) -> set[object]:
    """The places that changed between two neighbouring states: the set at one link of the chain."""
    return {place for place in left.keys() | right.keys() if left.get(place) != right.get(place)}


def oracle(store: PageStore, pointer: Pointer, dropped: SnapshotRecord) -> set[str]:
    """The intersection of the change sets left and right of a snapshot; partial ones are transparent."""
    chain = [one for one in pointer.chain(store.context.objects.chunk) if one != dropped]
    current = SnapshotRecord(pointer.commit, "", pointer.root, 0.0)
    every = {CATALOG} | {
        item.domain
        for state in (*chain, dropped, current)
        for item in items(store.context.objects.node, state.root)
        if isinstance(item, TableEntry)
    }
    freed: set[str] = set()
    for domain in every:
        if not dropped.holds(domain):
            continue
        holding = [one for one in chain if one.holds(domain)]
        before = [one for one in holding if one.commit <= dropped.commit]
        after = [one for one in holding if one.commit > dropped.commit]
        here = places(store, dropped, domain)
        left = places(store, before[-1], domain) if before else {}
        right = places(store, after[0] if after else current, domain)
        freed |= {here[p] for p in change_set(left, here) & change_set(here, right) if p in here}
    return freed


def commit_dropping(version: Version, name: str, value: object) -> None:
    """A commit that writes a row and drops a snapshot, by one swap."""
    swaps = len(version.log())
    with version.begin() as transaction:
        write(transaction, domain_of(version, "a"), "k000", value)
        transaction.dropped_snapshots.append(name)
    assert len(version.log()) == swaps + 1


def test_a_commit_leaves_a_snapshot_that_is_being_read_or_was_dropped_already() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "a", k000=0)
        main.name_snapshot("read")
        with main.at("read") as snapshot:
            commit_dropping(main, "read", 1)
            assert all_rows(snapshot.view) == {"a": {"k000": 0}}
        commit_dropping(main, "gone", 2)
        assert [one.name for one in main.snapshots()] == ["read"]
        assert all_rows(main.view()) == {"a": {"k000": 2}}
    assert_sound(storage)


@pytest.mark.parametrize("seed", range(6))
def test_dropping_frees_the_intersection_of_the_change_sets(seed: int) -> None:
    chance = random.Random(seed)
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        tables = ["a", "b", "c"]
        for table in tables:
            put(main, table, **{f"k{n:03}": n for n in range(chance.choice([3, 40, 300]))})
        models: dict[str, dict[str, dict[str, object]]] = {}
        for number in range(8):
            for _ in range(chance.randrange(3)):
                table = chance.choice(tables)
                put(main, table, **{f"k{chance.randrange(400):03}": chance.random() for _ in range(5)})
            chosen = None
            rows = all_rows(main.view())
            if chance.random() < 0.5:
                some = chance.sample(tables, 2)
                chosen = [domain_of(main, table) for table in some]
                rows = {table: rows[table] for table in some}
            main.name_snapshot(f"s{number}", domains=chosen)
            models[f"s{number}"] = rows
        while models:
            name = chance.choice(sorted(models))
            pointer = main.pointer()
            record = next(one for one in main.snapshots() if one.name == name)
            others = [one for one in pointer.chain(store.context.objects.chunk) if one != record]
            current = SnapshotRecord(pointer.commit, "", pointer.root, 0.0)
            freed = freed_by_drop(store.context.objects.node, record, others, current)
            assert len({one.name for one in freed}) == len(freed)
            in_domains = {str(one.name) for one in freed if one.domain >= CATALOG}
            assert in_domains == oracle(store, pointer, record)
            if chance.random() < 0.5:
                main.drop_snapshot(name)
                put(main, "a", k000=chance.random())
            else:
                commit_dropping(main, name, chance.random())
            assert all(one.name != name for one in main.snapshots())
            del models[name]
            assert_sound(storage)
            for other, rows in models.items():
                with main.at(other) as snapshot:
                    assert all_rows(snapshot.view) == rows


def test_dropping_visits_only_nodes_that_changed_on_both_sides() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "big", **{f"k{n:05}": n for n in range(6000)})
        put(main, "small", a=1)
        entry = main.view().find_domain("big")
        assert entry is not None
        assert entry.root is not None
        everything = sum(
            isinstance(one, NodeRef) for one in only_in(store.context.objects.node, entry.root, None, NEVER)
        )
        assert everything > 8
        main.name_snapshot("one")
        put(main, "big", k00001=0)
        main.name_snapshot("two")
        put(main, "big", k00001=1)
        visits = Visits()
        assert main.drop_snapshot("two", visits) == 4  # upper tier, two levels of the domain, the page
        assert visits.nodes <= 16
        put(main, "big", k05000=0)
        main.name_snapshot("three")
        put(main, "small", a=2)
        visits = Visits()
        main.drop_snapshot("three", visits)
        assert visits.nodes <= 10
    assert_sound(storage)


def test_a_snapshot_of_a_shallower_tree_is_dropped_beside_a_deeper_one() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", **{f"k{n:04}": n for n in range(500)})
        main.name_snapshot("shallow")
        before = main.view().find_domain("t")
        put(main, "t", **{f"m{n:04}": n for n in range(1000)})
        after = main.view().find_domain("t")
        assert before is not None
        assert after is not None
        assert before.root is not None
        assert after.root is not None
        assert before.root.level < after.root.level
        main.drop_snapshot("shallow")
        put(main, "t", k0000=1)
    assert_sound(storage)


def test_a_fork_goes_when_one_child_remains_and_not_before() -> None:
    """Two versions stand on one state, and the parent goes on: the state is held until both are gone."""
    storage = MemoryStorage()

    def objects() -> set[str]:
        return {name for name in storage.objects if name.startswith("pages/")}

    with created(storage) as store:
        main = store.version()
        put(main, "t", **{f"k{n:03}": n for n in range(100)})
        below = all_rows(main.view())
        state = objects()
        one = store.fork("one")
        store.fork("other")
        deeper = store.fork("deeper", parent="one")
        put(main, "t", **{f"k{n:03}": -n for n in range(100)})
        put(one, "t", k000="one")
        with pytest.raises(InUse, match="deeper"):
            store.drop_version("one")
        assert all_rows(deeper.view()) == below
        store.drop_version("deeper")
        store.drop_version("one")
        put(main, "u", a=1)
        assert state <= objects(), "the other child still stands there"
        assert all_rows(store.version("other").view()) == below
        assert [fork.name for fork in main.pointer().forks] == ["other"]
        store.drop_version("other")
        put(main, "u", a=2)
        assert not state & objects(), "only the parent is left, so what the fork alone held is gone"
        assert not main.pointer().forks
    assert_sound(storage)


def test_a_commit_frees_through_a_partial_snapshot_to_the_full_one_before() -> None:
    """A partial snapshot is transparent for what it does not hold: the state before it decides."""
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "held", a=0)
        put(main, "other", a=0)
        main.name_snapshot("full")
        put(main, "other", a=1)
        main.name_snapshot("part", domains=[domain_of(main, "held")])
        between = {page.name for entry in live_entries(main.view(), domain_of(main, "other")) for page in entry.pages}
        put(main, "other", a=2)
        put(main, "other", a=3)
        assert not between & storage.objects.keys(), "born after the full one, outside the partial one"
        with main.at("full") as full:
            assert all_rows(full.view)["other"] == {"a": 0}
        pages = {page.name for entry in live_entries(main.view(), domain_of(main, "held")) for page in entry.pages}
        put(main, "held", a=1)
        main.drop_snapshot("full")
        put(main, "other", a=4)
        assert pages <= storage.objects.keys(), "the partial one holds them"
        main.drop_snapshot("part")
        put(main, "other", a=5)
        assert not pages & storage.objects.keys()
    assert_sound(storage)


def test_a_promoted_snapshot_takes_back_only_what_it_names() -> None:
    """What a drop freed is dated by the next permanent state: a temporary one in between may not name it."""
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", **{f"k{n:02}": 0 for n in range(40)})
        sizes = []
        for turn in range(5):
            main.name_snapshot("older")
            put(main, "t", **{f"k{n:02}": turn for n in range(40)})
            with main.snapshot() as between:
                put(main, "t", **{f"k{n:02}": -turn for n in range(40)})
                main.drop_snapshot("older")
                main.name_snapshot("promoted", of=between)
            with main.at("promoted") as promoted:
                assert set(all_rows(promoted.view)["t"].values()) == {turn}
            main.drop_snapshot("promoted")
            put(main, "t", k00="done")
            put(main, "t", k00="again")
            sizes.append(len(storage.objects))
        assert len(set(sizes[1:])) == 1
    assert_sound(storage)


STEPS = st.sampled_from(["write", "write", "take", "name", "promote", "drop", "close"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 7)), max_size=30))
def test_when_all_snapshots_are_gone_only_the_current_state_is_left(steps: list[tuple[str, int]]) -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", **{f"k{n:02}": 0 for n in range(30)})
        temporary: list[tuple[PageSnapshot, object]] = []
        named: dict[str, object] = {}
        for number, (step, which) in enumerate(steps):
            if step == "write":
                put(main, "t", **{f"k{(which * 4 + n) % 30:02}": number for n in range(9)})
            elif step == "take":
                temporary.append((main.snapshot(), all_rows(main.view())))
            elif step == "name":
                main.name_snapshot(f"s{number}")
                named[f"s{number}"] = all_rows(main.view())
            elif step == "promote" and temporary:
                snapshot, rows = temporary[which % len(temporary)]
                main.name_snapshot(f"s{number}", of=snapshot)
                named[f"s{number}"] = rows
            elif step == "drop" and named:
                name = sorted(named)[which % len(named)]
                main.drop_snapshot(name)
                del named[name]
            elif step == "close" and temporary:
                temporary.pop(which % len(temporary))[0].close()
            for snapshot, rows in temporary:
                assert all_rows(snapshot.view) == rows
            for name, rows in named.items():
                with main.at(name) as snapshot:
                    assert all_rows(snapshot.view) == rows
        for snapshot, _ in temporary:
            snapshot.close()
        for name in named:
            main.drop_snapshot(name)
        put(main, "t", k00="done")
        put(main, "t", k00="again")
    assert_sound(storage)
    left = {name for name in storage.objects if name.startswith("pages/")}
    with opened(storage) as store:
        view = store.version().view()
        waiting = {one.name for one in store.version().pointer().all_freed(store.context.objects.chunk)}
        named_now = {page.name for entry in live_entries(view, domain_of(view, "t")) for page in entry.pages}
    assert left - named_now <= waiting
    assert len(left - named_now) <= 1
