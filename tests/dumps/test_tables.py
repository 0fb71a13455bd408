"""Dumps of real tables: while eight writers work, table by table, encrypted, on S3, on Spark."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.pages.toy import Clock
from tests.storage.s3 import bucket
from tests.tables.shop import numbered, rows, shop

import strandline as sl
from strandline.dumps import Dumps, restore
from strandline.dumps.encryption import VARIABLE
from strandline.errors import AlreadyExists, Conflict, InputError, NotFound
from strandline.pages import check_store
from strandline.storage import LocalStorage, MemoryStorage
from strandline.store import Store, create_on, open_on

ACCOUNTS, EACH, WRITERS = 60, 100, 8
KEY = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"


class Writers:
    """Threads that move money between accounts until they are told to stop. Each move is also booked."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._work, args=(n,)) for n in range(WRITERS)]
        self.moved = 0
        self.changed = threading.Condition()

    def more(self, count: int) -> None:
        """Wait until so many more moves are committed."""
        with self.changed:
            wanted = self.moved + count
            assert self.changed.wait_for(lambda: self.moved >= wanted or self.errors, timeout=60)

    def __enter__(self) -> Writers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _work(self, seed: int) -> None:
        chance, count = random.Random(seed), 0
        while not self.stop.is_set():
            count += 1
            try:
                self._move(chance, seed * 1_000_000 + count)
                with self.changed:
                    self.moved += 1
                    self.changed.notify_all()
            except Conflict:
                continue
            except BaseException as error:
                self.errors.append(error)
                return

    def _move(self, chance: random.Random, number: int) -> None:
        one, other = chance.sample(range(ACCOUNTS), 2)
        with self.store.transaction() as tx:
            tx.update("accounts", where="id = :i", set={"money": "money - 1"}, params={"i": one})
            tx.update("accounts", where="id = :i", set={"money": "money + 1"}, params={"i": other})
            tx.insert("moves", pa.table({"id": [number], "source": [one], "sink": [other]}))


def assert_consistent(store: Store) -> int:
    """No money is lost, and every account is what the booked moves make of it; how many moves there are."""
    accounts = {row["id"]: row["money"] for row in rows(store, "accounts")}
    moves = rows(store, "moves")
    expected = dict.fromkeys(range(ACCOUNTS), EACH)
    for move in moves:
        expected[move["source"]] -= 1
        expected[move["sink"]] += 1
    assert accounts == expected
    return len(moves)


def test_dumps_taken_while_eight_writers_work_are_transaction_consistent() -> None:
    target = MemoryStorage()
    with shop() as store:
        money = pa.table({"id": range(ACCOUNTS), "money": [EACH] * ACCOUNTS})
        store.create_table("accounts", money, key="id")
        empty = pa.schema([("id", pa.int64()), ("source", pa.int64()), ("sink", pa.int64())])
        store.create_table("moves", empty, key="id")
        with Writers(store) as writers:
            ids = []
            for level in (0, 1, 2, 2, 1, 3, 0):
                writers.more(10)
                ids.append(dump(store, target, level=level).id)
        assert not writers.errors
    counts = []
    for id_ in ids:
        into = MemoryStorage()
        restore(target, into, at=id_)
        assert check_store(into).ok
        with open_on(into) as store:
            counts.append(assert_consistent(store))
            store.autocommit(lambda tx: tx.update("accounts", where="id = 0", set={"money": "money"}))
    assert all(later >= earlier + 10 for earlier, later in pairwise(counts))
    assert Dumps(target).verify().ok


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def test_a_store_dumped_and_restored_on_disk_keeps_row_numbers_schema_and_history(place: Path) -> None:
    with sl.create(place / "shop") as store:
        store.create_table("orders", numbered(500), key="id")
        store.snapshot("monday")
        store.branch("idea").table("orders").update(where="id < 10", set={"v": "-1"})
        made = store.dump(place / "backups")
        store.table("orders").delete(where="id % 7 = 0")
        store.autocommit(lambda tx: tx.add_column("orders", "note", "string", default="none"))
        store.table("orders").upsert([{"id": 3, "v": 33, "note": "changed"}])
        increment = store.dump(place / "backups", level=1)
        expected = {at: rows(store, "orders", at=at) for at in (None, "monday")}
        numbers = store.table("orders").to_arrow(columns=["id", "_row"]).to_pylist()
        idea = rows(store.version("idea"), "orders")
    assert 0 < increment.bytes < made.bytes * 2
    (place / "backups").rename(place / "moved")
    done = sl.restore(place / "moved", place / "again")
    assert done.chain == (made.id, increment.id)
    with sl.open(place / "again") as store:
        assert store.check().ok
        assert {at: rows(store, "orders", at=at) for at in (None, "monday")} == expected
        assert store.table("orders").to_arrow(columns=["id", "_row"]).to_pylist() == numbers
        assert rows(store.version("idea"), "orders") == idea
        assert store.log()[-1].kind == "restore"
        store.table("orders").insert([{"id": 9999, "v": 1, "note": "new"}])
        again = store.dump(place / "moved", level=1)
        assert (again.level, again.parent) == (0, None), "a restored store is another store"
        assert store.check().ok


