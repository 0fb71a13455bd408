"""Lindsay et al. 1986 as sequential code: the oracle that the database and the kernels are measured against.

Each function carries the name of the paper's pseudo code and follows it line by line, with the misprints mended:
`Next` is called once per turn; `LastQual` and `Deletion` are set for every qualified entry, sent or not; `ExpectPrev`
is set for every entry that is not newly inserted. Nothing here touches a database; entries are plain values in
address order, and times are any numbers that grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

START = 0
"""The address before the first: every entry's address is greater."""

Value = Any
Restriction = Callable[[Value], bool]


@dataclass(frozen=True)
class Element:
    """One element of the dense address space of figure 1: `value` is None where it is empty."""

    address: int
    time: int
    value: Value


@dataclass(frozen=True)
class Entry:
    """One entry of the base table with the paper's two extra fields; None is NULL."""

    address: int
    previous: int | None
    time: int | None
    value: Value


class Sent(NamedTuple):
    """One message: everything in (previous, address] is emptied, then `value` stands at `address`.

    The last message of a refresh has no address: everything above `previous` is emptied.
    """

    address: int | None
    previous: int
    value: Value


class Fixed(NamedTuple):
    """The base after fix-up, and the addresses whose annotations were written."""

    entries: list[Entry]
    written: list[int]


def simple_refresh(elements: Iterable[Element], snap_time: int, restrict: Restriction) -> list[tuple[int, Value]]:
    """Figure 1: each changed element of a dense address space; None says that it is empty, or does not qualify."""
    return [
        (element.address, element.value if element.value is not None and restrict(element.value) else None)
        for element in elements
        if element.time > snap_time
    ]


def simple_snap_refresh(snapshot: Mapping[int, Value], messages: Iterable[tuple[int, Value]]) -> dict[int, Value]:
    """Figure 2: the snapshot's side of the simple refresh."""
    after = dict(snapshot)
    for address, value in messages:
        after.pop(address, None)
        if value is not None:
            after[address] = value
    return dict(sorted(after.items()))


def base_refresh(entries: Iterable[Entry], snap_time: int, restrict: Restriction, start: int = START) -> list[Sent]:
    """Figure 3, over entries whose extra fields are up to date."""
    messages = []
    last_qual = start
    deletion = False
    for entry in entries:
        assert entry.time is not None, "figure 3 runs after figure 7"
        if restrict(entry.value):
            if entry.time > snap_time or deletion:
                messages.append(Sent(entry.address, last_qual, entry.value))
            last_qual = entry.address
            deletion = False
        elif entry.time > snap_time:
            deletion = True
    messages.append(Sent(None, last_qual, None))
    return messages


def snap_refresh(snapshot: Mapping[int, Value], messages: Iterable[Sent]) -> dict[int, Value]:
    """Figure 4: the snapshot's side."""
    after: MutableMapping[int, Value] = dict(snapshot)
    for message in messages:
        for address in [held for held in after if _emptied(message, held)]:
            del after[address]
        if message.address is not None:
            after[message.address] = message.value
    return dict(sorted(after.items()))


def _emptied(message: Sent, address: int) -> bool:
    return address > message.previous and (message.address is None or address <= message.address)


def base_fix_up(entries: Iterable[Entry], now: int, start: int = START) -> Fixed:
    """Figure 7: the extra fields restored from the NULLs that base operations left."""
    fixed: list[Entry] = []
    written: list[int] = []
    expect_prev = last_addr = start
    for entry in entries:
        after = entry
        if entry.previous is None:
            after = replace(entry, previous=last_addr, time=now)
        else:
            if entry.time is None:
                after = replace(after, time=now)
            if entry.previous != expect_prev:
                after = replace(after, previous=last_addr, time=now)
            elif entry.previous != last_addr:
                after = replace(after, previous=last_addr)
            expect_prev = entry.address
        if after != entry:
            written.append(entry.address)
        last_addr = entry.address
        fixed.append(after)
    return Fixed(fixed, written)


def fix_up_and_refresh(
    entries: Iterable[Entry], snap_time: int, now: int, restrict: Restriction, start: int = START
) -> tuple[list[Entry], list[Sent]]:
    """Figures 3 and 7 combined in a single pass over the base table, as the paper's last step has it."""
    fixed: list[Entry] = []
    messages: list[Sent] = []
    expect_prev = last_addr = last_qual = start
    deletion = False
    for entry in entries:
        inserted = entry.previous is None
        emptied = not inserted and entry.previous != expect_prev
        time = now if inserted or emptied or entry.time is None else entry.time
        fixed.append(Entry(entry.address, last_addr, time, entry.value))
        if not inserted:
            expect_prev = entry.address
        last_addr = entry.address
        if restrict(entry.value):
            if time > snap_time or deletion:
                messages.append(Sent(entry.address, last_qual, entry.value))
            last_qual, deletion = entry.address, False
        elif time > snap_time:
            deletion = True
    messages.append(Sent(None, last_qual, None))
    return fixed, messages


def ideal_messages(before: Mapping[int, Any], after: Mapping[int, Any]) -> int:
    """How many entries of the snapshot really changed: one message each."""
    gone = sum(address not in after for address in before)
    return gone + sum(address not in before or bool(before[address] != value) for address, value in after.items())
