"""MASTER: the master pointer (section 3.5 and figure 5). It names the versions and the format's number.

Versions are few or very many: beyond a hundred they go on extension pages. A version's name leads to the
storage name of its pointer, which is never used again: a version dropped and created anew is another
object.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from strandline.errors import FormatError, NotFound, StorageError
from strandline.pages.format.envelope import Json, seal, unseal
from strandline.pages.format.objects import Objects, ObjectWriter
from strandline.pages.format.pointer import ChunkedList, LoadChunk
from strandline.pages.ids import PhysicalPage, ProcessId, VersionObject
from strandline.storage import Token, swap_if_first

MASTER = "MASTER"
RESTORING = "RESTORING"
"""Where a store is being restored: until it is gone, the place is taken."""


@dataclass(frozen=True, slots=True)
class Master:
    """`dropping` names the pointers of versions that are gone for users but not yet cleared away.

    `fenced` repeats the processes fenced in every pointer, so that a fork under way can't miss one.
    `retired` names extension pages that the last swap replaced.
    """

    store: str
    swap: str
    versions: ChunkedList = field(default_factory=ChunkedList)
    dropping: tuple[VersionObject, ...] = ()
    fenced: frozenset[ProcessId] = frozenset()
    retired: tuple[PhysicalPage, ...] = ()

    def all_versions(self, load: LoadChunk) -> dict[str, VersionObject]:
        """The pointers by the versions' names."""
        return {row[1]: row[2] for row in self.versions.records(load)}


@dataclass(frozen=True, slots=True)
class StoredMaster:
    """A master with the token that replacing it needs."""

    master: Master
    token: Token


def version_row(name: str, pointer: VersionObject) -> Json:
    """A version as an item of a chunked list."""
    return [0, name, pointer]


def read_master(objects: Objects) -> StoredMaster:
    """The master as stored; a path without one is no store."""
    try:
        stored = objects.storage.get_with_token(MASTER)
    except NotFound:
        url = objects.storage.url
        raise NotFound(f"{url} is no store", doing=f"opening {url}", hint="Create one first") from None
    return StoredMaster(decode_master(stored.value), stored.token)


def replace_master(objects: Objects, stored: StoredMaster, edited: Master) -> bool:
    """Put a master with a new `swap` in the place of a stored one; false when another process was first."""
    retired = chunk_names(stored.master) - chunk_names(edited)
    edited = replace(edited, retired=tuple(sorted(retired)))
    # What the last swap retired is deleted before it is forgotten; the last swapper may have crashed.
    _delete(objects, set(stored.master.retired) - chunk_names(edited))
    if not swap_if_first(objects.storage, MASTER, stored.token, encode_master(edited)):
        return False
    with suppress(StorageError):  # the swap stands; the next one deletes them
        _delete(objects, retired)
    return True


def with_version(master: Master, name: str, pointer: VersionObject, output: ObjectWriter) -> Master:
    """The master with one more version."""
    return replace(master, versions=master.versions.extended([version_row(name, pointer)], output.chunk))


def without_version(master: Master, pointer: VersionObject, output: ObjectWriter) -> Master:
    """The master without a version."""
    versions, _ = master.versions.without(lambda row: row[2] == pointer, output.load_chunk, output.chunk)
    return replace(master, versions=versions)


def encode_master(master: Master) -> bytes:
    """The master as stored."""
    return seal(
        "master",
        {
            "store": master.store,
            "swap": master.swap,
            "versions": master.versions.to_json(),
            "dropping": list(master.dropping),
            "fenced": sorted(master.fenced),
            "retired": list(master.retired),
        },
    )


def decode_master(data: bytes) -> Master:
    """The reverse of `encode_master`."""
    body = unseal("master", MASTER, data)
    if not isinstance(body, dict):
        raise FormatError("MASTER is not a store's", doing="reading MASTER")
    return Master(
        store=body["store"],
        swap=body["swap"],
        versions=ChunkedList.from_json(body["versions"]),
        dropping=tuple(body["dropping"]),
        fenced=frozenset(body["fenced"]),
        retired=tuple(body["retired"]),
    )


def chunk_names(master: Master) -> set[PhysicalPage]:
    """The extension pages that a master names."""
    return {chunk.name for chunk in master.versions.chunks}


def _delete(objects: Objects, names: Iterable[PhysicalPage]) -> None:
    for name in names:
        objects.delete(name)
