"""Trying again what lost against others: a transaction that met another one, a reader that came too late.

Between two tries there is a pause of random length, so that contenders don't meet again at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from strandline.errors import Conflict, StrandlineError

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


def pause(number: int) -> None:
    """Waits after the failed try `number`, which counts from 0."""
    time.sleep(random.uniform(0, min(FIRST * 2**number, LONGEST)))
