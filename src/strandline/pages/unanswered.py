"""A failed swap is not proof of anything: finding out what became of it.

The pointer's log names every swap. Looking back through it from the newest pointer to the one that a swap
started from tells whether that swap is in between. A request that was never answered may still take effect
later; replacing the value that it expects makes its condition false for ever.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from strandline.errors import StoreError, SwapLost
from strandline.pages.context import Context
from strandline.pages.objects import Objects
from strandline.pages.pointer import LogEntry, Pointer, encode_pointer
from strandline.pages.roster import Roster
from strandline.storage import Token


def settle(context: Context, expected: Pointer, token: Token) -> None:
    """Replace a pointer by an equal one with a new id, unless something else has replaced it already."""
    entry = LogEntry(expected.commit, context.surroundings.new_id(), context.surroundings.now(), "settle", "")
    log = Roster((*expected.log.inline, entry.to_json()), expected.log.chunks)
    again = replace(expected, swap=entry.id, log=log)
    with suppress(SwapLost):
        context.storage.compare_and_swap(expected.object, token, encode_pointer(again))


def contains(objects: Objects, newest: Pointer, swap: str, base: str) -> bool:
    """Whether `newest` has `swap` behind it, looking back through the log as far as `base`."""
    rows = list(newest.log.inline)
    for chunk in reversed(newest.log.chunks):
        if any(row[1] == base for row in rows):
            break
        rows = [*objects.chunk(chunk), *rows]
    for row in reversed(rows):
        if row[1] == swap:
            return True
        if row[1] == base:
            return False
    raise StoreError("the log does not reach back far enough")
