"""Where dumps are kept: a folder or an object store, plain or encrypted, one folder for each dump.

    backups/
      DUMPS                     which dumps there are (catalog.py)
      <dump>/manifest-<a>       what dump this is; <a> numbers the attempts at it
      <dump>/index-<a>-<n>      page-table entries and headers of the states it records; the last: pages by pack
      <dump>/pack-<a>-<n>       pages, one behind the other

All names are relative to the dump, and checked: a dump can be moved, and nothing in it can name an object outside it.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from strandline.dumps.catalog import DumpCatalog, DumpEntry
from strandline.dumps.encryption import OVERHEAD, Cipher, DumpCipher
from strandline.dumps.manifest import (
    DumpManifest,
    ManifestPart,
    Pack,
    StateChanges,
    changes_from_json,
    manifest_from_json,
    packs_from_json,
)
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound, StorageError
from strandline.pages import Json, PageRef, checksum, seal, unseal
from strandline.storage import LocalStorage, Storage, checked_name, put_over


class Target:
    """A place for dumps with its key, if it has one."""

    def __init__(self, storage: Storage, cipher: Cipher | None = None) -> None:
        self.storage = storage
        self.cipher = cipher

    def folder(self, dump: str) -> DumpFolder:
        """The objects of one dump."""
        return DumpFolder(self.storage, dump, self.cipher.of_dump(dump) if self.cipher is not None else None)

    def fingerprint(self, target: str) -> str | None:
        """That of the key; None without one."""
        return self.cipher.fingerprint(target) if self.cipher is not None else None

    def check_key(self, catalog: DumpCatalog) -> None:
        """Refuse a wrong key, a missing one, and one where none belongs."""
        doing = f"opening the dumps at {self.storage.url}"
        if catalog.fingerprint is None and self.cipher is not None:
            raise InputError(
                "the dumps here are not encrypted, but a key was given", doing=doing,
                hint="Leave the key out, or begin a new target for encrypted dumps",
            )  # fmt: skip
        if catalog.fingerprint is not None and self.cipher is None:
            raise InputError(
                "the dumps here are encrypted, and no key was given", doing=doing,
                hint="Give a key file, or set STRANDLINE_DUMP_KEY",
            )  # fmt: skip
        if catalog.fingerprint != self.fingerprint(catalog.target):
            raise InputError("this is not the key of these dumps", doing=doing, hint="Give the key they were made with")

    def manifest(self, entry: DumpEntry) -> DumpManifest:
        """The manifest of a complete dump, verified against the catalog."""
        manifest = self.folder(entry.id).manifest(entry.attempt, entry.manifest)
        if (manifest.id, manifest.store, manifest.level) != (entry.id, entry.store, entry.level):
            raise Damaged(
                f"dump {entry.id} holds the manifest of dump {manifest.id}", doing=f"reading dump {entry.id}",
                hint="Run dumps --verify",
            )  # fmt: skip
        return manifest

    def refuse_without_room(self, needed: int, doing: str) -> None:
        """Find out before anything is written that a disk has no room. Object stores have no such limit."""
        room = free_bytes(self.storage)
        if room is not None and room < needed:
            raise StorageError(
                f"{needed:,} bytes are needed and {room:,} are free",
                doing=doing,
                hint="Nothing was written; free some space",
            )


class DumpFolder:
    """The objects of one dump."""

    def __init__(self, storage: Storage, dump: str, cipher: DumpCipher | None) -> None:
        self.storage = storage
        self.dump = checked_name(dump)
        self.cipher = cipher

    def path(self, name: str) -> str:
        """The storage name of an object of this dump."""
        return checked_name(f"{self.dump}/{name}")

    def stored_size(self, page: PageRef) -> int:
        """How many bytes a page takes in a pack."""
        return page.size + (OVERHEAD if self.cipher is not None else 0)

    def encode(self, name: str, kind: str, body: Json) -> bytes:
        """The bytes to store for the manifest or a part of the index."""
        data = zlib.compress(seal(kind, body), 6) if kind != "manifest" else seal(kind, body)
        return self.cipher.encrypt(name, data) if self.cipher is not None else data

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Store durably, flushed together. What an earlier attempt left under these names is replaced."""
        put_over(self.storage, {self.path(name): data for name, data in objects.items()})

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, those that are not there among them."""
        for name in names:
            self.storage.delete(self.path(name))

    def put_pack(self, name: str, pages: Sequence[bytes]) -> None:
        """Store a pack. What an earlier attempt left is replaced: encrypted bytes are never the same twice."""
        path = self.path(name)
        try:
            self.storage.put_in_passing(path, pages)
        except AlreadyExists:
            put_over(self.storage, {path: b"".join(pages)})

    def manifest(self, attempt: int, expected: str | None = None) -> DumpManifest:
        """The manifest of an attempt, `expected` being the checksum of its stored bytes."""
        name = manifest_name(attempt)
        body = self._body(name, "manifest", expected)
        return manifest_from_json(body, f"{self.dump}/{name}")

    def changes(self, part: ManifestPart) -> StateChanges:
        """What a recorded state changed."""
        return changes_from_json(self._body(part.name, "index", part.checksum))

    def check_index(self, manifest: DumpManifest) -> None:
        """Read every part of the index back; `Damaged` names the first that is missing or not what was written."""
        for part in manifest.parts:
            self._stored(part.name, part.checksum)

    def with_pages(self, manifest: DumpManifest) -> tuple[Pack, ...]:
        """The packs of a dump with their pages."""
        part = manifest.parts[-1]
        packs = packs_from_json(self._body(part.name, "index", part.checksum))
        if [(pack.name, pack.bytes) for pack in packs] != [(pack.name, pack.bytes) for pack in manifest.packs]:
            raise Damaged(f"{part.name} does not fit the manifest", doing=f"reading dump {self.dump}")
        return packs

    def pages(self, pack: Pack, wanted: set[str] | None = None) -> Iterator[tuple[PageRef, bytes]]:
        """The verified pages of a pack, or those wanted."""
        for page, stored in self.stored_pages(pack):
            if wanted is None or page.name in wanted:
                yield page, self.decode_page(pack, page, stored)

    def stored_pages(self, pack: Pack) -> Iterator[tuple[PageRef, bytes]]:
        """The pages of a pack as they are stored; `Damaged` when it is missing or has another length."""
        doing = f"reading dump {self.dump}"
        try:
            data = self.storage.get_in_passing(self.path(pack.name))
        except NotFound:
            raise Damaged(f"{pack.name} is missing, with {len(pack.pages)} pages", doing=doing, hint=_HINT) from None
        total = sum(self.stored_size(page) for page in pack.pages)
        if len(data) != total:
            raise Damaged(f"{pack.name} has {len(data)} bytes instead of {total}", doing=doing, hint=_HINT)
        start = 0
        for page in pack.pages:
            end = start + self.stored_size(page)
            yield page, data[start:end]
            start = end

    def encode_page(self, page: PageRef, data: bytes) -> bytes:
        """A page as it goes into a pack."""
        return self.cipher.encrypt(page.name, data) if self.cipher is not None else data

    def decode_page(self, pack: Pack, page: PageRef, stored: bytes) -> bytes:
        """A stored page, verified."""
        data = self.cipher.decrypt(page.name, stored) if self.cipher is not None else stored
        if len(data) != page.size or checksum(data) != page.checksum:
            doing = f"reading dump {self.dump}"
            raise Damaged(f"the checksum of page {page.name} in {pack.name} does not hold", doing=doing, hint=_HINT)
        return data

    def _stored(self, name: str, expected: str | None) -> bytes:
        doing = f"reading dump {self.dump}"
        try:
            data = self.storage.get(self.path(name))
        except NotFound:
            raise Damaged(f"{name} is missing", doing=doing, hint=_HINT) from None
        if expected is not None and checksum(data) != expected:
            raise Damaged(f"{name} is not what was written: its checksum does not hold", doing=doing, hint=_HINT)
        return data

    def _body(self, name: str, kind: str, expected: str | None) -> Json:
        doing, path = f"reading dump {self.dump}", self.path(name)
        data = self._stored(name, expected)
        plain = self.cipher.decrypt(name, data) if self.cipher is not None else data
        try:
            return unseal(kind, path, plain if kind == "manifest" else zlib.decompress(plain))
        except zlib.error:
            raise Damaged(f"{name} can't be unpacked", doing=doing, hint=_HINT) from None


_HINT = "Run dumps --verify to see which dumps are whole"


def manifest_name(attempt: int) -> str:
    return f"manifest-{attempt}"


def part_name(attempt: int, number: int) -> str:
    return f"index-{attempt}-{number}"


def pack_name(attempt: int, number: int) -> str:
    return f"pack-{attempt}-{number}"


def object_names(entry: DumpEntry) -> Iterator[str]:
    """Every object that a dump may have, its manifests last."""
    for number, attempt in enumerate(entry.attempts, start=1):
        yield from (pack_name(number, pack) for pack in range(attempt.packs))
        yield from (part_name(number, part) for part in range(attempt.parts))
    yield from (manifest_name(number) for number in range(1, entry.attempt + 1))


def free_bytes(storage: Storage) -> int | None:
    """How much room there is; None where there is no way to know."""
    if not isinstance(storage, LocalStorage):
        return None
    folder = Path(storage.url)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(os.fspath(folder)).free
