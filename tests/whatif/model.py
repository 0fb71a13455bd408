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
    """At `time`, the tuple `name` got `row`; `saw` is the row below that this affected when the level first did.

    `lower` says that the tuple is one of the relation below; `stood` is the key at which it was deleted;
    `released` says that it follows that relation again.
    """

    time: int
    name: int
    row: Row | None
    saw: Row | None
    lower: bool
    stood: int | None = None
    released: bool = False


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
        return {name: one for name, one in found.items() if not one.released}


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
        lower = newest[name].lower if name in newest else name in under
        level.done.append(Done(time, name, row, saw, lower, None if row else ({**under, **now})[name][0]))


@dataclass
class Merge:
    """What a merge does below: rows of tuples (None: deleted), and rows of new tuples."""

    rows: dict[int, Row | None]
    inserted: list[Row]
    doubled: bool


Name = tuple[Any, ...]


@dataclass(frozen=True)
class Told:
    """A conflict as users see it: what it is called, how, and the rows on both sides."""

    name: Name
    how: str
    ours: Row | None
    theirs: Row | None


Conflicts = dict[int, Told]
"""The conflict that each tuple in conflict is part of."""
Stands = dict[Name, bool]
"""Whether ours stands, for each conflict."""


def conflicts(level: Level, base: Relation, time: int) -> Conflicts:
    """The conflicts by the rules of docs/whatif.md."""
    under, newest = contents(level.below, base, time), level.newest(time)
    told: dict[int, str] = {}
    for name, one in newest.items():
        rival = _rival(under, newest, name)
        how = _conflict(one, under.get(name), None if rival is None else under[rival])
        if how:
            told[name] = how
    for name, other in _inserted_again(under, newest).items():
        told |= {name: "deleted", other: "deleted"}
    return _grouped(under, newest, _spread(under, newest, told))


def _inserted_again(under: Relation, newest: dict[int, Done]) -> dict[int, int]:
    """Tuples that are deleted here and gone below, and the new tuple here that has the key, if nobody below has it."""
    new = {one.row[0]: name for name, one in newest.items() if one.row is not None and name not in under}
    keys = {row[0] for row in under.values()}
    lost = {name: one.stood for name, one in newest.items() if one.row is None and name not in under}
    return {
        name: new[key]
        for name, key in lost.items()
        if newest[name].lower and newest[name].saw is not None and key is not None and key in new and key not in keys
    }


def _grouped(under: Relation, newest: dict[int, Done], told: dict[int, str]) -> Conflicts:
    """A deleted tuple is part of the conflict of our row that meets the same row below, or has been inserted again."""
    meets = {name: _met(under, newest, name, how) for name, how in told.items()}
    again = _inserted_again(under, newest)
    found: Conflicts = {}
    for name, how in told.items():
        row, met = newest[name].row, meets[name]
        if row is not None:
            found[name] = Told((row[0],), how, row, None if met is None else under[met])
    live = dict(found)
    for name, how in told.items():
        if newest[name].row is not None:
            continue
        met = meets[name]
        leader = [one for one in live if met is not None and meets[one] == met]
        if met is None or leader:
            found[name] = live[leader[0] if leader else again[name]]
            continue
        key = (under[met][0],)
        called = ("DELETE", *key) if any(one.name == key for one in live.values()) else key
        found[name] = Told(called, how, None, under[met])
    return found


def _met(under: Relation, newest: dict[int, Done], name: int, how: str) -> int | None:
    """The tuple below that one of ours conflicts with."""
    if name in under and how != "collision":
        return name
    return _rival(under, newest, name, touched=True)


def _spread(under: Relation, newest: dict[int, Done], told: dict[int, str]) -> dict[int, str]:
    """To give a tuple up brings the key of the row below back, which another one of ours may have."""
    ours = {one.row[0]: name for name, one in newest.items() if one.row is not None}
    pending = list(told)
    while pending:
        name = pending.pop()
        row = under[name] if name in under else under.get(_rival(under, newest, name, touched=True) or -1)
        other = None if row is None else ours.get(row[0])
        if row is None or other is None or other == name:
            continue
        if newest[name].row is None and newest[other].row == row:
            del told[name]
        elif other not in told:
            again = newest[name].row is None and not (newest[other].lower and other in under)
            told[other] = told[name] if again else "collision"
            pending.append(other)
    return told


def _rival(under: Relation, newest: dict[int, Done], name: int, *, touched: bool = False) -> int | None:
    """Another tuple below that has the key of one of ours; those that ours touch only if told so."""
    one = newest[name]
    # Where a deleted tuple stood is where it stood when it was deleted.
    key = one.row[0] if one.row is not None else None if name in under else one.stood
    if key is None or (one.row is None and not one.lower):
        return None
    found = [other for other, row in under.items() if row[0] == key and (touched or other not in newest)]
    return found[0] if found else None


def chosen(found: Conflicts, choice: str | list[bool] | None) -> tuple[Any, Stands]:
    """What `resolve` says, and whether ours stands for each conflict."""
    names = sorted({one.name for one in found.values()}, key=str)
    turns = choice if isinstance(choice, list) else [choice == "ours"]
    stands = {name: turns[place % len(turns)] for place, name in enumerate(names)}
    told = {name: "ours" if ours else "theirs" for name, ours in stands.items()}
    return (told if isinstance(choice, list) else choice), stands


def merge(level: Level, base: Relation, time: int, stands: Stands) -> Merge:
    """A merge by the rules of docs/whatif.md."""
    under, newest = contents(level.below, base, time), level.newest(time)
    found = conflicts(level, base, time)
    result = Merge({}, [], False)
    gone: set[int] = set()
    for name, one in newest.items():
        if name in found and not stands[found[name].name]:
            continue
        known, rival = name in under and one.lower, _rival(under, newest, name)
        if one.row is None:
            if known:
                gone.add(name)
            elif rival is not None and name in found:
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


def rebase(level: Level, base: Relation, time: int, stands: Stands) -> None:
    """Conflicts are settled at a time: ours stand on what is below now, or are given up."""
    under, newest = contents(level.below, base, time), level.newest(time - 1)
    done = []
    for name, told in conflicts(level, base, time - 1).items():
        one = newest[name]
        if not stands[told.name]:
            done.append(Done(time, name, None, None, one.lower, released=True))
            continue
        rival = _rival(under, newest, name)
        stood = one.stood if one.row or name not in under else under[name][0]
        done.append(Done(time, name, one.row, under.get(name), one.lower, stood))
        if rival is not None:
            done.append(Done(time, rival, None, under[rival], lower=True, stood=under[rival][0]))
    level.done += done


def _conflict(one: Done, theirs: Row | None, rival: Row | None) -> str:
    """How the relation below is in the way; a row there that is the very row that ours is, is not."""
    signed = one.lower and one.saw is not None
    if one.lower and theirs is not None and theirs not in (one.saw, one.row):
        return "changed"
    if rival is not None and rival == one.row:
        return ""
    if signed and theirs is None and rival is not None:
        return "re-created"
    if signed and theirs is None and one.row is not None:
        return "deleted"
    return "collision" if one.row is not None and rival is not None else ""


def is_busy(levels: Iterable[Level], level: Level, time: int) -> bool:
    """Whether a what-if that stands on this one, directly or not, has tuples of its own."""
    levels = list(levels)
    above = [other for other in levels if other.below is level]
    return any(other.newest(time) or is_busy(levels, other, time) for other in above)
