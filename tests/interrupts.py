"""Ctrl-C at a chosen moment."""

from __future__ import annotations

import _thread
import os
import signal
from collections.abc import Callable

from strandline.storage import Wakeup

AGAIN = 2.0
"""Seconds after which it is pressed again: a destructor may have swallowed it."""


def press_after(seconds: float, work: Callable[[], object]) -> None:
    """Do work, again and again, until Ctrl-C is pressed. Nothing here takes a lock that an interrupt could keep."""
    ended, gone = Wakeup(), Wakeup()

    def press() -> None:
        pause = seconds
        while not ended.wait(pause):
            os.kill(os.getpid(), signal.SIGINT)
            pause = AGAIN
        gone.set()

    _thread.start_new_thread(press, ())
    try:
        while True:
            work()
    finally:
        while not gone.is_set():
            try:
                ended.set()
                gone.wait(1.0)
            except KeyboardInterrupt:
                continue
