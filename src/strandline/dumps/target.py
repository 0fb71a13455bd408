"""Authenticated encryption of everything in a dump: AES-256-GCM, with a key that never comes near the dump.

Each dump has a key of its own, derived from the user's by HKDF with the dump's id; each object and each page is bound
to its place, so that intact bytes in a wrong place are refused. The target keeps a fingerprint of the key, which tells
a wrong key from damage and nothing about the key. The library is loaded where there is a key: Spark's workers never see
one, and need not have it.

Where dumps are kept: a folder or an object store, plain or encrypted, one folder for each dump.

    backups/
      DUMPS                     which dumps there are (catalog.py)
      <dump>/manifest-<a>       what dump this is; <a> numbers the attempts at it
      <dump>/index-<a>-<n>      page-table entries and headers of the states it records; the last: pages by pack
      <dump>/pack-<a>-<n>       pages, one behind the other

All names are relative to the dump, and checked: a dump works wherever it was moved to, and nothing in it can lead out
of it.

Deleting dumps, and what interrupted ones left: say so in the catalog, delete, forget. Each step can be repeated.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from strandline.dumps.catalog import BEGUN, DROPPING, DumpCatalog, DumpEntry, change_catalog
from strandline.dumps.manifest import (
    DumpManifest,
    ManifestPart,
    Pack,
    StateChanges,
    changes_from_json,
    manifest_from_json,
    manifest_to_json,
    packs_from_json,
)
from strandline.errors import AlreadyExists, Conflict, Damaged, InputError, InUse, NotFound, StorageError
from strandline.pages import Json, PageRef, checksum, seal, unseal
from strandline.storage import LocalStorage, Storage, checked_name, get_in_passing, put_in_passing

VARIABLE = "STRANDLINE_DUMP_KEY"
KEY_BYTES = 32
NONCE = 12
OVERHEAD = NONCE + 16
"""How many bytes longer an encrypted page is."""


class Cipher:
    """Encrypts and decrypts. Safe for many threads."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InputError(f"a key has {KEY_BYTES} bytes, this one {len(key)}", doing="Reading the key of the dumps")
        self._key = key

    def fingerprint(self, target: str) -> str:
        """What a target remembers about its key."""
        return _derived(self._key, target, "fingerprint", 8).hex()

    def of(self, dump: str) -> DumpCipher:
        """The cipher of one dump."""
        return DumpCipher(dump, _derived(self._key, dump, "dump", KEY_BYTES))


