"""Copying pages in packs: from a store into a dump, from dumps into a store, from dumps into a dump.

A pack is one work item: on a few threads of this process when there is little to copy, as Spark tasks when there is
much. Every page is verified by its checksum on its way. Encrypted dumps are copied in this process, so that the key
never leaves it. On a terminal, a bar on standard error shows the bytes copied and the time left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from strandline.dumps.manifest import Pack
from strandline.dumps.target import DumpFolder, pack_name
from strandline.dumps.throttle import Throttle, throttle_beside_writers
from strandline.engine import Attempt, ByteProgress, Kernel, Result, Spool, WorkItem, check_runner, cut_by_bytes, kernel
from strandline.errors import Damaged, NotFound, SnapshotExpired
from strandline.pages import CommitNumber, PageRef, PhysicalPage, checksum
from strandline.storage import Storage, Workers, open_storage, put_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PACK_BYTES = 16 << 20
"""A pack is closed when it has this many bytes; a page that is larger has one of its own."""

SPARK_BYTES = 1 << 30
"""From this much on, Spark copies."""

THREADS = 2
"""Few: writers need the disk and the processors, too."""

ReadPage = Callable[[PageRef], bytes]
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How to copy: `runner` is auto, spark or inline; in a `hurry`, a dump does not make way for writers."""

    runner: str = "auto"
    session: SparkSession | None = None
    hurry: bool = False

    def spark(self, size: int, *storages: Storage, plain: bool) -> bool:
        """Whether Spark is to copy `size` bytes."""
        check_runner(self.runner)
        able = plain and all(storage.is_shared for storage in storages)
        return able and (self.runner == "spark" or (self.runner == "auto" and size >= SPARK_BYTES))


def group_into_packs(pages: Iterable[PageRef], folder: DumpFolder, attempt: int) -> tuple[Pack, ...]:
    """Pages, in their order, grouped into packs of an attempt at a dump."""
    groups = cut_by_bytes(pages, folder.stored_size, PACK_BYTES)
    sizes = [sum(folder.stored_size(page) for page in group) for group in groups]
    return tuple(Pack(pack_name(attempt, n), sizes[n], tuple(group)) for n, group in enumerate(groups))


def write_packs(
    source: Storage, folder: DumpFolder, packs: Sequence[Pack], options: CopyOptions, throttle: Throttle
) -> None:
    """Copy a store's pages into the packs of a dump."""
    title = f"Dumping {folder.dump}"
    if options.spark(sum(pack.bytes for pack in packs), source, folder.storage, plain=folder.cipher is None):
        place = {"store": source.url, "target": folder.storage.url, "dump": folder.dump}
        _run_on_spark(
            write_pack_on_worker,
            [{**_item(pack, **place), "pointers": throttle.pointers, "busy": throttle.busy} for pack in packs],
            title,
            options,
        )
        return
    read = page_reader(source)
    size = sum(page.size for pack in packs for page in pack.pages)
    run_on_threads(packs, lambda pack, advance: write_pack(folder, pack, read, throttle, advance), title, size)


def write_pack(folder: DumpFolder, pack: Pack, read: ReadPage, throttle: Throttle, advance: Advance) -> None:
    """Store one pack, page by page in turns."""
    pieces = []
    for page in pack.pages:
        with throttle.turn():
            pieces.append(folder.encode_page(page, read(page)))
        advance(page.size)
    with throttle.turn():
        folder.put_pack(pack.name, pieces)


def page_reader(storage: Storage) -> ReadPage:
    """Verified reads of a store's pages that leave its caches, and the machine's, as they are."""

    def read(page: PageRef) -> bytes:
        try:
            data = storage.get_in_passing(page.name)
        except NotFound:
            raise SnapshotExpired(f"{page.name} is gone", doing="dumping", hint="Dump again") from None
        if len(data) != page.size or checksum(data) != page.checksum:
            raise Damaged(
                f"the checksum of {page.name} does not hold", doing="dumping", hint="The store is damaged; run check"
            )
        return data

    return read