def test_a_dump_of_tables_is_no_store_and_the_last_whole_one_is_named(place: Path) -> None:
    with sl.create(place / "shop") as store:
        store.create_table("orders", numbered(3), key="id")
        store.dump(place / "tables", tables=["orders"])
        with pytest.raises(InputError, match=r"Choose tables to restore\.$"):
            sl.restore(place / "tables", place / "again")
        whole = store.dump(place / "backups")
        store.table("orders").delete(where="id = 1")
        store.dump(place / "backups", tables=["orders"])
    with pytest.raises(InputError, match=f"the last dump that is no choice of tables is {whole.id}"):
        sl.restore(place / "backups", place / "again")
    assert sl.restore(place / "backups", place / "again", at=whole.id).dump == whole.id


def test_chosen_tables_go_into_a_store_that_is_there_or_a_new_one(place: Path) -> None:
    backups = place / "backups"
    with sl.create(place / "shop") as store:
        store.create_table("orders", numbered(300), key="id")
        store.create_table("staff", numbered(20), key="id")
        store.create_table("log", pa.table({"line": ["a", "b"]}))
        store.table("orders").update(where="id < 5", set={"v": "7"})
        store.dump(backups)
        before = rows(store, "orders", columns=["id", "v", "_row"])
        store.table("orders").delete(where="id > 3")
        with pytest.raises(AlreadyExists, match="orders_restored"):
            sl.restore(backups, place / "shop", tables=["orders"])
        done = sl.restore(backups, place / "shop", tables={"orders": "orders_before", "log": "log2"})
        assert done.tables == ("orders_before", "log2")
        assert rows(store, "orders_before", columns=["id", "v", "_row"]) == before
        assert rows(store, "log2") == [{"line": "a"}, {"line": "b"}]
        store.table("orders_before").insert([{"id": 1000, "v": 0}])
        store.table("log2").insert([{"line": "c"}])
        numbers = [row["_row"] for row in rows(store, "orders_before", columns=["_row"])]
        assert len(set(numbers)) == len(numbers)
        with pytest.raises(NotFound, match=r"no table nothing.*log, orders, staff"):
            sl.restore(backups, place / "shop", tables=["nothing"])
        assert store.check().ok
    sl.restore(backups, place / "new", tables=["staff"])
    with sl.open(place / "new") as store:
        assert store.tables() == ["staff"]
        assert store.table("staff").count() == 20
        assert store.check().ok


def test_a_dump_of_some_tables_holds_only_those_and_their_increments(place: Path) -> None:
    target = MemoryStorage()
    with shop() as store:
        store.create_table("small", numbered(10), key="id")
        store.create_table("large", numbered(5000), key="id")
        first = dump(store, target, tables=["small"])
        assert first.bytes < 10_000
        store.table("large").update(set={"v": "0"})
        assert dump(store, target, level=1, tables=["small"]).pages <= 1
        store.drop_table("small")
        store.create_table("small", numbered(3), key="id")
        dump(store, target, level=2, tables=["small"])
        whole = dump(store, target, level=1)
        assert whole.level == 0, "a dump of everything does not stand on one of some tables"
    for id_, count in ((first.id, 10), (list(Dumps(target).entries())[2].id, 3)):
        into = MemoryStorage()
        restore(target, into, at=id_, tables=["small"])
        with open_on(into) as store:
            assert store.table("small").count() == count
            assert store.check().ok
    with pytest.raises(InputError, match="holds small only"):
        restore(target, MemoryStorage(), at=first.id)
    assert Dumps(target).verify().ok


def dump(store: Store, target: Any, **how: Any) -> Any:
    return store.dump(target, **how)


