"""What the control plane takes from outside: time, and randomness."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clock and ids, passed in so that tests can choose them.

    `now` is wall-clock time in seconds, for people; nothing depends on its being right. `monotonic`
    measures how long a process's beat has stood still. `new_id` gives a random name that never repeats.
    """

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = lambda: secrets.token_hex(8)
    patience: float = 60.0
    """Seconds for which a beat must stand still before its process is taken for dead."""
