"""The signals that ask a command to end: Ctrl-C, what `timeout`, systemd and containers send, and a terminal that goes.

While the command works, each is an interrupt as Ctrl-C is in Python: what was begun is cleaned up, and the exit code
tells the signal. Once it has ended, a signal is noted for the exit code and disturbs no cleaning up; a second one ends
the process where it stands. A signal that the caller had ignored stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
OFFSET = 128
"""What shells add to the number of the signal that ended a command."""


class StopSignals:
    """How the process of one command takes them, from when they are `taken` on."""

    def __init__(self) -> None:
        self._number = 0
        self._ended = self._late = False
        self._taken: list[int] = []

    def taken(self) -> StopSignals:
        """From now on they interrupt the command."""
        if threading.current_thread() is threading.main_thread():
            self._taken = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._set()
        return self

    def ended(self) -> None:
        """The command has come to its end. Handlers that libraries have set meanwhile are replaced."""
        self._ended = True
        self._set()

    def code(self, otherwise: int) -> int:
        """The exit code: of the signal that came, if one did."""
        return OFFSET + self._number if self._number else otherwise

    def _set(self) -> None:
        for number in self._taken:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._late:
            os._exit(OFFSET + number)
        self._number, self._late = number, self._ended
        if not self._ended:
            raise KeyboardInterrupt
