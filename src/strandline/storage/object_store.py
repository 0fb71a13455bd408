"""S3-compatible object stores, through obstore: conditional puts with entity tags.

obstore repeats a request whose answer was lost, and the repetition then meets our own value: a `SwapLost`
or an `AlreadyExists` from here does not prove that another process was first (see `seam.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from strandline.errors import AlreadyExists, NotFound, StorageError, StrandlineError, SwapLost, Unanswered
from strandline.storage.object_file import refusal
from strandline.storage.seam import Storage, Stored, Token, checked_name, require_auditing, swap_lost
from strandline.storage.threads import together

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class ObjectStorage(Storage):
    """Objects below one prefix of one bucket. Safe for many threads and many machines."""

    is_shared = True

    def __init__(self, store: ObjectStore, url: str) -> None:
        self._store = store
        self.url = url

    def get(self, name: str) -> bytes:
        return self.get_with_token(name).value

    def get_with_token(self, name: str) -> Stored:
        with _refusals("reading", name):
            result = obstore.get(self._store, checked_name(name))
            return Stored(bytes(result.bytes()), _token(result.meta["e_tag"], name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        with _refusals("reading", name):
            size = obstore.head(self._store, checked_name(name))["size"]
            if start >= size:
                return b""
            return bytes(obstore.get_range(self._store, name, start=start, end=min(size, start + length)))

    def put_if_absent(self, name: str, value: bytes) -> None:
        with self._bucket_is_there(), _refusals("writing", name):
            obstore.put(self._store, checked_name(name), value, mode="create", use_multipart=False)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        together(lambda name: self.put_if_absent(name, objects[name]), list(objects))

    @contextmanager
    def _bucket_is_there(self) -> Iterator[None]:
        """Nothing that is new can be missing, so only its bucket can."""
        try:
            yield
        except NotFound as error:
            raise StorageError(
                "there is no such bucket",
                doing=f"writing to {self.url}",
                hint="Create the bucket first, or correct its name, the endpoint or the credentials",
            ) from error

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        there = self._bucket_is_there() if expected is None else nullcontext()
        try:
            with there, _refusals("swapping", name):
                result = obstore.put(
                    self._store,
                    checked_name(name),
                    value,
                    mode="create" if expected is None else {"e_tag": expected},
                    use_multipart=False,
                )
                return _token(result["e_tag"], name)
        except (AlreadyExists, SwapLost) as error:
            return self._answer_lost(name, value, error)
        except NotFound as error:
            raise swap_lost(name) from error
        except StorageError as error:
            # The request may be on its way still: the caller must not undo anything before it has settled
            # this.
            raise Unanswered(error.why, doing=error.doing, hint=error.hint) from error

    def _answer_lost(self, name: str, value: bytes, error: StrandlineError) -> Token:
        """The token of our own value: a service that was overloaded may have stored it and refused the request, which
        was repeated then. No value is ever swapped in twice, so no other process has stored this one.
        """
        try:
            stored = self.get_with_token(name)
        except NotFound:
            raise swap_lost(name) from error
        if stored.value != value:
            raise swap_lost(name) from error
        return stored.token

    def delete(self, name: str) -> None:
        try:
            with _refusals("deleting", name):
                obstore.delete(self._store, checked_name(name))
        except NotFound:
            return

    def list(self, prefix: str) -> Iterator[str]:
        require_auditing()
        folder = prefix.rpartition("/")[0]
        with _refusals("listing", prefix):
            for chunk in obstore.list(self._store, prefix=folder or None):
                for meta in chunk:
                    if meta["path"].startswith(prefix):
                        yield meta["path"]


def _token(e_tag: str | None, name: str) -> Token:
    if not e_tag:
        raise StorageError(
            f"the object store gave no entity tag for {name}",
            hint="A store needs conditional puts; this service does not offer them",
        )
    return Token(e_tag)


@contextmanager
def _refusals(doing: str, name: str) -> Iterator[None]:
    """Turn obstore's errors into the seam's."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"{name} is not there", doing=f"{doing} {name}") from error
    except AlreadyExistsError as error:
        raise AlreadyExists(f"{name} exists already", doing=f"{doing} {name}") from error
    except PreconditionError as error:
        raise swap_lost(name) from error
    except (BaseError, OSError) as error:
        raise refusal(error, f"{doing} {name}") from error
