"""Dates: commit numbers, and what means one (section 4.5)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from strandline.errors import InputError
from strandline.whatif.transaction import Home


def commit_of(home: Home, when: Any, doing: str) -> int:
    """The commit that a date means: a number, a snapshot or its name, or a datetime: the last commit before it."""
    now = int(home.pages.look().commit)
    if isinstance(when, dt.datetime):
        earlier = [entry.commit for entry in home.pages.log() if entry.when <= when.timestamp()]
        return int(earlier[-1]) if earlier else 0
    if isinstance(when, str):
        named = [record.commit for record in home.pages.snapshots() if record.name == when]
        if not named:
            raise InputError(f"there is no snapshot {when}", doing=doing, hint="Give a commit number or a datetime")
        return int(named[0])
    number = getattr(when, "commit", when)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InputError(f"{when!r} is no date", doing=doing, hint="Give a commit number, a snapshot or a datetime")
    if number > now:
        raise InputError(f"commit {number} is in the future", doing=doing, hint=f"The last commit is {now}")
    return int(number)
