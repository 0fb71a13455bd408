"""Dumps by the calendar: which level is due, which dumps a rule such as `7 daily, 4 weekly, 6 monthly` keeps, and
deleting the rest.

Periods are those of the machine's calendar, or of a time zone that is given: days begin at midnight, weeks on Monday.
A dump that a kept one stands on is kept as well. Deleting is a dry run unless confirmed.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Protocol

from strandline.dumps.catalog import DROPPING, DumpCatalog, DumpEntry, change_catalog, needed_by, require_catalog
from strandline.dumps.target import Target, object_names
from strandline.errors import Conflict, InputError, InUse


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
    doing, hint = f"reading the schedule {text!r}", f"For example: {SCHEDULE}"
    by_period: dict[str, int] = {}
    for piece in text.split(","):
        name, _, level = (part.strip() for part in piece.partition("="))
        if name not in PERIODS or not level.isdigit() or name in by_period:
            raise InputError(f"{piece.strip()!r} is no period=level", doing=doing, hint=hint)
        by_period[name] = int(level)
    longest_first = [name for name in reversed(list(PERIODS)) if name in by_period]
    levels = [by_period[name] for name in longest_first]
    if levels != sorted(set(levels)) or levels[0] != 0:
        raise InputError("the longest period has level 0, and shorter ones higher levels", doing=doing, hint=hint)
    return {name: by_period[name] for name in longest_first}


def due(dumps: Sequence[DumpEntry], schedule: Mapping[str, int], now: dt.datetime) -> int | None:
    """The lowest level that has not been dumped yet in the present period; None when none is due.

    A dump of a lower level does for the higher ones of its time. Synthetic ones count as what they hold.
    """
    for period, level in sorted(schedule.items(), key=lambda one: one[1]):
        begin = PERIODS[period]
        taken = (dt.datetime.fromtimestamp(one.taken, now.tzinfo) for one in dumps if one.level <= level)
        if all(begin(when) != begin(now) for when in taken):
            return level
    return None


def parse_rule(text: str) -> dict[str, int]:
    """`7 daily, 4 weekly, 6 monthly` as counts by period; `3 last` keeps the last three.

    >>> parse_rule("7 daily, 4 weekly")
    {'daily': 7, 'weekly': 4}
    """
    counts: dict[str, int] = {}
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s+(\w+)\s*", piece)
        if match is None or match[2] not in {*PERIODS, LAST} or match[2] in counts or int(match[1]) < 1:
            raise InputError(
                f"{piece.strip()!r} is no count and period",
                doing=f"reading the rule {text!r}",
                hint=f"For example: 7 daily, 4 weekly, 6 monthly. Periods: last, {', '.join(PERIODS)}",
            )
        counts[match[2]] = int(match[1])
    return counts


def kept_by(dumps: Sequence[Dated], rule: Mapping[str, int], zone: dt.tzinfo | None = None) -> dict[str, str]:
    """The dumps that a rule keeps, with the reason: the last one of each of the last periods that have any.

    `dumps` are of one store, in the order of their states. The very last one is always kept.
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


def prune(target: Target, rule: str, *, confirm: bool = False) -> Pruned:
    """Remove what no kept dump needs, and what interrupted dumps left. A dry run unless confirmed; needs no key."""
    wanted = parse_rule(rule)
    catalog = require_catalog(target.storage)
    finish_dropping(target, catalog)
    kept: dict[str, str] = {}
    for line in _lines(catalog):
        kept |= kept_by(line, wanted)
    for entry in [*catalog.complete(), *catalog.begun()]:
        if entry.id in kept or (not entry.complete and not _is_given_up(entry)):
            for ancestor in needed_by(catalog, entry):
                kept.setdefault(ancestor.id, f"{entry.id} stands on it")
    unneeded = [entry for entry in catalog.complete() if entry.id not in kept]
    given_up = [entry for entry in catalog.begun() if _is_given_up(entry)]
    if confirm:
        drop_dumps(target, [*unneeded, *given_up])
    return Pruned(
        {entry.id: kept[entry.id] for entry in catalog.dumps if entry.id in kept},
        tuple(entry.id for entry in unneeded),
        tuple(entry.id for entry in given_up),
        sum(entry.bytes for entry in [*unneeded, *given_up]),
        confirm,
    )


def sweep(target: Target, *, confirm: bool = False) -> Pruned:
    """Remove every dump that is not complete. One that is still being made fails then, and leaves nothing."""
    catalog = require_catalog(target.storage)
    finish_dropping(target, catalog)
    begun = catalog.begun()
    if confirm:
        drop_dumps(target, begun)
    return Pruned({}, (), tuple(one.id for one in begun), sum(one.bytes for one in begun), confirm)


def _lines(catalog: DumpCatalog) -> list[list[DumpEntry]]:
    """The dumps of each store and scope, in the order of their states."""
    by_line: dict[object, list[DumpEntry]] = {}
    for entry in catalog.complete():
        by_line.setdefault((entry.store, entry.scope), []).append(entry)
    return list(by_line.values())


def _is_given_up(entry: DumpEntry) -> bool:
    """Whether a begun dump is no longer being made, as far as can be known without the store."""
    return entry.owner is None or entry.owner.has_ended()


def drop_dumps(target: Target, entries: list[DumpEntry]) -> None:
    """Delete dumps that nothing stands on, or attempts at dumps: mark them in the catalog, delete, remove the entries.

    From the first swap on they are no dumps. Each step can be repeated.
    """
    chosen = {entry.id: entry for entry in entries}
    finish_dropping(target, change_catalog(target.storage, lambda catalog: _marked(catalog, chosen)))


def _marked(catalog: DumpCatalog, chosen: Mapping[str, DumpEntry]) -> DumpCatalog:
    """The catalog with the chosen dumps marked; refused while others stand on them, or if they have changed."""
    for other in catalog.dumps:
        if other.parent in chosen and other.id not in chosen and other.state != DROPPING:
            raise InUse(
                f"dump {other.id} stands on dump {other.parent}",
                doing=f"deleting dump {other.parent}",
                hint="Delete that first, or make a synthetic full",
            )
    edited = catalog
    for entry in chosen.values():
        present = catalog.find(entry.id)
        if present is None or present.state == DROPPING:
            continue
        if present != entry:
            raise Conflict(f"dump {entry.id} changed meanwhile", doing="deleting dumps", hint="Try again")
        edited = edited.with_entry(replace(present, state=DROPPING, owner=None))
    return edited


def finish_dropping(target: Target, catalog: DumpCatalog) -> None:
    """Finish deleting the dumps that are marked."""
    marked = [entry for entry in catalog.dumps if entry.state == DROPPING]
    for entry in marked:
        target.folder(entry.id).delete(object_names(entry))
    for entry in marked:
        change_catalog(target.storage, methodcaller("without", entry.id))
