"""Dumps and restores of one small store, step by step."""

from __future__ import annotations

from tests.dumps.toys import dumped, facts, restored, restored_facts
from tests.pages.toy import Clock, assert_sound, created, domain_of, opened, put

from strandline.pages import PageStore
from strandline.storage import MemoryStorage


def history(store: PageStore) -> None:
    """Snapshots whole and partial, versions, deletes, a dropped table."""
    main = store.version()
    put(main, "t", **{f"k{n:02}": n for n in range(40)})
    put(main, "u", a=1)
    main.name_snapshot("one")
    put(main, "t", k03=30)
    main.name_snapshot("part", domains=[domain_of(main, "u")])
    put(main, "t", k03=31, k15=1)
    put(main, "u", a=2)
    idea = store.fork("idea")
    put(idea, "t", **{f"k{n:02}": None for n in range(20)})
    idea.name_snapshot("sketch")
    put(idea, "v", x=1)
    store.fork("deeper", parent="idea")
    put(main, "t", **{f"k{n:02}": None for n in range(20, 40)})
    main.name_snapshot("two")
    put(main, "t", k04=4, k12=4)


def test_a_full_dump_restores_every_version_and_snapshot() -> None:
    target = MemoryStorage()
    with created(MemoryStorage()) as store:
        history(store)
        made = dumped(store, target)
        expected = facts(store)
    assert (made.level, made.parent, made.notice) == (0, None, "")
    assert restored_facts(target) == expected


def test_a_chain_of_levels_restores_every_point() -> None:
    target = MemoryStorage()
    points = {}
    with created(MemoryStorage()) as store:
        history(store)
        main = store.version()
        for number, level in enumerate([0, 2, 1, 2, 2, 3]):
            put(main, "t", **{f"n{number}": number})
            main.name_snapshot(f"s{number}")
            if number == 3:
                main.drop_snapshot("s1")
                store.drop_version("deeper")
            put(main, "u", a=number)
            made = dumped(store, target, level)
            points[made.id] = facts(store)
    for id_, expected in points.items():
        assert restored_facts(target, id_) == expected


def test_a_restored_store_is_written_to_dumped_and_restored_again() -> None:
    first, second, storage = MemoryStorage(), MemoryStorage(), MemoryStorage()
    with created(MemoryStorage()) as store:
        history(store)
        dumped(store, first)
    restored(first, storage)
    with opened(storage, Clock()) as store:
        put(store.version(), "t", k00="new", k39=None)
        put(store.version("idea"), "v", x=2, y=3)
        store.version().drop_snapshot("one")
        store.version().drop_snapshot("part")
        store.drop_version("deeper")
        store.version("idea").drop_snapshot("sketch")
        made = dumped(store, second)
        expected = facts(store)
        other = dumped(store, first, 1)
    assert "level 0 instead of 1" in other.notice
    assert_sound(storage)
    assert restored_facts(second, made.id) == expected
    assert restored_facts(first, other.id) == expected
