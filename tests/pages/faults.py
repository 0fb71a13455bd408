"""Storage that fails on purpose: stops, tears writes, loses answers, runs out of space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from strandline.errors import StorageError, SwapLost, Unanswered
from strandline.storage import MemoryStorage, Storage, Stored, Token


class Crash(BaseException):
    """The process stops here. No `Exception`, so nothing but the test catches it."""


class Fault(Enum):
    STOP = "stop before the operation"
    TEAR = "write half of the object, then stop"
    ANSWER_LOST_THEN_STOP = "do it, then stop"
    NO_ANSWER = "do a swap, and answer nothing"
    NOT_DONE_NO_ANSWER = "do not do a swap, and answer nothing"
    WRONG_ANSWER = "do a swap, and say that it was lost, as a repeated request would"
    FULL = "no space"
    INTERRUPT = "the user's Ctrl-C, before the operation; the process goes on"
    INTERRUPT_AFTER = "the user's Ctrl-C, after the operation; the process goes on"


STOPS = (Fault.STOP, Fault.TEAR, Fault.ANSWER_LOST_THEN_STOP)
TROUBLES = (Fault.NO_ANSWER, Fault.NOT_DONE_NO_ANSWER, Fault.WRONG_ANSWER, Fault.FULL)


class FaultyStorage(Storage):
    """A memory storage whose `at`-th changing operation (from 0) meets a fault. Every object put counts
    as one.
    """

    url = "faulty:"

    def __init__(self, inner: MemoryStorage, fault: Fault | None = None, at: int = -1) -> None:
        self.inner = inner
        self.fault = fault
        self.at = at
        self.operations = 0
        self.stopped = False
        self.struck = False

    def get(self, name: str) -> bytes:
        self._alive()
        return self.inner.get(name)

    def get_with_token(self, name: str) -> Stored:
        self._alive()
        return self.inner.get_with_token(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._alive()
        return self.inner.get_range(name, start, length)

    def put_if_absent(self, name: str, value: bytes) -> None:
        if not self._strikes():
            self.inner.put_if_absent(name, value)
        elif self.fault in (Fault.STOP, Fault.TEAR):
            if self.fault is Fault.TEAR:
                self.inner.put_if_absent(name, value[: len(value) // 2])
            self._stop()
        elif self.fault is Fault.FULL:
            raise StorageError("no space left on device", doing=f"writing {name}")
        else:
            self.inner.put_if_absent(name, value)
            self._stop_if_asked()

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        for name, value in objects.items():
            self.put_if_absent(name, value)

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        if not self._strikes():
            return self.inner.compare_and_swap(name, expected, value)
        if self.fault in (Fault.STOP, Fault.TEAR):
            self._stop()
        if self.fault is Fault.FULL:
            raise StorageError("no space left on device", doing=f"swapping {name}")
        if self.fault is Fault.NOT_DONE_NO_ANSWER:
            raise Unanswered("the connection broke", doing=f"swapping {name}")
        token = self.inner.compare_and_swap(name, expected, value)
        if self.fault is Fault.NO_ANSWER:
            raise Unanswered("the connection broke", doing=f"swapping {name}")
        if self.fault is Fault.WRONG_ANSWER:
            raise SwapLost("precondition failed", doing=f"swapping {name}")
        self._stop_if_asked()
        return token

    def delete(self, name: str) -> None:
        if not self._strikes():
            self.inner.delete(name)
        elif self.fault in (Fault.STOP, Fault.TEAR):
            self._stop()
        else:
            self.inner.delete(name)
            self._stop_if_asked()

    def list(self, prefix: str) -> Iterator[str]:
        self._alive()
        return self.inner.list(prefix)

    def _alive(self) -> None:
        if self.stopped:
            raise Crash

    def _strikes(self) -> bool:
        self._alive()
        self.operations += 1
        strikes = self.operations - 1 == self.at
        self.struck = self.struck or strikes
        if strikes and self.fault is Fault.INTERRUPT:
            raise KeyboardInterrupt
        return strikes

    def _stop(self) -> None:
        self.stopped = True
        raise Crash

    def _stop_if_asked(self) -> None:
        if self.fault is Fault.INTERRUPT_AFTER:
            raise KeyboardInterrupt
        if self.fault is Fault.ANSWER_LOST_THEN_STOP:
            self._stop()
