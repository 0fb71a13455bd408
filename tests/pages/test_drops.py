"""What dropping frees: the change sets of section 3.2.1 as oracle, and how many nodes are visited."""

from __future__ import annotations

import random

import pytest
from tests.pages.toy import all_rows, assert_sound, created, domain_of, put

from strandline.errors import InUse
from strandline.pages import CATALOG, PageStore, TableId, Visits
from strandline.pages.format.node import NodeRef, TableEntry
from strandline.pages.format.page_table import find, items, only_in
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
            main.drop_snapshot(name)
            del models[name]
            put(main, "a", k000=chance.random())
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
        between = {page.name for entry in main.view().entries(domain_of(main, "other")) for page in entry.pages}
        put(main, "other", a=2)
        put(main, "other", a=3)
        assert not between & storage.objects.keys(), "born after the full one, outside the partial one"
        with main.at("full") as full:
            assert all_rows(full.view)["other"] == {"a": 0}
        pages = {page.name for entry in main.view().entries(domain_of(main, "held")) for page in entry.pages}
        put(main, "held", a=1)
        main.drop_snapshot("full")
        put(main, "other", a=4)
        assert pages <= storage.objects.keys(), "the partial one holds them"
        main.drop_snapshot("part")
        put(main, "other", a=5)
        assert not pages & storage.objects.keys()
    assert_sound(storage)
