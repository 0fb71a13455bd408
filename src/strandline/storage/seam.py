"""What every backend promises.

Objects have relative names and whole values. `put_if_absent` and `put_all` are durable when they return;
`compare_and_swap` is atomic and durable, and everything that the same process put or deleted before it is
durable no later than the swap itself. A failed swap is either `SwapLost` (the object holds another value
than expected; possibly our own, when an answer was lost and the request was repeated below us) or another
`StorageError` (the outcome is unknown). In both cases the caller re-reads and looks for its own mark in the
value: a value that is swapped in must therefore never repeat (a random id inside sees to that).

`list` exists for checking a store and for nothing else: deciding by listing what may be deleted is how stores
lose data. It raises unless it is called inside `with auditing():`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NewType, Protocol, Self

from strandline.errors import InputError, NotFound, StorageError, SwapLost

Token = NewType("Token", str)
"""Identifies one value of one object, for `compare_and_swap`."""

_NAME = re.compile(r"{0}(?:/{0})*".format(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,199}"))
_auditing: ContextVar[bool] = ContextVar("strandline_auditing", default=False)


class Closeable:
    """What is held open until it is closed: a `with` block closes it at its end."""

    close: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Stored:
    """A value with the token that a swap of it needs."""

    value: bytes
    token: Token


class Storage(Protocol):
    """The seam. Every method raises `StorageError` when the disk or the object store refuses."""

    @property
    def url(self) -> str:
        """Where this is, in the form that `open_storage` takes; holds no credentials."""
        ...

    def get(self, name: str) -> bytes:
        """The whole value; `NotFound` when there is none."""
        ...

    def get_with_token(self, name: str) -> Stored:
        """The whole value and its token; `NotFound` when there is none."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` (inclusive), fewer at the end of the value."""
        ...

    def put_if_absent(self, name: str, value: bytes) -> None:
        """Store durably; `AlreadyExists`, and no change, when the name is taken."""
        ...

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """`put_if_absent` for each, cheaper together; after an error any part of them may be stored."""
        ...

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        """Replace the value that `expected` identifies (None: no value yet) and return the new token.

        A value that is swapped in holds something of its own, so that it is never swapped in twice.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove the object; no error when it is absent. Durable no later than the next swap."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Names that begin with `prefix`. Only inside `with auditing():`."""
        ...


@contextmanager
def auditing() -> Iterator[None]:
    """Allow `list` in this context: for `check`, and for nothing that decides about deleting by age or
    path."""
    mark = _auditing.set(True)
    try:
        yield
    finally:
        _auditing.reset(mark)


def require_auditing() -> None:
    """Raise unless inside `auditing()`; every backend's `list` calls this first."""
    if not _auditing.get():
        raise StorageError(
            "listing is for checking a store only",
            doing="listing a store's objects",
            hint="What may be deleted is proved by commit numbers, never by what a listing shows",
        )


def token_of(value: bytes) -> Token:
    """The token of a value where the backend has none of its own: what it holds."""
    return Token(hashlib.blake2b(value, digest_size=16).hexdigest())


def is_stored(storage: Storage, name: str) -> bool:
    """Whether there is an object of that name."""
    try:
        storage.get_range(name, 0, 1)
    except NotFound:
        return False
    return True


def swap_lost(name: str) -> SwapLost:
    """The refusal of a swap whose object holds another value than expected."""
    return SwapLost(f"{name} holds another value than expected", doing=f"swapping {name}")


def checked_name(name: str) -> str:
    """The name itself, when it is relative and can't leave the root."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no valid object name",
            hint="Names are relative: segments of letters, digits, '_', '=', '-' and '.', no '.' in front",
        )
    return name
