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
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NewType, Self

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


class Storage(ABC):
    """The seam. Every method raises `StorageError` when the disk or the object store refuses.

    The last ones are ways of local files, and the plain operations everywhere else: reading and writing in passing, one
    flush for all that a swap makes durable, turns of the processes that prepare swaps.
    """

    url: str
    """Where this is, in the form that `open_storage` takes; holds no credentials."""
    is_shared = False
    """Whether other processes can open it, by its URL."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The whole value; `NotFound` when there is none."""

    @abstractmethod
    def get_with_token(self, name: str) -> Stored:
        """The whole value and its token; `NotFound` when there is none."""

    @abstractmethod
    def get_range(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` (inclusive), fewer at the end of the value."""

    @abstractmethod
    def put_if_absent(self, name: str, value: bytes) -> None:
        """Store durably; `AlreadyExists`, and no change, when the name is taken."""

    @abstractmethod
    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """`put_if_absent` for each, cheaper together; after an error any part of them may be stored."""

    @abstractmethod
    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        """Replace the value that `expected` identifies (None: no value yet) and return the new token.

        A value that is swapped in holds something of its own, so that it is never swapped in twice.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the object; no error when it is absent. Durable no later than the next swap."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[str]:
        """Names that begin with `prefix`. Only inside `with auditing():`."""

    def get_in_passing(self, name: str) -> bytes:
        """`get` of what is read once: what the machine had not cached before is not cached afterwards."""
        return self.get(name)

    def put_in_passing(self, name: str, pieces: Sequence[bytes]) -> None:
        """`put_if_absent` of pieces, one behind the other, that are not read soon: they do not stay cached."""
        self.put_if_absent(name, b"".join(pieces))

    def put_for_swap(self, objects: Mapping[str, bytes]) -> None:
        """`put_all` of what nothing names before `swap_after`, which is told of it: durable with that at the latest."""
        self.put_all(objects)

    def swap_after(self, put: Collection[str], name: str, expected: Token | None, value: bytes) -> Token:
        """`compare_and_swap`; what was put for it is durable before it takes effect."""
        return self.compare_and_swap(name, expected, value)

    def is_unswapped(self, name: str, expected: Token | None) -> bool:
        """Whether a swap that was stopped, as by an interrupt, has changed nothing and never will. A local file tells;
        a request to an object store may still be under way.
        """
        return False

    def turn(self) -> AbstractContextManager[bool]:
        """A turn to prepare a swap, where there are turns; gives whether one has waited for it."""
        return nullcontext(enter_result=False)

    @property
    def contended(self) -> bool:
        """Whether other processes want to swap what is there, as far as their turns tell."""
        return False


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


def something_in(storage: Storage) -> str | None:
    """The name of an object that is there; None when nothing is. For refusing a place that is not empty."""
    with auditing():
        return next(iter(storage.list("")), None)


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
