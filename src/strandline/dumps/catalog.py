"""The catalog of a target, DUMPS: the one object there that is replaced. It lists the dumps with their states.

    begun → complete → dropping → gone
      └──────────────────┘

A dump counts from when its entry says `complete` until it says `dropping`; each change is one swap. An entry is there
before the first object of its dump is written and goes after the last one was deleted, and it says how many objects
there may be. So deleting a dump needs neither a listing nor the key.

Entries stand in the order of the states that they hold, which is settled when a dump is announced: it holds a later
state than the dumps that were there before its store was held still. Of those that were announced while it was planned,
commit numbers tell. No clock is asked.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from strandline.dumps.manifest import FORMAT, DumpScope, check_format
from strandline.errors import InputError, NotFound, StorageError
from strandline.pages import seal, unseal
from strandline.storage import JsonRecord, JsonRow, Storage, Token, has_ended, something_in, swap_if_first

CATALOG = "DUMPS"
BEGUN, COMPLETE, DROPPING = "begun", "complete", "dropping"


@dataclass(frozen=True, slots=True)
class DumpOwner(JsonRow):
    """The process that makes a dump: its number in the store's registry, its machine and its process id there."""

    process: int
    host: str
    pid: int

    @staticmethod
    def here(process: int) -> DumpOwner:
        """This process; `process` is its number in the store's registry, 0 when it has opened no store."""
        return DumpOwner(process, socket.gethostname(), os.getpid())

    def has_ended(self) -> bool:
        """Whether it was a process of this machine that no longer runs. Other machines' are taken for alive."""
        return self.host == socket.gethostname() and has_ended(self.pid)


@dataclass(frozen=True, slots=True)
class DumpAttempt(JsonRow):
    """One attempt at a dump: how many parts and packs it may have written."""

    parts: int
    packs: int


@dataclass(frozen=True, slots=True)
class DumpEntry(JsonRecord):
    """A dump as the catalog knows it. `taken` is the time of the state that it holds, in seconds since 1970.

    `manifest` is the checksum of the manifest of the last attempt; empty until it is complete.
    """

    id: str
    state: str
    store: str
    level: int
    parent: str | None
    taken: float
    scope: DumpScope
    attempts: tuple[DumpAttempt, ...]
    owner: DumpOwner | None = None
    manifest: str = ""
    pages: int = 0
    bytes: int = 0
    commit: int = 0
    synthetic: bool = False

    @property
    def complete(self) -> bool:
        return self.state == COMPLETE

    @property
    def attempt(self) -> int:
        """The number of the last attempt, from 1."""
        return len(self.attempts)


@dataclass(frozen=True, slots=True)
class DumpCatalog:
    """All entries, in the order of the states that they hold.

    `fingerprint` is that of the key, None when the target is not encrypted.
    """

    target: str
    swap: str
    fingerprint: str | None
    dumps: tuple[DumpEntry, ...] = ()

    def find(self, id_: str) -> DumpEntry | None:
        """The entry of that id, in whatever state."""
        return next((one for one in self.dumps if one.id == id_), None)

    def begun(self) -> list[DumpEntry]:
        """Dumps that were begun and are not complete."""
        return [entry for entry in self.dumps if entry.state == BEGUN]

    def complete(self) -> list[DumpEntry]:
        """The dumps, in the order of the states that they hold; a synthetic full follows what it combines."""
        return [one for one in self.dumps if one.complete]

    def with_entry(self, entry: DumpEntry) -> DumpCatalog:
        """With one entry replaced."""
        return replace(self, dumps=tuple(entry if one.id == entry.id else one for one in self.dumps))

    def announcing(self, entry: DumpEntry, earlier: Collection[DumpEntry]) -> DumpCatalog:
        """With an entry added, or moved, to where its state belongs: after `earlier`, whose states are not newer.

        A synthetic one comes directly after them, any other before those of its store whose commit is greater.
        """
        others = self.without(entry.id).dumps
        line = (entry.store, entry.scope)
        newer = (
            place
            for place, other in enumerate(others)
            if other not in earlier
            and (entry.synthetic or ((other.store, other.scope) == line and other.commit > entry.commit))
        )
        place = next(newer, len(others))
        return replace(self, dumps=(*others[:place], entry, *others[place:]))

    def without(self, id_: str) -> DumpCatalog:
        """Without an entry."""
        return replace(self, dumps=tuple(one for one in self.dumps if one.id != id_))


def needed_by(catalog: DumpCatalog, entry: DumpEntry) -> list[DumpEntry]:
    """The dumps that one stands on, nearest first."""
    ancestors: list[DumpEntry] = []
    while entry.parent is not None and (parent := catalog.find(entry.parent)) is not None and parent not in ancestors:
        ancestors.append(parent)
        entry = parent
    return ancestors


def read_catalog(storage: Storage) -> DumpCatalog | None:
    """The catalog of a target; None when nothing at all is there. A target that holds something else is refused."""
    stored = _read(storage)
    if stored is not None:
        return stored[0]
    other = something_in(storage)
    if other is not None:
        raise InputError(
            f"{storage.url} holds something else ({other})",
            doing="opening dumps",
            hint="Give a folder, or a prefix, of its own to the dumps",
        )
    return None


def require_catalog(storage: Storage) -> DumpCatalog:
    """The catalog of a target that must have one."""
    catalog = read_catalog(storage)
    if catalog is None:
        raise NotFound(
            f"there are no dumps at {storage.url}", doing="opening dumps", hint="Make one: strandline dump STORE TARGET"
        )
    return catalog


def create_catalog(storage: Storage, target: str, fingerprint: str | None) -> DumpCatalog:
    """The first catalog of a target, or the one that another process created just before."""
    first = DumpCatalog(target, secrets.token_hex(8), fingerprint)
    try:
        storage.compare_and_swap(CATALOG, None, _encoded(first))
    except StorageError:
        stored = _read(storage)
        if stored is None:
            raise
        return stored[0]
    return first


def change_catalog(storage: Storage, edit: Callable[[DumpCatalog], DumpCatalog]) -> DumpCatalog:
    """Replace the catalog of a target that had one by what `edit` makes of it, again when another process was first.
    What it gives back as it was is not replaced.

    An edit meets its own effect when the answer to a swap was lost, so what is done already must be left as it is.
    """
    while True:
        stored = _read(storage)
        if stored is None:
            raise NotFound(f"{CATALOG} is gone from {storage.url}", doing="changing the list of dumps")
        catalog, token = stored
        edited = edit(catalog)
        if edited == catalog:
            return catalog
        edited = replace(edited, swap=secrets.token_hex(8))
        if swap_if_first(storage, CATALOG, token, _encoded(edited)):
            return edited


def _read(storage: Storage) -> tuple[DumpCatalog, Token] | None:
    try:
        stored = storage.get_with_token(CATALOG)
    except NotFound:
        return None
    return _decoded(stored.value), stored.token


def _encoded(catalog: DumpCatalog) -> bytes:
    return seal(
        "dumps",
        {
            "format": FORMAT,
            "target": catalog.target,
            "swap": catalog.swap,
            "fingerprint": catalog.fingerprint,
            "dumps": [one.to_json() for one in catalog.dumps],
        },
    )


def _decoded(data: bytes) -> DumpCatalog:
    body = unseal("dumps", CATALOG, data)
    check_format(body, CATALOG)
    dumps = tuple(map(DumpEntry.from_json, body["dumps"]))
    return DumpCatalog(body["target"], body["swap"], body["fingerprint"], dumps)
