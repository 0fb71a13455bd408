"""Every backend keeps the seam's promises: one suite over all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.storage import s3

from strandline.errors import AlreadyExists, InputError, NotFound, StorageError, SwapLost
from strandline.storage import (
    LocalStorage,
    MemoryStorage,
    Storage,
    Stored,
    auditing,
    open_storage,
    put_new,
)

Opener = Callable[[], Storage]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3.bucket() as name:
        yield name


@pytest.fixture(params=["local", "local without unnamed files", "memory", "s3"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same place again and again, as another process would."""
    if request.param == "memory":
        memory = MemoryStorage()
        return lambda: memory
    if request.param == "s3":
        url = f"s3://{request.getfixturevalue('bucket')}/{tmp_path.name}"
        return lambda: open_storage(url)
    if request.param == "local":
        return lambda: open_storage(tmp_path / "store")

    def without_unnamed() -> Storage:
        storage = LocalStorage(tmp_path / "store")
        storage._unnamed_works = False
        return storage

    return without_unnamed


def test_what_was_put_is_read_back_by_another_opener(opener: Opener) -> None:
    opener().put_if_absent("pages/a-1.parquet", b"rows")
    assert opener().get("pages/a-1.parquet") == b"rows"


def test_a_name_is_taken_once(opener: Opener) -> None:
    opener().put_if_absent("pages/a", b"first")
    with pytest.raises(AlreadyExists):
        opener().put_if_absent("pages/a", b"second")
    assert opener().get("pages/a") == b"first"


def test_many_objects_are_put_together(opener: Opener) -> None:
    opener().put_all({f"pages/{n}": bytes([n]) for n in range(20)} | {"nodes/x": b"x"})
    assert [opener().get(f"pages/{n}") for n in range(20)] == [bytes([n]) for n in range(20)]
    opener().put_all({})


def test_what_was_put_for_a_swap_stays_whatever_becomes_of_the_swap(opener: Opener) -> None:
    storage = opener()
    token = storage.compare_and_swap("MASTER", None, b"one")
    assert put_new(storage, {"pages/a": b"a", "nodes/b": b""}, for_swap=True) == []
    assert [opener().get(name) for name in ("pages/a", "nodes/b")] == [b"a", b""]
    assert put_new(storage, {"pages/a": b"other", "nodes/c": b"c"}, for_swap=True) == ["pages/a"]
    newer = storage.swap_after(["pages/a", "nodes/b"], "MASTER", token, b"two")
    with pytest.raises(SwapLost):
        storage.swap_after(["nodes/c"], "MASTER", token, b"three")
    assert opener().get_with_token("MASTER") == Stored(b"two", newer)
    assert [opener().get(name) for name in ("pages/a", "nodes/b", "nodes/c")] == [b"a", b"", b"c"]


def test_what_is_absent_is_not_found(opener: Opener) -> None:
    for read in (opener().get, opener().get_with_token):
        with pytest.raises(NotFound):
            read("pages/none")
    with pytest.raises(NotFound):
        opener().get_range("pages/none", 0, 1)


def test_ranges_end_with_the_value(opener: Opener) -> None:
    opener().put_if_absent("pages/a", b"0123456789")
    storage = opener()
    assert storage.get_range("pages/a", 2, 3) == b"234"
    assert storage.get_range("pages/a", 8, 100) == b"89"
    assert storage.get_range("pages/a", 10, 5) == b""
    assert storage.get_range("pages/a", 3, 0) == b""


def test_a_swap_needs_the_current_token(opener: Opener) -> None:
    first = opener().compare_and_swap("MASTER", None, b"one")
    second = opener().compare_and_swap("MASTER", first, b"two")
    assert first != second
    with pytest.raises(SwapLost):
        opener().compare_and_swap("MASTER", first, b"three")
    stored = opener().get_with_token("MASTER")
    assert (stored.value, stored.token) == (b"two", second)


def test_a_first_swap_expects_nothing_there(opener: Opener) -> None:
    opener().compare_and_swap("MASTER", None, b"one")
    with pytest.raises(SwapLost):
        opener().compare_and_swap("MASTER", None, b"two")
    stale = opener().get_with_token("MASTER").token
    opener().delete("MASTER")
    with pytest.raises(SwapLost):
        opener().compare_and_swap("MASTER", stale, b"three")


def test_of_many_swappers_exactly_one_wins_each_turn(opener: Opener) -> None:
    opener().compare_and_swap("COUNT", None, b"0 nobody")

    def add_five(name: str) -> None:
        storage, done = opener(), 0
        while done < 5:
            stored = storage.get_with_token("COUNT")
            try:
                count = int(stored.value.split()[0]) + 1
                storage.compare_and_swap("COUNT", stored.token, f"{count} {name}".encode())
                done += 1
            except SwapLost:
                continue

    threads = [threading.Thread(target=add_five, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opener().get("COUNT").split()[0] == b"20"


def test_of_two_creators_one_wins(opener: Opener) -> None:
    outcomes: list[str] = []
    gate = threading.Barrier(2)

    def create(value: bytes) -> None:
        storage = opener()
        gate.wait()
        try:
            storage.put_if_absent("MASTER", value)
            outcomes.append("won")
        except AlreadyExists:
            outcomes.append("lost")

    threads = [threading.Thread(target=create, args=(value,)) for value in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost", "won"]


def test_deleting_twice_is_no_error(opener: Opener) -> None:
    opener().put_if_absent("pages/a", b"x")
    opener().delete("pages/a")
    opener().delete("pages/a")
    with pytest.raises(NotFound):
        opener().get("pages/a")


def test_listing_raises_outside_an_audit(opener: Opener) -> None:
    opener().put_all({"pages/a": b"", "pages/b": b"", "nodes/c": b"", "pagesx": b""})
    with pytest.raises(StorageError, match="checking a store only"):
        list(opener().list("pages/"))
    with auditing():
        assert sorted(opener().list("pages/")) == ["pages/a", "pages/b"]
        assert sorted(opener().list("")) == ["nodes/c", "pages/a", "pages/b", "pagesx"]


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", ".hidden", "a/.lock", "a\\b", "a\n"])
def test_names_that_could_leave_the_root_are_refused(opener: Opener, name: str) -> None:
    for use in (opener().get, opener().delete, opener().get_with_token):
        with pytest.raises(InputError):
            use(name)
    with pytest.raises(InputError):
        opener().put_if_absent(name, b"")
    with pytest.raises(InputError):
        opener().compare_and_swap(name, None, b"")


def test_a_url_with_credentials_is_refused() -> None:
    with pytest.raises(InputError, match="credentials"):
        open_storage("s3://key:secret@bucket/shop")
    with pytest.raises(InputError, match="not known"):
        open_storage("ftp://host/shop")


def test_a_bucket_that_is_not_there_is_said(bucket: str) -> None:
    url = f"s3://{bucket}-elsewhere/shop"
    missing = open_storage(url)
    for write in (lambda: missing.put_if_absent("a", b"1"), lambda: missing.compare_and_swap("a", None, b"1")):
        with pytest.raises(StorageError, match=f"{url}: there is no such bucket.*Create the bucket"):
            write()
    with pytest.raises(NotFound):
        missing.get("a")
