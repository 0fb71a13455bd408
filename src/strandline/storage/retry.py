"""Waiting a little before a transaction is tried again."""

from __future__ import annotations

import random
import time

FIRST, LONGEST = 0.002, 0.1
"""Seconds: the bound of the first pause, which doubles from try to try, and the greatest bound."""


def pause(attempt: int) -> None:
    """Waits after the failed try number `attempt` (from 0), so that contenders don't meet again at once."""
    time.sleep(random.uniform(0, min(FIRST * 2**attempt, LONGEST)))