def run_on_threads(packs: Sequence[Pack], work: Callable[[Pack, Advance], object], title: str, total: int) -> None:
    """Work on packs on a few threads; `work` reports how many bytes more are done. The first error ends it all."""
    workers: Workers[object] = Workers(THREADS)
    with ByteProgress(title, total) as progress, workers:
        for pack in packs:
            workers.submit(partial(work, pack, progress.advance))
        for task in workers.finished():
            task.result()


@kernel
def write_pack_on_worker(item: WorkItem, attempt: Attempt) -> Result:
    """One pack of a dump, on a worker."""
    folder = DumpFolder(open_storage(item["target"]), item["dump"], None)
    pack = _pack(item)
    pointers = tuple(item["pointers"])
    throttle = _throttle_on_worker(item["store"], pointers, busy=item["busy"]) if pointers else Throttle()
    write_pack(folder, pack, page_reader(open_storage(item["store"])), throttle, lambda _: None)
    return {"bytes_read": sum(page.size for page in pack.pages)}


@lru_cache(maxsize=4)
def _throttle_on_worker(store: str, pointers: tuple[str, ...], *, busy: bool) -> Throttle:
    # Kept from one pack to the next: it takes a while to see whether there are commits. As many tasks as there are
    # processors run on one machine.
    return throttle_beside_writers(open_storage(store), pointers, busy=busy, tasks=os.cpu_count() or 1)


@kernel
def extract_pack_on_worker(item: WorkItem, attempt: Attempt) -> Result:
    """The wanted pages of one pack into a store, on a worker."""
    folder = DumpFolder(open_storage(item["target"]), item["dump"], None)
    count = extract_pack(folder, _pack(item), set(item["wanted"]), open_storage(item["store"]))
    return {"bytes_read": count}


def extract_pack(folder: DumpFolder, pack: Pack, wanted: set[str], into: Storage) -> int:
    """The wanted pages of a pack into a store; how many bytes they were."""
    pages = {str(page.name): data for page, data in folder.pages(pack, wanted)}
    put_over(into, pages)
    return sum(len(data) for data in pages.values())


def extract_packs(
    folder: DumpFolder, packs: Sequence[tuple[Pack, set[str]]], into: Storage, options: CopyOptions
) -> None:
    """The wanted pages of a dump's packs into a store."""
    size = sum(pack.bytes for pack, _ in packs)
    title = f"Restoring from {folder.dump}"
    if options.spark(size, folder.storage, into, plain=folder.cipher is None):
        place = {"store": into.url, "target": folder.storage.url, "dump": folder.dump}
        items = [{**_item(pack, **place), "wanted": sorted(wanted)} for pack, wanted in packs]
        _run_on_spark(extract_pack_on_worker, items, title, options)
        return
    by_name = {pack.name: wanted for pack, wanted in packs}
    run_on_threads(
        [pack for pack, _ in packs],
        lambda pack, advance: advance(extract_pack(folder, pack, by_name[pack.name], into)),
        title,
        sum(page.size for pack, wanted in packs for page in pack.pages if page.name in wanted),
    )


def _run_on_spark(work: Kernel, items: Sequence[WorkItem], title: str, options: CopyOptions) -> None:
    from strandline.engine import SparkRunner

    with Spool() as spool:
        SparkRunner(options.session).run(work, items, spool, title)


def _item(pack: Pack, **place: str) -> dict[str, object]:
    pages = [[page.name, page.size, page.checksum] for page in pack.pages]
    return {**place, "pack": pack.name, "bytes": pack.bytes, "pages": pages}


def _pack(item: WorkItem) -> Pack:
    pages = (PageRef(PhysicalPage(n), CommitNumber(0), size, check, 0) for n, size, check in item["pages"])
    return Pack(item["pack"], item["bytes"], tuple(pages))
