"""A flipped byte anywhere in the control plane is noticed; what can't be understood is refused."""

from __future__ import annotations

import threading

import pytest
from tests.pages.toy import all_rows, assert_sound, created, opened, put

from strandline.errors import AlreadyExists, Damaged, FormatError, NotFound, StrandlineError
from strandline.pages import check_store
from strandline.pages.format.envelope import FORMAT, seal
from strandline.storage import MemoryStorage


def sample() -> MemoryStorage:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1, b=2)
        main.name_snapshot("s")
        put(main, "t", a=3)
    return storage


def read_everything(storage: MemoryStorage) -> object:
    store = opened(storage)
    main = store.version()
    with main.at("s") as snapshot:
        return all_rows(main.view()), all_rows(snapshot.view)


def detected(damaged: MemoryStorage, truth: object) -> bool:
    """Reading raises; or the byte was not on the reader's way, the answer is right, and check finds it."""
    try:
        return read_everything(damaged) == truth and bool(check_store(damaged).findings)
    except (Damaged, FormatError):
        return True


@pytest.mark.parametrize("folder", ["MASTER", "PROCESSES", "versions/", "nodes/", "pages/"])
def test_each_flipped_byte_is_detected(folder: str) -> None:
    storage = sample()
    truth = read_everything(MemoryStorage(storage.objects))
    tried = 0
    for name in [name for name in storage.objects if name.startswith(folder)]:
        value = storage.objects[name]
        for place in range(0, len(value), 1 if len(value) < 2000 else 3):
            flipped = bytearray(value)
            flipped[place] ^= 1 << (place % 8)
            damaged = MemoryStorage({**storage.objects, name: bytes(flipped)})
            assert detected(damaged, truth), (name, place)
            tried += 1
    assert tried > 30
    print(f"{folder}: {tried} flipped bytes")


def test_check_names_what_is_wrong_and_where() -> None:
    storage = sample()
    page = next(name for name in storage.objects if name.startswith("pages/"))
    storage.objects[page] = storage.objects[page][:-1] + b"!"
    report = check_store(storage)
    assert any(page in finding.where for finding in report.findings)
    del storage.objects[page]
    report = check_store(storage)
    assert any(page in finding.where and finding.invariant == 2 for finding in report.findings)
    assert not report.unreachable


def test_repair_removes_only_what_is_unreachable() -> None:
    storage = sample()
    before = dict(storage.objects)
    storage.objects["pages/1-3ff.parquet"] = b"stray"
    assert check_store(storage).unreachable == ["pages/1-3ff.parquet"]
    with opened(storage) as store:
        writing = store.version().begin()
        page = writing.write_page(b"y" * (1 << 20), 1)
        assert check_store(storage, repair=True).removed == ["pages/1-3ff.parquet"]
        assert page.name in storage.objects
        writing.abort()
    assert {n: v for n, v in storage.objects.items() if n != "PROCESSES"} == {
        n: v for n, v in before.items() if n != "PROCESSES"
    }
    assert_sound(storage)


def test_a_node_in_the_place_of_another_is_detected() -> None:
    storage = sample()
    nodes = sorted(n for n, v in storage.objects.items() if v.startswith(b"strandline node"))
    storage.objects[nodes[0]], storage.objects[nodes[-1]] = (
        storage.objects[nodes[-1]],
        storage.objects[nodes[0]],
    )
    with pytest.raises(StrandlineError):
        read_everything(storage)


def test_a_newer_format_is_refused() -> None:
    storage = sample()
    text = storage.objects["MASTER"].replace(b"master %d " % FORMAT, b"master %d " % (FORMAT + 1), 1)
    storage.objects["MASTER"] = text
    with pytest.raises(FormatError, match="newer release"):
        opened(storage)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(NotFound, match="no store"):
        opened(MemoryStorage())
    with pytest.raises(FormatError):
        opened(MemoryStorage({"MASTER": b"hello"}))
    with pytest.raises(StrandlineError):
        opened(MemoryStorage({"MASTER": seal("pointer", {})}))


def test_of_two_creators_at_once_one_wins() -> None:
    for _ in range(10):
        storage = MemoryStorage()
        gate = threading.Barrier(3)
        outcomes: list[str] = []

        def create(storage: MemoryStorage = storage, gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                created(storage).close()
                outcomes.append("made")  # noqa: B023
            except AlreadyExists:
                outcomes.append("there")  # noqa: B023

        threads = [threading.Thread(target=create) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["made", "there", "there"]
        with opened(storage) as store:
            put(store.version(), "t", a=1)
        assert_sound(storage)
