"""Objects of S3-compatible stores as files that are read: found by a prefix, opened, and read by ranges.

For data that others wrote. Credentials come from the environment; no URL holds any. An object that is replaced while
it is read is noticed: every read asks for the version that was opened.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from strandline.errors import FormatError, InputError, NotFound, StorageError

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEMES = ("s3://", "s3a://")
_BUFFER = 1 << 20


def is_object_url(text: str) -> bool:
    return text.startswith(SCHEMES)


@dataclass(frozen=True)
class ObjectVersion:
    """One version of an object: its URL, its bytes and its entity tag."""

    url: str
    bytes: int
    tag: str | None


def list_objects(url: str) -> list[ObjectVersion]:
    """The objects whose keys begin with that of `url`, in the order of their keys."""
    import obstore

    store, key = _store_and_key(url)
    bucket = url.removesuffix(key) if key else url.rstrip("/") + "/"
    folder = key.rpartition("/")[0]
    with _refusals(url):
        metas = [meta for chunk in obstore.list(store, prefix=folder or None) for meta in chunk]
    found = [ObjectVersion(bucket + meta["path"], meta["size"], meta["e_tag"]) for meta in metas]
    return sorted((each for each in found if each.url.startswith(url)), key=lambda each: each.url)


def object_version(url: str) -> ObjectVersion:
    """The object as it is now; `NotFound` when there is none."""
    import obstore

    store, key = _store_and_key(url)
    with _refusals(url):
        meta = obstore.head(store, key)
    return ObjectVersion(url, meta["size"], meta["e_tag"])


def open_object(version: ObjectVersion) -> io.BufferedReader:
    """A file that reads one version of an object, by ranges of at least a MiB."""
    return io.BufferedReader(_Ranges(version), _BUFFER)


class _Ranges(io.RawIOBase):
    """The bytes of an object; each read is a request."""

    def __init__(self, version: ObjectVersion) -> None:
        self._version = version
        self._store, self._key = _store_and_key(version.url)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._version.bytes}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        import obstore

        end = min(self._at + len(buffer), self._version.bytes)
        if end <= self._at:
            return 0
        options: Any = {"range": (self._at, end)}
        if self._version.tag:
            options["if_match"] = self._version.tag
        with _refusals(self._version.url):
            value = obstore.get(self._store, self._key, options=options).bytes()
        length = len(value)
        buffer[:length] = memoryview(value)
        self._at += length
        return length


@functools.lru_cache(maxsize=16)
def _store(bucket: str) -> S3Store:
    from obstore.store import S3Store

    return S3Store(bucket)


def _store_and_key(url: str) -> tuple[S3Store, str]:
    parts = urlsplit(url)
    if parts.username or parts.password or not parts.netloc:
        raise InputError(
            "the URL names no bucket" if not parts.netloc else "a URL must not hold credentials",
            doing=f"reading {parts.scheme}://{parts.hostname or ''}{parts.path}",
            hint="Write s3://bucket/prefix, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
        )
    return _store(parts.netloc), url.split("://", 1)[1].removeprefix(parts.netloc).lstrip("/")


@contextmanager
def _refusals(url: str) -> Iterator[None]:
    """Turns obstore's errors into ours."""
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(
            "there is no such object", doing=f"reading {url}", hint="Check the bucket's and the object's name"
        ) from error
    except PreconditionError as error:
        raise FormatError(
            "it was replaced while it was read", doing=f"reading {url}", hint="Read it again when it is whole"
        ) from error
    except (BaseError, OSError) as error:
        if "NoSuchBucket" in str(error):
            raise NotFound("there is no such bucket", doing=f"reading {url}", hint="Check its name") from error
        raise StorageError(
            str(error).splitlines()[0],
            doing=f"reading {url}",
            hint="Check the credentials, the region and the endpoint in the environment, here and on the workers",
        ) from error
