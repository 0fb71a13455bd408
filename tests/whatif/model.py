"""A plain-Python model of what-ifs that follows section 2.4: W = (B UNION S) DIFFERENCE T, by TNAME and timestamp.

A relation is a dictionary from tuple names to rows. A level is the list of what was done to it: at a time,
a tuple got a row, or None when it was deleted. Tuples of the relation below count as older than anything done here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]
"""A key, and values."""
Relation = dict[int, Row]
_names = itertools.count()


def new_name() -> int:
    return next(_names)


@dataclass
class Done:
    """At `time`, the tuple `name` got `row`; `saw` is the row below that this affected when the level first did."""

    time: int
    name: int
    row: Row | None
    saw: Row | None


@dataclass
class Level:
    """One what-if. `merges` are the times at which everything done before was merged away."""

    below: Level | None
    done: list[Done] = field(default_factory=list)
    merges: list[int] = field(default_factory=list)
    purged: int = 0

    def newest(self, time: int) -> dict[int, Done]:
        """S and T at a time: the newest that was done to each tuple."""
        start = max((merge for merge in self.merges if merge <= time), default=-1)
        found: dict[int, Done] = {}
        for one in self.done:
            if start < one.time <= time:
                found[one.name] = one
        return found

    def before(self, one: Done) -> list[Done]:
        """What was done to the same tuple here before, since the last merge."""
        start = max((merge for merge in self.merges if merge < one.time), default=-1)
        return [each for each in self.done if each.name == one.name and start < each.time < one.time]


def contents(level: Level | None, base: Relation, time: int) -> Relation:
    """W by the definition: from below, what is not done anew here; the key of a higher level wins."""
    if level is None:
        return dict(base)
    newest = level.newest(time)
    mine = {name: one.row for name, one in newest.items() if one.row is not None}
    keys = {row[0] for row in mine.values()}
    under = contents(level.below, base, time)
    return mine | {name: row for name, row in under.items() if name not in newest and row[0] not in keys}


def do(level: Level, base: Relation, time: int, rows: dict[int, Row | None]) -> None:
    """Change tuples of a what-if. Keys that become free are free: what they hid is deleted too."""
    now = contents(level, base, time - 1)
    under = contents(level.below, base, time - 1)
    newest = level.newest(time - 1)
    hidden = {row[0]: name for name, row in under.items() if name not in newest and name not in now}
    taken = {row[0] for row in rows.values() if row is not None}
    freed = {now[name][0] for name in rows if name in now} - taken
    rows = rows | {hidden[key]: None for key in freed if key in hidden}
    for name, row in rows.items():
        saw = newest[name].saw if name in newest else under.get(name)
        level.done.append(Done(time, name, row, saw))


@dataclass
class Merge:
    """What a merge does below: rows of tuples (None: deleted), and rows of new tuples."""

    rows: dict[int, Row | None]
    inserted: list[Row]
    conflicts: dict[int, str]
    doubled: bool


def merge(level: Level, base: Relation, time: int, choice: str | None) -> Merge:
    """A merge by the rules of docs/whatif.md; `choice` is ours, theirs or None."""
    under = contents(level.below, base, time)
    newest = level.newest(time)
    by_key = {row[0]: name for name, row in under.items() if name not in newest}
    result = Merge({}, [], {}, False)
    gone: set[int] = set()
    for name, one in newest.items():
        known = name in under
        lower = one.saw is not None
        # Where a deleted tuple stood is where it stood when it was deleted.
        key = one.row[0] if one.row is not None else _last_key(level, one)
        rival = by_key.get(key) if key is not None and (one.row is not None or not known) else None
        told = _conflict(one, under.get(name), None if rival is None else under[rival], lower=lower)
        if told:
            result.conflicts[name] = told
            if choice != "ours":
                continue
        if one.row is None:
            if known:
                gone.add(name)
            elif rival is not None and told:
                gone.add(rival)
            continue
        if known:
            result.rows[name] = one.row
            if rival is not None:
                gone.add(rival)
        elif rival is not None:
            result.rows[rival] = one.row
        else:
            result.inserted.append(one.row)
    result.rows |= {name: None for name in gone if name not in result.rows}
    after = {name: row for name, row in (under | result.rows).items() if row is not None}
    keys = [row[0] for row in (*after.values(), *result.inserted)]
    result.doubled = len(keys) != len(set(keys))
    return result


def _conflict(one: Done, theirs: Row | None, rival: Row | None, *, lower: bool) -> str:
    """How the relation below is in the way; a row there that is the very row that ours is, is not."""
    if lower and theirs is not None and theirs not in (one.saw, one.row):
        return "changed"
    if rival is not None and rival == one.row:
        return ""
    if lower and theirs is None and rival is not None:
        return "re-created"
    if lower and theirs is None and one.row is not None:
        return "deleted"
    return "collision" if one.row is not None and rival is not None else ""


def is_busy(levels: Iterable[Level], level: Level, time: int) -> bool:
    """Whether a what-if that stands on this one, directly or not, has tuples of its own."""
    levels = list(levels)
    above = [other for other in levels if other.below is level]
    return any(other.newest(time) or is_busy(levels, other, time) for other in above)


def _last_key(level: Level, one: Done) -> int | None:
    rows = [each.row for each in level.before(one) if each.row is not None]
    last = rows[-1] if rows else one.saw
    return None if last is None else int(last[0])