def test_encrypted_dumps_show_nothing_and_need_their_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, other = place / "key", place / "other"
    key.write_text(KEY + "\n")
    other.write_bytes(bytes(32))
    target = MemoryStorage()
    with shop() as store:
        store.create_table("secrets", pa.table({"id": [1], "word": ["rhododendron"]}), key="id")
        dump(store, target, key_file=key)
        store.table("secrets").upsert([{"id": 2, "word": "hydrangea"}])
        monkeypatch.setenv(VARIABLE, KEY)
        dump(store, target, level=1)
        monkeypatch.delenv(VARIABLE)
        everything = b"".join(target.objects.values())
        for word in (b"rhododendron", b"hydrangea", b"secrets", b"word", bytes.fromhex(KEY), KEY.encode()):
            assert word not in everything
        with pytest.raises(InputError, match="no key was given"):
            dump(store, target, level=1)
        with pytest.raises(InputError, match="not the key of these dumps"):
            restore(target, MemoryStorage(), key_file=other)
        with pytest.raises(NotFound, match="openssl rand"):
            restore(target, MemoryStorage(), key_file=place / "nothing")
        monkeypatch.setenv(VARIABLE, "too short")
        with pytest.raises(InputError, match="no key of 32 bytes"):
            restore(target, MemoryStorage())
    monkeypatch.setenv(VARIABLE, KEY)
    assert Dumps(target).verify().ok
    Dumps(target).synthesize()
    into = MemoryStorage()
    restore(target, into)
    with open_on(into) as store:
        assert [row["word"] for row in rows(store, "secrets")] == ["rhododendron", "hydrangea"]
    name = next(name for name in target.objects if "/pack-" in name)
    target.objects[name] = target.objects[name][:-1] + bytes([target.objects[name][-1] ^ 1])
    assert "authentication" in Dumps(target).verify().damages[0].what
    plain = MemoryStorage()
    with shop() as store:
        monkeypatch.delenv(VARIABLE)
        dump(store, plain)
        with pytest.raises(InputError, match="not encrypted, but a key was given"):
            dump(store, plain, key_file=key)


def test_a_synthetic_full_restores_the_same_and_is_built_upon() -> None:
    target = MemoryStorage()
    with shop() as store:
        store.create_table("t", numbered(2000), key="id")
        for level in (0, 1, 2):
            store.table("t").update(where=f"id % {level + 2} = 0", set={"v": "v + 1"})
            store.snapshot(f"s{level}")
            dump(store, target, level=level)
        made = Dumps(target).synthesize()
        dumps = Dumps(target)
        assert dumps.manifest().id == made.id, "the shortest chain to the last state"
        store.table("t").delete(where="id < 100")
        after = dump(store, target, level=1)
        assert after.parent == made.id
        expected = {at: rows(store, "t", at=at) for at in (None, "s0", "s1", "s2")}
        pruned = dumps.prune("1 last", confirm=True)
        assert set(pruned.kept) == {made.id, after.id}
    with pytest.raises(InputError, match="level 0 already"):
        Dumps(target).synthesize(made.id)
    into = MemoryStorage()
    restore(target, into)
    assert check_store(into).ok
    with open_on(into) as store:
        assert {at: rows(store, "t", at=at) for at in expected} == expected


def test_dumps_live_on_an_object_store(place: Path) -> None:
    with bucket() as name, sl.create(place / "shop") as store:
        store.create_table("t", numbered(100), key="id")
        store.dump(f"s3://{name}/backups")
        store.table("t").delete(where="id > 50")
        store.dump(f"s3://{name}/backups", level=1)
        assert Dumps(f"s3://{name}/backups").verify().ok
        sl.restore(f"s3://{name}/backups", f"s3://{name}/again")
        with sl.open(f"s3://{name}/again") as again:
            assert again.table("t").count() == 51
            assert again.check().ok
        Dumps(f"s3://{name}/backups").prune("1 last", confirm=True)


def test_spark_copies_pages_both_ways(place: Path, spark: Any) -> None:
    with sl.create(place / "shop", session=spark) as store:
        store.create_table("t", numbered(1000), key="id")
        made = store.dump(place / "backups", runner="spark")
        assert made.pages > 0
    sl.restore(place / "backups", place / "again", runner="spark", session=spark)
    with sl.open(place / "again") as store:
        assert store.table("t").count() == 1000
        assert store.check().ok
    assert Dumps(LocalStorage(place / "backups")).verify().ok


