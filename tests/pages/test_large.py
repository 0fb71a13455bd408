"""Very many snapshots, versions, freed objects, log entries and pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.pages.toy import Clock, all_rows, assert_sound, created, domain_of, opened, put

from strandline.pages import Draft, PageRef, space_held
from strandline.pages.format.pointer import INLINE
from strandline.pages.ids import UNBORN, PhysicalPage
from strandline.storage import LocalStorage, MemoryStorage


def test_very_many_snapshots_go_on_extension_pages_and_come_back() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        count = INLINE + 30
        for n in range(count):
            put(main, "t", a=n)
            main.name_snapshot(f"s{n}")
        assert main.pointer().snapshots.chunks
        assert main.pointer().log.chunks
        with main.at("s3") as snapshot:
            assert all_rows(snapshot.view) == {"t": {"a": 3}}
        for n in range(0, count, 2):
            main.drop_snapshot(f"s{n}")
    assert_sound(storage)
    with opened(storage) as store:
        main = store.version()
        assert len(main.snapshots()) == count // 2
        with main.at("s5") as snapshot:
            assert all_rows(snapshot.view) == {"t": {"a": 5}}
        for one in main.snapshots():
            main.drop_snapshot(one.name)
        put(main, "t", a=0)
        put(main, "t", a=1)
    assert_sound(storage)
    assert len(storage.objects) < 20


def test_very_many_versions_go_on_extension_pages() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        put(store.version(), "t", a=0)
        count = INLINE + 5
        for n in range(count):
            store.fork(f"v{n}")
        assert len(store.versions()) == count + 1
        put(store.version("v7"), "t", a=7)
        for n in range(3):
            store.drop_version(f"v{n}")
    assert_sound(storage)
    with opened(storage) as store:
        assert all_rows(store.version("v7").view()) == {"t": {"a": 7}}
        assert "v1" not in store.versions()


def test_a_long_reader_makes_freed_objects_spill_and_then_go() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=0)
        before = len(storage.objects)
        with main.snapshot() as reader, opened(storage) as other:
            elsewhere = other.version().snapshot()
            for n in range(200):
                put(main, "t", a=n)
            assert main.pointer().freed.chunks
            assert all_rows(reader.view) == all_rows(elsewhere.view) == {"t": {"a": 0}}
            elsewhere.close()
        for n in range(4):
            put(main, "t", a=n)
        assert len(storage.objects) <= before + 3
    assert_sound(storage)


class CountingStorage(MemoryStorage):
    """Counts the nodes that are read."""

    nodes_read = 0

    def get(self, name: str) -> bytes:
        self.nodes_read += name.startswith("nodes/")
        return super().get(name)


def test_opening_a_large_store_reads_a_handful_of_nodes() -> None:
    storage = CountingStorage()
    with created(storage) as store:
        main = store.version()
        with main.begin() as transaction:
            domain = transaction.create_domain("big", b"{}")
            for n in range(20_000):
                key = b"%06d" % n
                page = PageRef(PhysicalPage(f"pages/0-{n:x}.parquet"), UNBORN, 1, "", 1)
                draft = Draft(page, rows=1, least=key, greatest=key)
                transaction.add_page(domain, draft, separator=key if n else b"")
    with opened(storage) as store:
        storage.nodes_read = 0
        view = store.version().view()
        entry = view.page_for(domain_of(view, "big"), b"012345x")
        assert entry is not None
        assert entry.least == b"012345"
        assert storage.nodes_read <= 10
        found = view.find_domain("big")
        assert found is not None
        assert found.root is not None
        assert (found.root.sums.pages, found.root.sums.rows) == (20_000, 20_000)
        before = {*storage.objects}
        with store.version().begin() as transaction:
            page = PageRef(PhysicalPage("pages/0-fffff.parquet"), UNBORN, 1, "", 1)
            transaction.put_page(found.domain, entry, Draft(page, rows=1, least=b"012345", greatest=b"012345"))
        written = [name.partition("/")[0] for name in storage.objects.keys() - before]
        assert written == ["nodes"] * 4, "the three levels of the changed path and the list of tables, and nothing else"
        assert len(storage.objects) == len(before), "what they replace is gone"


def test_space_tells_who_holds_which_bytes() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", **{f"k{n:02}": n for n in range(40)})
        put(main, "u", a=1)
        main.name_snapshot("s")
        put(main, "t", k00=1)
        idea = store.fork("idea")
        put(idea, "u", a=2)
        held = {(one.version, one.snapshot, one.table): one for one in space_held(storage)}
        snapshot, current = held["main", "s", "t"], held["main", "", "t"]
        assert 0 < snapshot.own < snapshot.bytes
        assert current.pages == snapshot.pages
        assert held["main", "", "u"].own == 0
        assert held["idea", "", "u"].own > 0
        assert [(one.version, one.fork) for one in space_held(storage) if one.fork and one.table == "u"] == [
            ("main", "idea")
        ]
        by_version = {one.version: one for one in space_held(storage, by=["version"])}
        assert by_version.keys() == {"main", "idea"}
        by_table = {one.table: one for one in space_held(storage, by=["table"])}
        assert by_table.keys() == {"", "t", "u"}
        assert all(one.own == one.bytes for one in by_table.values()), "tables share nothing"
        held_bytes = sum(len(data) for name, data in storage.objects.items() if name.startswith(("nodes/", "pages/")))
        assert sum(one.bytes for one in by_table.values()) == held_bytes, "every byte has a holder"
        objects = len(storage.objects)
        own = sum(one.own for one in space_held(storage) if one.snapshot == "s")
        before = sum(map(len, storage.objects.values()))
        main.drop_snapshot("s")
        assert len(storage.objects) < objects
        freed = before - sum(map(len, storage.objects.values()))
        assert abs(freed - own) < 2000  # the pointer's own size changes, too
        own = {one.version: one.own for one in space_held(storage, by=["version"])}["idea"]
        before = sum(len(data) for name, data in storage.objects.items() if name.startswith(("nodes/", "pages/")))
        store.drop_version("idea")
        put(main, "u", b=1)
        after = sum(len(data) for name, data in storage.objects.items() if name.startswith(("nodes/", "pages/")))
        assert abs(before - after - own) < 1000, "dropping the branch gives back what it alone holds"


def test_a_killed_process_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from strandline.storage import LocalStorage
        from tests.pages.toy import opened, put
        main = opened(LocalStorage(sys.argv[1])).version()
        for n in range(10**6):
            put(main, "t", **{f"{sys.argv[2]}-{n % 30:02}": n})
            print(n, flush=True)
    """)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    storage = LocalStorage(tmp_path / "store")
    with created(storage) as store:
        put(store.version(), "t", start=1)
    trials = int(os.environ.get("STRANDLINE_TRIALS", "3"))
    for trial in range(trials):
        process = subprocess.Popen(
            [sys.executable, "-c", script, storage.url, str(trial)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        for _ in range(10 + 7 * (trial % 20)):
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        last = max([last, *(int(line) for line in process.stdout.read().split())])
        process.wait()
        clock = Clock()
        with opened(storage, clock) as store:
            rows = all_rows(store.version().view())["t"]
            newest = max(n for key, n in rows.items() if key.startswith(f"{trial}-") and isinstance(n, int))
            assert newest in (last, last + 1)
            store.beat()
            clock.time += 61
            store.beat()
            put(store.version(), "t", start=trial)
        assert_sound(storage)
    print(f"{trials} processes killed")
