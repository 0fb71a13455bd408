"""Trying again what lost against others: a transaction that met another one, a reader that came too late. And putting
objects whose names are the caller's, where an answer may be lost and the request be repeated below.

Between two tries there is a pause of random length, so that contenders don't meet again at once. Small objects that
many processes change (who works on a store, its versions, a list of dumps) are read, edited and replaced by
`swap_if_first`, again until no other process was in between.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from strandline.errors import AlreadyExists, Conflict, StorageError, StrandlineError, SwapLost, Unanswered
from strandline.storage.seam import Storage, Token

FIRST, LONGEST = 0.002, 0.1
"""Seconds: the bound of the first pause, which doubles from try to try, and the greatest bound."""

R = TypeVar("R")


def retried(work: Callable[[], R], tries: int, lost: tuple[type[StrandlineError], ...] = (Conflict,)) -> R:
    """What `work` gives; done again, up to `tries` times in all, when it fails by one of `lost`."""
    for number in range(tries - 1):
        try:
            return work()
        except lost:
            pause(number)
    return work()


def swap_if_first(storage: Storage, name: str, expected: Token, value: bytes) -> bool:
    """Replace a value that was read before by one that never repeats; false when another process was first.

    After an error the object tells what became of it. `Unanswered` when that can't be known, now or at all: then
    nothing that the value names may be deleted.
    """
    try:
        storage.compare_and_swap(name, expected, value)
        return True
    except SwapLost:
        return False
    except StorageError as error:
        try:
            now = storage.get_with_token(name)
        except StrandlineError as again:
            raise Unanswered(
                f"whether it took effect is not known ({again.why})", doing=error.doing, hint=error.hint
            ) from error
        if now.token == expected:
            raise
        return now.value == value


def put_new(storage: Storage, objects: Mapping[str, bytes], *, for_swap: bool = False) -> list[str]:
    """Store objects, or put them for a swap, and give the names under which something else is. One that is there with
    these very bytes is a put whose answer was lost.
    """
    try:
        if for_swap:
            storage.put_for_swap(objects)
        else:
            storage.put_all(objects)
    except AlreadyExists:
        return [name for name, data in objects.items() if not _put_or_there(storage, name, data)]
    return []


def put_over(storage: Storage, objects: Mapping[str, bytes]) -> None:
    """Store objects under names that are the caller's alone: what an earlier attempt of it left there is replaced."""
    foreign = put_new(storage, objects)
    for name in foreign:
        storage.delete(name)
    again = put_new(storage, {name: objects[name] for name in foreign})
    if again:
        raise AlreadyExists(f"{again[0]} exists already", doing=f"replacing {again[0]}", hint="Try again")


def _put_or_there(storage: Storage, name: str, data: bytes) -> bool:
    try:
        storage.put_if_absent(name, data)
    except AlreadyExists:
        return storage.get(name) == data
    return True


def completed(step: Callable[[], R]) -> R:
    """What a short step gives that must come to its end even if the user's interrupt falls into it: it is done again
    then, so doing it twice must be as good as once.
    """
    try:
        return step()
    except KeyboardInterrupt:
        step()
        raise


def pause(number: int) -> None:
    """Waits after the failed try `number`, which counts from 0."""
    time.sleep(random.uniform(0, min(FIRST * 2**number, LONGEST)))