@pytest.mark.parametrize("how", [{"tables": {"orders": "orders_before"}}, {"branch": "before"}])
def test_a_process_that_restores_into_a_living_store_shows_that_it_lives(how: Any) -> None:
    """Whatever it takes, others do not fence it."""

    class Watched(MemoryStorage):
        beating: ClassVar[list[bool]] = []

        def put_all(self, objects: Mapping[str, bytes]) -> None:
            self.beating.append(any(thread.name == "strandline-heart" for thread in threading.enumerate()))
            super().put_all(objects)

    target: Any = MemoryStorage()
    into = Watched()
    with create_on(into, environment=Clock().environment()) as store:
        store.create_table("orders", numbered(30), key="id")
        store.dump(target)
    Watched.beating.clear()
    restore(target, into, **how)
    assert Watched.beating
    assert all(Watched.beating)


def test_tables_come_back_under_names_that_no_what_if_and_no_view_has() -> None:
    target, storage = MemoryStorage(), MemoryStorage()
    with create_on(storage) as store:
        store.create_table("orders", numbered(3), key="id")
        store.create_table("staff", numbered(2), key="id")
        store.table("orders").what_if("idea").delete(where="id = 1")
        store.view("few", "SELECT id FROM orders WHERE id < 2")
        dump(store, target)
        for name, what in (("idea", "what-if"), ("few", "view"), ("orders", "table")):
            with pytest.raises(AlreadyExists, match=f"there is a {what} {name} already.*staff={name}_restored"):
                restore(target, storage, tables={"staff": name})
        for hidden in ("_what_ifs", "_views", "_what_if.idea"):
            with pytest.raises(NotFound, match=rf"the dump has no table {hidden}.*Tables: orders, staff"):
                restore(target, storage, tables={hidden: "mine"})
        store.what_if("idea").drop()
        restore(target, storage, tables={"staff": "idea"})
        assert rows(store, "idea") == rows(store, "staff")
        assert store.check().ok


def test_the_last_dump_with_the_version_is_restored_and_main_is_the_default() -> None:
    target, storage = MemoryStorage(), MemoryStorage()
    with create_on(storage) as store:
        store.create_table("orders", numbered(10), key="id")
        idea = store.branch("idea")
        idea.table("orders").delete(where="id > 4")
        whole = dump(store, target)
        alone = dump(store, target, version="idea")
        assert restore(target, MemoryStorage()).dump == whole.id
        assert restore(target, MemoryStorage(), version="idea").dump == alone.id
        assert restore(target, MemoryStorage(), at=alone.id).notice == "This is version idea alone, as main."
        assert restore(target, storage, tables={"orders": "again"}).dump == whole.id
        assert restore(target, storage, branch="monday").dump == whole.id
        assert restore(target, storage, branch="tuesday", version="main").dump == whole.id
        assert restore(target, storage, branch="wednesday", version="idea").dump == alone.id
        assert [store.version(name).table("orders").count() for name in ("monday", "tuesday", "wednesday")] == [
            10,
            10,
            5,
        ]
        assert store.table("again").count() == 10
        few = dump(store, target, tables=["again"])
        assert restore(target, storage, tables={"orders": "more"}).dump == whole.id
        assert restore(target, storage, tables={"again": "last"}).dump == few.id
        with pytest.raises(InputError, match="holds again only"):
            restore(target, storage, branch="thursday")
        with pytest.raises(NotFound, match=r"no version none in any dump.*idea, main"):
            restore(target, MemoryStorage(), version="none")
        other = MemoryStorage()
        dump(store, other, version="idea")
        assert restore(other, MemoryStorage()).notice == "This is version idea alone, as main."
        for what in ({"branch": "friday"}, {"tables": ["orders"]}):
            with pytest.raises(NotFound, match=r"no version main in any dump.*Versions: idea"):
                restore(other, storage, **what)


def test_a_time_at_the_ends_of_the_calendar_finds_the_last_dump_or_none() -> None:
    target = MemoryStorage()
    with shop() as store:
        made = dump(store, target)
    assert restore(target, MemoryStorage(), at=dt.datetime.max).dump == made.id
    with pytest.raises(NotFound, match="no dump was taken by"):
        restore(target, MemoryStorage(), at=dt.datetime.min)
    for wrong in (3, True, dt.date(2030, 1, 31), b"x"):
        with pytest.raises(InputError, match=r"is no dump.*Give a dump's id, or a datetime"):
            restore(target, MemoryStorage(), at=wrong)  # type: ignore[arg-type]
