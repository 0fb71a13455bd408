"""Authenticated encryption of everything in a dump: AES-256-GCM, with a key that is never stored with the dump.

Each dump has a key of its own, derived from the user's by HKDF with the dump's id. Each object and each page is bound
to its place, so that intact bytes in a wrong place are refused. The target keeps a fingerprint of the key, which tells
a wrong key from damage and reveals nothing about the key. The library is loaded only where there is a key: Spark's
workers never see one, and need not have it.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from pathlib import Path

from strandline.errors import Damaged, InputError, NotFound, extra

VARIABLE = "STRANDLINE_DUMP_KEY"
KEY_BYTES = 32
NONCE = 12
OVERHEAD = NONCE + 16
"""How many bytes longer an encrypted page is."""


class Cipher:
    """Encrypts and decrypts. Safe for many threads."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InputError(f"a key has {KEY_BYTES} bytes, this one {len(key)}", doing="reading the key of the dumps")
        self._key = key

    def fingerprint(self, target: str) -> str:
        """What a target stores about its key."""
        return _derived(self._key, target, "fingerprint", 8).hex()

    def of_dump(self, dump: str) -> DumpCipher:
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
        """The reverse; `Damaged` when a byte or the place differs."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(data[:NONCE], data[NONCE:], self._place(place))
        except (InvalidTag, ValueError):
            doing = f"reading {place} of dump {self._dump}"
            raise Damaged("its authentication does not hold", doing=doing, hint="Run dumps --verify") from None

    def _place(self, place: str) -> bytes:
        return f"{self._dump}/{place}".encode()


def find_key(key_file: str | os.PathLike[str] | None = None) -> Cipher | None:
    """The key of a file, else of the environment, else none."""
    hint = "A key is 32 random bytes, as they are or in hexadecimal or base64: openssl rand -hex 32 > key"
    if key_file is not None:
        doing = f"reading the key file {os.fspath(key_file)}"
        try:
            raw = Path(key_file).read_bytes()
        except OSError as error:
            raise NotFound(error.strerror or str(error), doing=doing, hint=hint) from None
        return Cipher(_decoded(raw, doing, hint))
    text = os.environ.get(VARIABLE)
    return Cipher(_decoded(text.encode(), f"reading the key in {VARIABLE}", hint)) if text else None


def _decoded(raw: bytes, doing: str, hint: str) -> bytes:
    if len(raw) == KEY_BYTES:
        return raw
    text = raw.strip()
    for decode in (bytes.fromhex, lambda digits: base64.b64decode(digits, validate=True)):
        try:
            key = decode(text.decode("ascii"))
        except (ValueError, binascii.Error, UnicodeDecodeError):
            continue
        if len(key) == KEY_BYTES:
            return key
    raise InputError(f"that is no key of {KEY_BYTES} bytes", doing=doing, hint=hint)


def _derived(key: bytes, salt: str, purpose: str, length: int) -> bytes:
    with extra("encrypt", "deriving the key of a dump"):
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"strandline dumps 1 {purpose}".encode()
    return HKDF(algorithm=SHA256(), length=length, salt=salt.encode(), info=info).derive(key)
