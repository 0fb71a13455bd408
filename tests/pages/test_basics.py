"""Commits, reads, snapshots: the everyday life of a store."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.pages.toy import Clock, all_rows, assert_sound, created, domain_of, opened, put, read, write

from strandline.errors import AlreadyExists, InputError, InUse, NotFound, SnapshotExpired, StrandlineError
from strandline.pages import Draft, Mode, ReadView
from strandline.pages.batch_queue import PendingCommit
from strandline.storage import LocalStorage, MemoryStorage, handed_over


def test_a_commit_is_seen_after_reopening() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        put(store.version(), "t", a=1, b=2)
    with opened(storage) as store:
        assert all_rows(store.version().view()) == {"t": {"a": 1, "b": 2}}
    assert_sound(storage)


def test_an_abort_touches_nothing() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        before = dict(storage.objects)
        transaction = main.begin()
        write(transaction, domain_of(main, "t"), "a", 2)
        transaction.write_page(b"x" * (2 << 20), 1)
        transaction.abort()
        assert storage.objects == before
        assert all_rows(main.view()) == {"t": {"a": 1}}
    assert_sound(storage)


def test_old_pages_and_nodes_go_when_nobody_needs_them() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=0)
        count = len(storage.objects)
        for n in range(50):
            put(main, "t", a=n)
        assert len(storage.objects) == count
    assert_sound(storage)


def test_a_temporary_snapshot_keeps_its_state_until_closed() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        count = len(storage.objects)
        with main.snapshot() as snapshot:
            for n in range(10):
                put(main, "t", a=n)
            assert all_rows(snapshot.view) == {"t": {"a": 1}}
            assert len(storage.objects) > count
        put(main, "t", a=99)
        assert len(storage.objects) == count
    assert_sound(storage)


def test_a_late_reader_gets_snapshot_expired_and_never_wrong_rows() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        snapshot = main.snapshot()
        view, commit = snapshot.view, snapshot.commit
        snapshot.close()
        put(main, "t", a=2)
        with pytest.raises(SnapshotExpired):
            all_rows(ReadView(view.state, opened(storage).context.objects))
        with pytest.raises(SnapshotExpired):
            main.at(int(commit))


def test_a_named_snapshot_survives_and_dropping_it_frees_its_pages() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1, b=1)
        count = len(storage.objects)
        main.name_snapshot("monday")
        for n in range(5):
            put(main, "t", a=n)
    with opened(storage) as store:
        main = store.version()
        with main.at("monday") as monday:
            assert all_rows(monday.view) == {"t": {"a": 1, "b": 1}}
            with pytest.raises(InUse):
                main.drop_snapshot("monday")
        assert [one.name for one in main.snapshots()] == ["monday"]
        main.drop_snapshot("monday")
        assert all_rows(main.view()) == {"t": {"a": 4, "b": 1}}
        put(main, "t", a=0)
        assert len(storage.objects) == count
        with pytest.raises(NotFound):
            main.at("monday")
    assert_sound(storage)


def test_a_commit_names_its_own_state_or_is_refused_with_a_name_that_is_taken() -> None:
    storage = MemoryStorage()
    with created(storage) as store, opened(storage) as other:
        main = store.version()
        put(main, "t", a=1)
        for name, value in (("one", 2), ("two", 3)):
            main.refresh()
            transaction = main.begin()
            write(transaction, domain_of(main, "t"), "a", value)
            commit = transaction.commit(snapshot=name)
            other.version().refresh()
            put(other.version(), "t", a=9)
            with main.at(name) as snapshot:
                assert (snapshot.commit, all_rows(snapshot.view)) == (commit, {"t": {"a": value}})
        for taken in ("one", ""):
            main.refresh()
            transaction = main.begin()
            write(transaction, domain_of(main, "t"), "a", 4)
            with pytest.raises(InputError, match=r"there is a snapshot one already|needs a name"):
                transaction.commit(snapshot=taken)
        assert all_rows(main.refresh()) == {"t": {"a": 9}}
    assert_sound(storage)


def test_two_transactions_of_one_batch_do_not_give_one_name_twice() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        batch = []
        for key, name in (("b", "one"), ("c", "one"), ("d", "two")):
            transaction = main.begin()
            write(transaction, domain_of(main, "t"), key, 1)
            transaction.snapshot = name
            batch.append(PendingCommit(transaction))
        main.committer.lead(batch)
        assert [type(pending.error) for pending in batch] == [type(None), InputError, type(None)]
        for name in ("one", "two"):
            with main.at(name) as snapshot:
                assert all_rows(snapshot.view)["t"].keys() == set("ab" if name == "one" else "abd")
    assert_sound(storage)


def test_a_temporary_snapshot_becomes_permanent_and_back() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        count = len(storage.objects)
        with main.snapshot() as before:
            put(main, "t", a=2)
            put(main, "t", a=3)
            main.name_snapshot("before", of=before)
        put(main, "t", a=4)
        with main.at("before") as again:
            assert all_rows(again.view) == {"t": {"a": 1}}
        temporary = main.demote("before")
        put(main, "t", a=5)
        assert all_rows(temporary.view) == {"t": {"a": 1}}
        assert main.snapshots() == []
        temporary.close()
        put(main, "t", a=6)
        assert len(storage.objects) == count
    assert_sound(storage)


def test_a_partial_snapshot_holds_only_its_tables() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "kept", a=1)
        put(main, "other", a=1)
        main.name_snapshot("part", domains=[domain_of(main, "kept")])
        put(main, "kept", a=2)
        put(main, "other", a=2)
        with main.at("part") as part:
            assert all_rows(part.view) == {"kept": {"a": 1}}
            with pytest.raises(NotFound, match="partial"):
                part.view.record(domain_of(main, "other"))
            with pytest.raises(InputError, match="partial"):
                store.fork("no", of=part)
        assert_sound(storage)
        main.drop_snapshot("part")
    assert_sound(storage)


def test_a_fork_goes_its_own_way() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1, b=1)
        count = len(storage.objects)
        idea = store.fork("idea")
        put(idea, "t", a=2)
        put(main, "t", b=3)
        assert all_rows(idea.view()) == {"t": {"a": 2, "b": 1}}
        assert all_rows(main.view()) == {"t": {"a": 1, "b": 3}}
        assert_sound(storage)
        store.drop_version("idea")
        put(main, "t", b=4)
        assert len(storage.objects) == count
        assert list(store.versions()) == ["main"]
    assert_sound(storage)


def test_what_others_stand_on_is_not_dropped_and_the_children_are_named() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        main.name_snapshot("monday")
        store.fork("idea", of=main.at("monday"))
        with pytest.raises(InUse, match="idea"):
            main.drop_snapshot("monday")
        store.fork("deeper", parent="idea")
        with pytest.raises(InUse, match="deeper"):
            store.drop_version("idea")
        with pytest.raises(InUse):
            store.drop_version("main")
        with pytest.raises(AlreadyExists):
            store.fork("idea")
        store.drop_version("deeper")
        reader = store.version("idea").snapshot()
        with pytest.raises(InUse, match="read"):
            store.drop_version("idea")
        reader.close()
        store.drop_version("idea")
    assert_sound(storage)


def test_tables_are_created_renamed_described_and_dropped() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "keep", a=1)
        put(main, "t", **{f"k{n:03}": n for n in range(60)})
        t = domain_of(main, "t")
        with main.begin() as transaction:
            transaction.rename_domain(t, "t", "u")
            transaction.set_record(t, b'{"x":1}')
        assert main.view().find_domain("t") is None
        assert main.view().record(domain_of(main, "u")) == b'{"x":1}'
        with pytest.raises(InputError), main.begin() as transaction:
            transaction.create_domain("u", b"{}")
        with main.begin() as transaction:
            transaction.drop_domain(t, "u")
            new = transaction.create_domain("u", b"new")
            write(transaction, new, "z", 1)
        assert all_rows(main.view()) == {"keep": {"a": 1}, "u": {"z": 1}}
        assert transaction.installed[new] == domain_of(main, "u") != t
        put(main, "keep", a=2)
    assert_sound(storage)


def test_reads_see_own_writes_and_rows_move_between_pages() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        rows = {f"k{n:03}": n for n in range(100)}
        put(main, "t", **rows)
        t = domain_of(main, "t")
        with main.begin() as transaction:
            assert read(transaction, t, "k050") == 50
            write(transaction, t, "k050", 51)
            assert read(transaction, t, "k050") == 51
        assert all_rows(main.view())["t"] == rows | {"k050": 51}
        keys = [entry.least or b"" for _, entry in main.view().pages_between(t)]
        assert keys == sorted(keys)
        with main.begin() as transaction:
            for key in rows:
                write(transaction, t, key, None)
        assert all_rows(main.view()) == {"t": {}}
        put(main, "t", **rows)
        assert all_rows(main.view())["t"] == rows
    assert_sound(storage)


def test_pages_change_as_a_whole_beside_row_changes() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        put(main, "u", x=1)
        with main.begin() as transaction:
            t, u = domain_of(main, "t"), domain_of(main, "u")
            entry = transaction.view().page_for(t, b"a")
            assert entry is not None
            page = transaction.write_page(b'{"a": 7}', 1)
            transaction.write_page(b"never named", 1)
            transaction.put_page(t, entry, Draft(page, rows=1, least=b"a", greatest=b"a"))
            transaction.add_page(t, Draft(transaction.write_page(b'{"m": 8}', 1), rows=1), separator=b"m")
            write(transaction, u, "y", 2)
        assert all_rows(main.view()) == {"t": {"a": 7, "m": 8}, "u": {"x": 1, "y": 2}}
        with main.begin() as transaction:
            entry = transaction.view().page_for(t, b"m")
            assert entry is not None
            transaction.remove_page(t, entry, separator=b"m")
        assert all_rows(main.view())["t"] == {"a": 7}
        entries = list(main.view().entries_since(t, main.view().commit - 1))  # type: ignore[arg-type]
        assert [e.base for e in entries if not e.directory] == [None]
    assert_sound(storage)


def test_the_log_tells_what_happened_and_states_are_found_by_time() -> None:
    storage, clock = MemoryStorage(), Clock()
    with created(storage, clock) as store:
        main = store.version()
        with main.begin("first") as transaction:
            write(transaction, transaction.create_domain("t", b"{}"), "a", 1)
        main.name_snapshot("one")
        when = clock.time
        clock.time += 10
        put(main, "t", a=2)
        assert [(e.kind, e.commit, e.message) for e in main.log()] == [
            ("create", 0, ""),
            ("commit", 1, "first"),
            ("snapshot", 1, "one"),
            ("commit", 2, ""),
        ]
        with main.at(when) as state:
            assert all_rows(state.view) == {"t": {"a": 1}}
        with main.at(1) as state, main.at(clock.time) as newest:
            assert (state.commit, newest.commit) == (1, 2)


def test_an_error_of_one_transaction_of_a_batch_does_not_touch_the_others() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        with pytest.raises(ValueError, match="poison"):
            put(main, "t", a="poison")
        put(main, "t", b=1)
        assert all_rows(main.view()) == {"t": {"a": 1, "b": 1}}
        transaction = main.begin()
        transaction.lock_table(domain_of(main, "t"), Mode.X)
        transaction.abort()
    assert_sound(storage)


def test_a_heart_whose_store_was_deleted_beats_on_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    store = created(LocalStorage(tmp_path / "shop"))
    beats, beat = threading.Semaphore(0), store.beat

    def counted() -> object:
        beats.release()
        return beat()

    monkeypatch.setattr(store, "beat", counted)
    store.start_heart(0.001)
    assert beats.acquire(timeout=10)
    (tmp_path / "shop").rename(tmp_path / "gone")
    for _ in range(3):
        assert beats.acquire(timeout=10)
    assert died == []
    with suppress(StrandlineError):
        store.close()


def test_a_commit_that_takes_long_does_not_keep_its_process_from_living() -> None:
    storage, clock = MemoryStorage(), Clock()
    with created(storage, clock) as store, opened(storage, clock) as other:
        put(store.version(), "t", a=1)
        with store.version().exclusive.held():  # as a commit does while it writes
            for _ in range(5):
                clock.time += store.context.environment.patience * 0.6
                handed_over(store.beat)
                other.beat()
        put(store.version(), "t", a=2)
        assert all_rows(other.version().refresh()) == {"t": {"a": 2}}
