"""Dumps by the calendar: which level is due, and which dumps a rule such as `7 daily, 4 weekly, 6 monthly` keeps.

Periods are those of the machine's calendar, or of a time zone that is given: days begin at midnight, weeks on Monday.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from strandline.dumps.catalog import DumpEntry
from strandline.errors import InputError


class Dated(Protocol):
    """Whatever was taken at a time, and has a name."""

    @property
    def id(self) -> str: ...

    @property
    def taken(self) -> float: ...


Begin = Callable[[dt.datetime], dt.datetime]


def _midnight(when: dt.datetime) -> dt.datetime:
    return when.replace(hour=0, minute=0, second=0, microsecond=0)


PERIODS: Mapping[str, Begin] = {
    "hourly": lambda when: when.replace(minute=0, second=0, microsecond=0),
    "daily": _midnight,
    "weekly": lambda when: _midnight(when) - dt.timedelta(days=when.weekday()),
    "monthly": lambda when: _midnight(when).replace(day=1),
    "yearly": lambda when: _midnight(when).replace(month=1, day=1),
}
"""The beginning of the period that a time is in; from the shortest period to the longest."""

LAST = "last"
SCHEDULE = "weekly=0, daily=1, hourly=2"


def parse_schedule(text: str) -> dict[str, int]:
    """`weekly=0, daily=1, hourly=2` as levels by period.

    >>> parse_schedule("weekly=0, daily=1")
    {'weekly': 0, 'daily': 1}
    """
    doing, hint = f"Reading the schedule {text!r}", f"For example: {SCHEDULE}"
    found: dict[str, int] = {}
    for piece in text.split(","):
        name, _, level = (one.strip() for one in piece.partition("="))
        if name not in PERIODS or not level.isdigit() or name in found:
            raise InputError(f"{piece.strip()!r} is no period=level", doing=doing, hint=hint)
        found[name] = int(level)
    order = [name for name in reversed(list(PERIODS)) if name in found]
    levels = [found[name] for name in order]
    if levels != sorted(set(levels)) or levels[0] != 0:
        raise InputError("the longest period has level 0, and shorter ones higher levels", doing=doing, hint=hint)
    return {name: found[name] for name in order}


def due(dumps: Sequence[DumpEntry], schedule: Mapping[str, int], now: dt.datetime) -> int | None:
    """The lowest level that has not been dumped yet in the present period; None when none is due.

    A dump of a lower level does for the higher ones of its time. Synthetic ones count as what they hold.
    """
    for period, level in sorted(schedule.items(), key=lambda one: one[1]):
        begin = PERIODS[period](now).timestamp()
        if not any(one.level <= level and one.taken >= begin for one in dumps):
            return level
    return None


def parse_rule(text: str) -> dict[str, int]:
    """`7 daily, 4 weekly, 6 monthly` as counts by period; `3 last` keeps the last three.

    >>> parse_rule("7 daily, 4 weekly")
    {'daily': 7, 'weekly': 4}
    """
    found: dict[str, int] = {}
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s+(\w+)\s*", piece)
        if match is None or match[2] not in {*PERIODS, LAST} or match[2] in found or int(match[1]) < 1:
            raise InputError(
                f"{piece.strip()!r} is no count and period",
                doing=f"Reading the rule {text!r}",
                hint=f"For example: 7 daily, 4 weekly, 6 monthly. Periods: last, {', '.join(PERIODS)}",
            )
        found[match[2]] = int(match[1])
    return found


def kept_by(dumps: Sequence[Dated], rule: Mapping[str, int], zone: dt.tzinfo | None = None) -> dict[str, str]:
    """The dumps that a rule keeps, with the reason: the last one of each of the last periods that have any.

    `dumps` are of one store, oldest first. The very last one is always kept.
    """
    kept: dict[str, str] = {}
    if dumps:
        kept[dumps[-1].id] = LAST
    for period, count in rule.items():
        seen: set[object] = set()
        for one in reversed(dumps):
            when = dt.datetime.fromtimestamp(one.taken, zone)
            begin: object = one.id if period == LAST else PERIODS[period](when)
            if begin not in seen and len(seen) < count:
                seen.add(begin)
                kept.setdefault(one.id, period)
    return kept
