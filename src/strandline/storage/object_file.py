"""Objects of object stores as files: found by a prefix, read by ranges, written whole, removed.

One seam for data that lies at a URL: `s3://` and what speaks like it, `gs://`, `az://` and `abfss://`, and `https://`
for reading single objects. Credentials come from the environment, or for S3 from the usual files where boto3 is
installed; no URL and no error holds any. An object that is replaced while it is read is noticed: every read asks for
the version that was opened. Every wait has a limit.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib.util
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from strandline.errors import FormatError, InputError, NotFound, StorageError, StrandlineError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

S3 = ("s3", "s3a")
AZURE = ("az", "azure", "abfs", "abfss")
WEB = ("https", "http")
SCHEMES = (*S3, "gs", *AZURE, *WEB)

REQUEST_SECONDS = 30
RETRY_SECONDS = 60
"""How long one request may take, and until when a failed one is begun again."""

_BUFFER = 1 << 20
_REQUEST_BYTES = 16 << 20
"""Bytes asked for at once, at least and at most."""


def is_object_url(path: object) -> bool:
    """Whether a path is the URL of an object, or of a prefix, in one of the stores that are known."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    scheme, mark, _ = text.partition("://") if isinstance(text, str) else ("", "", "")
    return bool(mark) and scheme in SCHEMES


@dataclass(frozen=True)
class ObjectVersion:
    """One version of an object: its URL, its bytes, its entity tag, and when it was written."""

    url: str
    bytes: int
    tag: str | None
    modified: dt.datetime | None = None

    @property
    def mark(self) -> str:
        """What tells this version from others."""
        return self.tag or f"{self.bytes} {self.modified}"


def list_objects(url: str) -> list[ObjectVersion]:
    """The objects whose keys begin with that of `url`, in the order of their keys."""
    import obstore

    store, key = _store_and_key(url, "reading")
    bucket = url.removesuffix(key) if key else url.rstrip("/") + "/"
    folder = key.rpartition("/")[0]
    with _refusals("reading", url):
        metas = [meta for chunk in obstore.list(store, prefix=folder or None) for meta in chunk]
    versions = [_version(bucket + meta["path"], meta) for meta in metas]
    return sorted((each for each in versions if each.url.startswith(url)), key=lambda each: each.url)


def object_version(url: str) -> ObjectVersion:
    """The object as it is now; `NotFound` when there is none."""
    import obstore

    store, key = _store_and_key(url, "reading")
    with _refusals("reading", url):
        return _version(url, obstore.head(store, key))


def open_object(version: ObjectVersion) -> io.BufferedReader:
    """A file that reads one version of an object, by ranges of at least a MiB."""
    return io.BufferedReader(_Ranges(version), _BUFFER)


def put_object(url: str, value: bytes | BinaryIO) -> None:
    """Stores an object, in the place of one that may be there; readers see the old one or the new one."""
    import obstore

    store, key = _store_and_key(url, "writing")
    with _refusals("writing", url):
        obstore.put(store, key, value)


def delete_objects(urls: Sequence[str]) -> None:
    """Removes objects of one bucket; those that are gone already are no error."""
    import obstore

    if not urls:
        return
    pairs = [_store_and_key(url, "removing") for url in urls]
    with _refusals("removing", urls[0]):
        try:
            obstore.delete(pairs[0][0], [key for _, key in pairs])
        except FileNotFoundError:
            for store, key in pairs:
                _delete_one(store, key)


def _delete_one(store: ObjectStore, key: str) -> None:
    import obstore

    try:
        obstore.delete(store, key)
    except FileNotFoundError:
        return


def _version(url: str, meta: Any) -> ObjectVersion:
    tag = meta["e_tag"]
    if tag and not tag.endswith('"'):
        tag = f'"{tag}"'  # Azure's listings leave out the quotes, its other answers don't
    return ObjectVersion(url, meta["size"], tag, meta["last_modified"])


class _Ranges(io.RawIOBase):
    """The bytes of an object; each read is a request."""

    def __init__(self, version: ObjectVersion) -> None:
        self._version = version
        self._store, self._key = _store_and_key(version.url, "reading")
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

        end = min(self._at + min(len(buffer), _REQUEST_BYTES), self._version.bytes)
        if end <= self._at:
            return 0
        options: Any = {"range": (self._at, end)}
        if self._version.tag:
            options["if_match"] = self._version.tag
        with _refusals("reading", self._version.url):
            value = obstore.get(self._store, self._key, options=options).bytes()
        length = len(value)
        buffer[:length] = memoryview(value)
        self._at += length
        return length


