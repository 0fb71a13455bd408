"""The improved algorithm, sequentially: figures 3 and 7 with two more extra fields.

The paper invites its reader to find fewer messages and fewer updates of the base. What makes its messages superfluous
is that a high TimeStamp says too little: the entry may have been inserted, updated, or merely stand behind a deletion;
and an entry that does not qualify may never have qualified. So two more fields are kept, written only where fix-up
writes anyway:

- **gap**: when the region before the entry last grew, apart from the time at which the entry itself changed;
- **unheld**: one bit for each snapshot, set when that snapshot is known not to hold the entry. Not set means *may be
  held*, so a snapshot defined later starts as careful as the paper and needs no pass that writes.

Then `Deletion` is raised only by a gap or by a changed, unqualified entry that the snapshot may hold; a qualified entry
behind a deletion that did not change itself is named without its value; and the message that ends the refresh is sent
only when something at the end went. Updates that keep their qualification cost exactly the ideal's messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.oracles.annotated import START, Restriction, Sent


class _Kept:
    def __repr__(self) -> str:
        return "KEPT"


KEPT: Any = _Kept()
"""In place of a value: the snapshot's own value at the address stays, and only what is before it goes."""


@dataclass(frozen=True)
class Marked:
    """One entry with the four extra fields; None is NULL. `unheld` is a set of bits."""

    address: int
    previous: int | None
    time: int | None
    value: Any
    gap: int | None = None
    unheld: int | None = None


class Tail(NamedTuple):
    """What the base remembers beside its entries: the greatest address, and when entries above it last went."""

    last: int = START
    gap: int | None = None


def marked_fix_up(
    entries: Sequence[Marked], tail: Tail, now: int, restrictions: Mapping[int, Restriction], refreshing: int | None
) -> tuple[list[Marked], Tail]:
    """Figure 7 with gaps and bits. `restrictions` has one for each snapshot's bit; `refreshing` is the bit of the one
    that is brought up to date in the same transaction, and so holds afterwards exactly what qualifies."""
    fixed: list[Marked] = []
    expect_prev = last_addr = START
    for entry in entries:
        inserted = entry.previous is None
        changed = inserted or entry.time is None
        emptied = not inserted and entry.previous != expect_prev
        fixed.append(
            Marked(
                address=entry.address,
                previous=last_addr,
                time=now if changed else entry.time,
                value=entry.value,
                gap=None if inserted else now if emptied else entry.gap,
                unheld=_bits(entry, restrictions, refreshing) if changed else entry.unheld,
            )
        )
        if not inserted:
            expect_prev = entry.address
        last_addr = entry.address
    return fixed, Tail(last_addr, tail.gap if expect_prev == tail.last else now)


def _bits(entry: Marked, restrictions: Mapping[int, Restriction], refreshing: int | None) -> int:
    """An inserted entry is held by nobody: what stood at its address before is covered by a gap behind it."""
    known = -1 if entry.previous is None else entry.unheld or 0
    found = 0
    for bit, restrict in restrictions.items():
        if not restrict(entry.value) and (bit == refreshing or known >> bit & 1):
            found |= 1 << bit
    return found


def marked_refresh(
    before: Iterable[Marked], fixed: Sequence[Marked], tail: Tail, snap_time: int, snapshot: tuple[int, Restriction]
) -> list[Sent]:
    """Figure 3 with a precise `Deletion`. `before` is the base as fix-up met it: its bits tell what may be held."""
    bit, restrict = snapshot
    held = {entry.address: not _known_unheld(entry, bit) for entry in before}
    messages = []
    last_qual = START
    deletion = False
    for entry in fixed:
        assert entry.time is not None
        deletion = deletion or (entry.gap or 0) > snap_time
        changed = entry.time > snap_time
        if restrict(entry.value):
            if changed:
                messages.append(Sent(entry.address, last_qual, entry.value))
            elif deletion:
                messages.append(Sent(entry.address, last_qual, KEPT))
            last_qual = entry.address
            deletion = False
        elif changed and held[entry.address]:
            deletion = True
    if deletion or (tail.gap or 0) > snap_time:
        messages.append(Sent(None, last_qual, None))
    return messages


def _known_unheld(entry: Marked, bit: int) -> bool:
    return entry.previous is None or bool((entry.unheld or 0) >> bit & 1)


def marked_snap_refresh(snapshot: Mapping[int, Any], messages: Iterable[Sent]) -> dict[int, Any]:
    """Figure 4, where a message without a value leaves the entry at its address as it is."""
    after = dict(snapshot)
    for message in messages:
        kept = after.get(message.address) if message.address is not None and message.value is KEPT else None
        for address in [a for a in after if a > message.previous and (message.address is None or a <= message.address)]:
            del after[address]
        if message.address is not None:
            after[message.address] = kept if message.value is KEPT else message.value
    return dict(sorted(after.items()))
