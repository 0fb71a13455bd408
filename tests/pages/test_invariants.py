"""Each numbered invariant, broken on purpose: its own predicate says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pages.toy import assert_sound, created, put

from strandline.pages import check_store
from strandline.pages.check import INVARIANTS
from strandline.pages.format.master import MASTER, decode_master, encode_master
from strandline.pages.format.node import NodeRef
from strandline.pages.format.pointer import ChunkedList, Freed, LogEntry, Pointer, decode_pointer, encode_pointer
from strandline.pages.ids import NO_DOMAIN, CommitNumber, PhysicalPage, ProcessId, VersionObject
from strandline.pages.process_registry import PROCESSES, ProcessRegistry, decode_registry, encode_registry
from strandline.storage import MemoryStorage


def shop() -> tuple[MemoryStorage, dict[str, VersionObject]]:
    storage = MemoryStorage()
    store = created(storage)
    main = store.version()
    put(main, "t", **{f"k{n:02}": n for n in range(20)})
    main.name_snapshot("monday")
    put(main, "t", k00=1)
    put(store.fork("idea"), "t", k00=2)
    assert_sound(storage)
    return storage, store.versions()


def edited(storage: MemoryStorage, name: VersionObject, edit: Callable[[Pointer], Pointer]) -> None:
    pointer = decode_pointer(name, storage.objects[name])
    storage.objects[name] = encode_pointer(edit(pointer))


def registry(storage: MemoryStorage, edit: Callable[[ProcessRegistry], ProcessRegistry]) -> None:
    storage.objects[PROCESSES] = encode_registry(edit(decode_registry(storage.objects[PROCESSES])))


def root(pointer: Pointer) -> NodeRef:
    assert pointer.root is not None
    return pointer.root


def blocks_forgotten(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    registry(storage, lambda now: replace(now, next_block=0))


def page_gone(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    del storage.objects[min(name for name in storage.objects if name.startswith("pages/"))]


def swap_not_logged(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    edited(storage, versions["main"], lambda now: replace(now, swap="another"))


def root_from_the_future(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    edited(
        storage, versions["idea"], lambda now: replace(now, root=replace(root(now), born=CommitNumber(now.commit + 5)))
    )


def root_in_another_place(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    edited(storage, versions["main"], lambda now: replace(now, root=replace(root(now), level=3)))


def freed_although_named(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    def free(now: Pointer) -> Pointer:
        freed = Freed(CommitNumber(99), CommitNumber(1), NO_DOMAIN, root(now).name)
        return replace(now, freed=ChunkedList((freed.to_json(),)))

    edited(storage, versions["main"], free)


def floor_of_no_state(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    def raised(now: ProcessRegistry) -> ProcessRegistry:
        record = next(iter(now.processes.values()))
        return now.with_record(replace(record, floors={**record.floors, versions["main"]: CommitNumber(999)}))

    registry(storage, raised)


def not_fenced_everywhere(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    master = decode_master(storage.objects[MASTER])
    storage.objects[MASTER] = encode_master(replace(master, fenced=frozenset([ProcessId(77)])))


def log_goes_down(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    def turned(now: Pointer) -> Pointer:
        late = LogEntry(CommitNumber(now.commit + 9), "x", 0.0, "commit", "")
        return replace(now, log=ChunkedList((late.to_json(), *now.log.inline)))

    edited(storage, versions["main"], turned)


def fork_not_held(storage: MemoryStorage, versions: dict[str, VersionObject]) -> None:
    edited(storage, versions["main"], lambda now: replace(now, forks=()))


BREAKS = {
    1: blocks_forgotten,
    2: page_gone,
    3: swap_not_logged,
    4: root_from_the_future,
    5: root_in_another_place,
    6: freed_although_named,
    7: floor_of_no_state,
    8: not_fenced_everywhere,
    9: log_goes_down,
    10: fork_not_held,
}


@pytest.mark.parametrize("number", INVARIANTS)
def test_each_invariant_is_noticed_when_it_is_broken(number: int) -> None:
    storage, versions = shop()
    BREAKS[number](storage, versions)
    report = check_store(storage)
    assert number in {finding.invariant for finding in report.findings}, report.findings
    before = dict(storage.objects)
    check_store(storage, repair=True)
    if number in (2, 5):
        assert storage.objects == before, "nothing is removed beside what can't be read"
    else:
        named = {name for name in before if name not in storage.objects}
        assert not named, "a repair removes nothing that a state names"


FOREIGN = st.one_of(
    st.from_regex(r"(nodes|pages|versions|staging)/[A-Za-z0-9_][A-Za-z0-9._=-]{0,12}", fullmatch=True),
    st.sampled_from(
        [
            "pages/1-2.csv",
            "pages/01-2.parquet",
            "nodes/1-2.parquet",
            "pages/1-2",
            "pages/1-A.parquet",
            "staging/notes.txt",
        ]
    ),
)


@given(st.sets(FOREIGN, max_size=6))
def test_a_repair_removes_only_objects_whose_names_the_store_gave_out(names: set[str]) -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        put(store.version(), "t", a=1)
        stem = store.context.membership.stem()
        lost = f"pages/{stem}.parquet"
        store.context.membership.settled([PhysicalPage(lost)])
    own = re.compile(r"(pages/[0-9a-f]+-[0-9a-f]+[.]parquet|(nodes|versions)/[0-9a-f]+-[0-9a-f]+)")
    foreign = {name for name in names if own.fullmatch(name) is None or not _is_plain(name)}
    for name in (*foreign, lost):
        storage.objects.setdefault(name, b"somebody's")
    report = check_store(storage, repair=True)
    assert report.removed == [lost]
    assert foreign <= storage.objects.keys()
    assert check_store(storage).ok


def _is_plain(name: str) -> bool:
    """Numbers as they are written, without zeros in front."""
    numbers = re.split("[-.]", name.rpartition("/")[2])[:2]
    return all(number == f"{int(number, 16):x}" for number in numbers)


class Busy(MemoryStorage):
    """While somebody reads, somebody else commits: after the read of that number."""

    def __init__(self) -> None:
        super().__init__()
        self.at = -1
        self.meanwhile: Callable[[], object] = lambda: None

    def get(self, name: str) -> bytes:
        self.at -= 1
        if self.at == 0:
            self.meanwhile()
        return super().get(name)


def test_nothing_seems_gone_beside_a_writer() -> None:
    storage = Busy()
    with created(storage) as store:
        main = store.version()
        for turn in range(3):
            put(main, "t", **{f"k{n:02}": turn for n in range(30)})
            main.name_snapshot(f"s{turn}")
        for at in range(1, 60):

            def work(turn: int = at) -> None:
                put(main, "t", **{f"k{n:02}": -turn for n in range(30)})
                main.name_snapshot(f"t{turn}")
                main.drop_snapshot(main.snapshots()[0].name)
                put(main, "t", a=turn)

            storage.at, storage.meanwhile = at, work
            report = check_store(storage)
            assert report.ok, (at, report.findings, report.unreachable)
        storage.at = -1
    assert_sound(storage)
