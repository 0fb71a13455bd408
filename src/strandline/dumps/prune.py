"""Dumps by the calendar: which level is due, and which dumps a rule such as `7 daily, 4 weekly, 6 monthly` keeps.

Periods are those of the machine's calendar, or of a time zone that is given: days begin at midnight, weeks on Monday.

Pruning: what a rule keeps, what that stands on, and the rest, which may go.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from strandline.dumps.catalog import DumpCatalog, DumpEntry, DumpOwner, needed_by, require_catalog
from strandline.dumps.target import Target, attempts, drop_dumps, finish_dropping
from strandline.dumps.write_dump import process_runs
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


@dataclass(frozen=True, slots=True)
class Pruned:
    """What stays, each with its reason, and what went; without `confirmed` nothing went yet."""

    kept: dict[str, str]
    removed: tuple[str, ...]
    attempts: tuple[str, ...]
    bytes: int
    confirmed: bool


def prune(target: Target, rule: str, *, confirm: bool = False, zone: dt.tzinfo | None = None) -> Pruned:
    """Remove what no kept dump needs, and what interrupted dumps left. A dry run unless confirmed; needs no key."""
    wanted = parse_rule(rule)
    catalog = require_catalog(target.storage)
    finish_dropping(target, catalog)
    kept: dict[str, str] = {}
    for line in lines(catalog):
        kept |= kept_by(line, wanted, zone)
    for entry in [*catalog.complete(), *attempts(catalog)]:
        if entry.id in kept or (not entry.complete and not _given_up(entry)):
            for ancestor in needed_by(catalog, entry):
                kept.setdefault(ancestor.id, f"{entry.id} stands on it")
    gone = [one for one in catalog.complete() if one.id not in kept]
    dead = [one for one in attempts(catalog) if _given_up(one)]
    if confirm:
        drop_dumps(target, [*gone, *dead])
    return Pruned(
        kept,
        tuple(one.id for one in gone),
        tuple(one.id for one in dead),
        sum(one.bytes for one in [*gone, *dead]),
        confirm,
    )


def sweep(target: Target, *, confirm: bool = False) -> Pruned:
    """Remove every dump that is not complete. One that is still being made fails then, and leaves nothing."""
    catalog = require_catalog(target.storage)
    finish_dropping(target, catalog)
    begun = attempts(catalog)
    if confirm:
        drop_dumps(target, begun)
    return Pruned({}, (), tuple(one.id for one in begun), sum(one.bytes for one in begun), confirm)


def lines(catalog: DumpCatalog) -> list[list[DumpEntry]]:
    """The dumps of each store and scope, oldest first."""
    found: dict[object, list[DumpEntry]] = {}
    for entry in catalog.complete():
        found.setdefault((entry.store, entry.scope), []).append(entry)
    return list(found.values())


def _given_up(entry: DumpEntry) -> bool:
    """Whether nobody makes an attempt any more, as far as can be told without the store."""
    owner = entry.owner
    return owner is None or (owner.host == DumpOwner.here(0).host and not process_runs(owner.pid))