class DumpCipher:
    """The cipher of one dump."""

    def __init__(self, dump: str, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._dump = dump
        self._aead = AESGCM(key)

    def encrypt(self, place: str, data: bytes) -> bytes:
        """`data` bound to a place of the dump."""
        nonce = secrets.token_bytes(NONCE)
        return nonce + self._aead.encrypt(nonce, data, self._place(place))

    def decrypt(self, place: str, data: bytes) -> bytes:
        """The reverse; `Damaged` when a byte or the place is another."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(data[:NONCE], data[NONCE:], self._place(place))
        except (InvalidTag, ValueError):
            doing = f"Reading {place} of dump {self._dump}"
            raise Damaged("its authentication does not hold", doing=doing, hint="Run dumps --verify") from None

    def _place(self, place: str) -> bytes:
        return f"{self._dump}/{place}".encode()


def find_key(key_file: str | os.PathLike[str] | None = None) -> Cipher | None:
    """The key of a file, else of the environment, else none."""
    hint = "A key is 32 random bytes, as they are or in hexadecimal or base64: openssl rand -hex 32 > key"
    if key_file is not None:
        doing = f"Reading the key file {os.fspath(key_file)}"
        try:
            raw = Path(key_file).read_bytes()
        except OSError as error:
            raise NotFound(error.strerror or str(error), doing=doing, hint=hint) from None
        return Cipher(_decoded(raw, doing, hint))
    text = os.environ.get(VARIABLE)
    return Cipher(_decoded(text.encode(), f"Reading the key in {VARIABLE}", hint)) if text else None


def _decoded(raw: bytes, doing: str, hint: str) -> bytes:
    if len(raw) == KEY_BYTES:
        return raw
    text = raw.strip()
    for decode in (bytes.fromhex, lambda one: base64.b64decode(one, validate=True)):
        try:
            found = decode(text.decode("ascii"))
        except (ValueError, binascii.Error, UnicodeDecodeError):
            continue
        if len(found) == KEY_BYTES:
            return found
    raise InputError(f"that is no key of {KEY_BYTES} bytes", doing=doing, hint=hint)


def _derived(key: bytes, salt: str, purpose: str, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"strandline dumps 1 {purpose}".encode()
    return HKDF(algorithm=SHA256(), length=length, salt=salt.encode(), info=info).derive(key)


class Target:
    """A place for dumps with its key, if it has one."""

    def __init__(self, storage: Storage, cipher: Cipher | None = None) -> None:
        self.storage = storage
        self.cipher = cipher

    def folder(self, dump: str) -> DumpFolder:
        """The objects of one dump."""
        return DumpFolder(self.storage, dump, self.cipher.of(dump) if self.cipher is not None else None)

    def fingerprint(self, target: str) -> str | None:
        """That of the key; None without one."""
        return self.cipher.fingerprint(target) if self.cipher is not None else None

    def check_key(self, catalog: DumpCatalog) -> None:
        """Refuse a wrong key, a missing one, and one where none belongs."""
        doing = f"Opening the dumps at {self.storage.url}"
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
                f"dump {entry.id} holds the manifest of dump {manifest.id}", doing=f"Reading dump {entry.id}",
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
        """The bytes to store for an object of the index."""
        data = zlib.compress(seal(kind, body), 6) if kind != "manifest" else seal(kind, body)
        return self.cipher.encrypt(name, data) if self.cipher is not None else data

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Store durably, flushed together. What an earlier try left under these names goes."""
        stored = {self.path(name): data for name, data in objects.items()}
        try:
            self.storage.put_all(stored)
        except AlreadyExists:
            for path in stored:
                self.storage.delete(path)
            self.storage.put_all(stored)

    def put_pack(self, name: str, pages: Sequence[bytes]) -> None:
        """Store a pack. What an earlier try left goes: encrypted bytes are never the same twice."""
        path = self.path(name)
        try:
            put_in_passing(self.storage, path, pages)
        except AlreadyExists:
            self.storage.delete(path)
            put_in_passing(self.storage, path, pages)

    def manifest(self, attempt: int, expected: str | None = None) -> DumpManifest:
        """The manifest of an attempt, `expected` being the checksum of its stored bytes."""
        name = manifest_name(attempt)
        body = self._body(name, "manifest", expected)
        return manifest_from_json(body, f"{self.dump}/{name}")

    def encoded_manifest(self, manifest: DumpManifest) -> tuple[str, bytes]:
        """The manifest's name, and the bytes to store."""
        name = manifest_name(manifest.attempt)
        return name, self.encode(name, "manifest", manifest_to_json(manifest))

    def changes(self, part: ManifestPart) -> StateChanges:
        """What a recorded state changed."""
        return changes_from_json(self._body(part.name, "index", part.checksum))

    def with_pages(self, manifest: DumpManifest) -> tuple[Pack, ...]:
        """The packs of a dump with their pages."""
        part = manifest.parts[-1]
        packs = packs_from_json(self._body(part.name, "index", part.checksum))
        if [(pack.name, pack.bytes) for pack in packs] != [(pack.name, pack.bytes) for pack in manifest.packs]:
            raise Damaged(f"{part.name} does not fit the manifest", doing=f"Reading dump {self.dump}")
        return packs

    def pages(self, pack: Pack, wanted: set[str] | None = None) -> Iterator[tuple[PageRef, bytes]]:
        """The verified pages of a pack, or those wanted."""
        for page, stored in self.stored_pages(pack):
            if wanted is None or page.name in wanted:
                yield page, self.opened(pack, page, stored)

    def stored_pages(self, pack: Pack) -> Iterator[tuple[PageRef, bytes]]:
        """The pages of a pack as they are stored; `Damaged` when it is missing or has another length."""
        doing = f"Reading dump {self.dump}"
        try:
            data = get_in_passing(self.storage, self.path(pack.name))
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

    def sealed_page(self, page: PageRef, data: bytes) -> bytes:
        """A page as it goes into a pack."""
        return self.cipher.encrypt(page.name, data) if self.cipher is not None else data

    def opened(self, pack: Pack, page: PageRef, stored: bytes) -> bytes:
        """A stored page, verified."""
        data = self.cipher.decrypt(page.name, stored) if self.cipher is not None else stored
        if len(data) != page.size or checksum(data) != page.checksum:
            doing = f"Reading dump {self.dump}"
            raise Damaged(f"the checksum of page {page.name} in {pack.name} does not hold", doing=doing, hint=_HINT)
        return data

    def _body(self, name: str, kind: str, expected: str | None) -> Json:
        doing, path = f"Reading dump {self.dump}", self.path(name)
        try:
            data = self.storage.get(path)
        except NotFound:
            raise Damaged(f"{name} is missing", doing=doing, hint=_HINT) from None
        if expected is not None and checksum(data) != expected:
            raise Damaged(f"{name} is not what was written: its checksum does not hold", doing=doing, hint=_HINT)
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


def names_of(entry: DumpEntry) -> Iterator[str]:
    """Every object that a dump may have, its manifests last."""
    for attempt, tried in enumerate(entry.attempts, start=1):
        yield from (pack_name(attempt, number) for number in range(tried.packs))
        yield from (part_name(attempt, number) for number in range(tried.parts))
    yield from (manifest_name(attempt) for attempt in range(1, entry.attempt + 1))


def free_bytes(storage: Storage) -> int | None:
    """How much room there is; None where that can't be told."""
    if not isinstance(storage, LocalStorage):
        return None
    folder = Path(storage.url)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(os.fspath(folder)).free


def drop_dumps(target: Target, entries: list[DumpEntry]) -> None:
    """Delete dumps that nothing stands on, or attempts at dumps. From the first swap on they are no dumps."""
    chosen = {entry.id: entry for entry in entries}

    def edit(catalog: DumpCatalog) -> DumpCatalog:
        for one in catalog.dumps:
            if one.parent in chosen and one.id not in chosen and one.state != DROPPING:
                raise InUse(
                    f"dump {one.id} stands on dump {one.parent}", doing=f"Deleting dump {one.parent}",
                    hint="Delete that first, or make a synthetic full",
                )  # fmt: skip
        edited = catalog
        for entry in chosen.values():
            now = catalog.find(entry.id)
            if now is None or now.state == DROPPING:
                continue
            if now != entry:
                raise Conflict(f"dump {entry.id} changed meanwhile", doing="Deleting dumps", hint="Try again")
            edited = edited.with_entry(replace(now, state=DROPPING, owner=None))
        return edited

    if chosen:
        finish_dropping(target, change_catalog(target.storage, edit))


def finish_dropping(target: Target, catalog: DumpCatalog) -> None:
    """Go on with what was being deleted."""
    gone = [entry for entry in catalog.dumps if entry.state == DROPPING]
    for entry in gone:
        folder = target.folder(entry.id)
        for name in names_of(entry):
            target.storage.delete(folder.path(name))
    for entry in gone:
        change_catalog(target.storage, lambda one, id_=entry.id: one.without(id_) if one.find(id_) else one)  # type: ignore[misc]


def attempts(catalog: DumpCatalog) -> list[DumpEntry]:
    """Dumps that were begun and are not complete."""
    return [entry for entry in catalog.dumps if entry.state == BEGUN]