def _shared_store(root: str) -> ObjectStore:
    """One for each bucket and state of the environment, from which it takes its settings."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    return _known_store(root, tuple(sorted(settings.items())))


@functools.lru_cache(maxsize=16)
def _known_store(root: str, _settings: tuple[tuple[str, str], ...]) -> ObjectStore:
    return bucket_store(root)


def bucket_store(root: str, prefix: str | None = None) -> ObjectStore:
    """The store of `scheme://bucket`, or of a prefix in it; `abfss://container@account…` names the account, too."""
    from obstore import store

    parts = urlsplit(root)
    limits: Any = {
        "client_options": {"timeout": f"{REQUEST_SECONDS}s", "connect_timeout": "5s", **_plain_web(parts.scheme)},
        "retry_config": {"max_retries": 5, "retry_timeout": dt.timedelta(seconds=RETRY_SECONDS)},
    }
    if parts.scheme in WEB:
        return store.HTTPStore.from_url(root, **limits)
    if parts.scheme == "gs":
        return store.GCSStore(parts.netloc, prefix=prefix, **limits)
    if parts.scheme in AZURE:
        container, _, host = parts.netloc.partition("@")
        account: Any = {"account_name": host.partition(".")[0]} if host else {}
        return store.AzureStore(container, prefix=prefix, **account, **limits)
    return store.S3Store(parts.netloc, prefix=prefix, **_credential_files(), **limits)


def _plain_web(scheme: str) -> dict[str, Any]:
    """Options given here hide what the environment says of them, so that is looked up: unencrypted requests."""
    allowed = any(os.environ.get(f"{name}_ALLOW_HTTP", "").lower() in ("1", "true", "yes") for name in ("AWS", "AZURE"))
    return {"allow_http": True} if allowed or scheme == "http" else {}


def _credential_files() -> dict[str, Any]:
    """Credentials of the files that other tools use, read by boto3, where the environment names none."""
    named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    wanted = "AWS_PROFILE" in os.environ or os.path.isfile(named)
    if "AWS_ACCESS_KEY_ID" in os.environ or not wanted or importlib.util.find_spec("boto3") is None:
        return {}
    from obstore.auth.boto3 import Boto3CredentialProvider

    return {"credential_provider": Boto3CredentialProvider()}


def _store_and_key(url: str, doing: str) -> tuple[ObjectStore, str]:
    parts = urlsplit(url)
    why = ""
    if not parts.netloc:
        why = "the URL names no bucket"
    elif parts.password or (parts.username and parts.scheme not in AZURE):
        why = "a URL must not hold credentials"
    elif parts.scheme in WEB and parts.query:
        why = "a URL with a query, such as a signed one, is not read"
    elif parts.scheme in WEB and doing != "reading":
        why = "a web server is only read"
    if why:
        raise InputError(
            why,
            doing=f"{doing} {shown(url)}",
            hint="Write s3://bucket/prefix, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
        )
    root = f"{parts.scheme}://{parts.netloc}"
    key = url.split("://", 1)[1].removeprefix(parts.netloc).lstrip("/")
    return _shared_store(root), key


def shown(url: str) -> str:
    """A URL without what may be secret in it: the query, and a password."""
    parts = urlsplit(url)
    host = parts.netloc if parts.scheme in AZURE and not parts.password else parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


_ASKED_FOR_A_ROLE = ("169.254.169.254", "metadata.google.internal", "/latest/api/token", "/latest/meta-data/")
"""What stands in the error of a request for the credentials of a machine's role, which is the last place to look."""


def refusal(error: BaseException, doing: str) -> StrandlineError:
    """What a store's refusal means, in our words: its first line, without the queries of URLs in it."""
    why = re.sub(r"\?[^\s)\"]*", "", str(error).splitlines()[0])
    hint = "Check the credentials, the region and the endpoint in the environment, here and on the workers"
    if any(asked in why for asked in _ASKED_FOR_A_ROLE):
        why = "no credentials were found: neither in the environment nor from the machine"
        hint = "Set what docs/inputs.md names for this kind of URL, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    elif "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
        return NotFound("there is no such bucket", doing=doing, hint="Create it first, or correct its name")
    elif "timed out" in str(error) or "TimedOut" in str(error):
        why, hint = f"the endpoint did not answer in time: {why}", "Check the endpoint and the network, then try again"
    return StorageError(why, doing=doing, hint=hint)


@contextmanager
def _refusals(doing: str, url: str) -> Iterator[None]:
    """Turns obstore's errors into ours."""
    from obstore.exceptions import BaseError, InvalidPathError, PreconditionError

    what = "bucket" if doing == "writing" else "object"  # nothing that is new can be missing
    doing = f"{doing} {shown(url)}"
    try:
        yield
    except FileNotFoundError as error:
        hint = "Check the bucket's and the object's name"
        raise NotFound(f"there is no such {what}", doing=doing, hint=hint) from error
    except PreconditionError as error:
        hint = "Read it again when it is whole"
        raise FormatError("it was replaced while it was read", doing=doing, hint=hint) from error
    except (InvalidPathError, ValueError) as error:
        reason = str(error).splitlines()[0]
        hint = "What stands between slashes must not be empty, . or .."
        raise InputError(f"an object has a name that is no path: {reason}", doing=doing, hint=hint) from error
    except (BaseError, OSError) as error:
        raise refusal(error, doing) from error
