"""What a datetime without a zone means: local time, wherever one is given.

Near the years 1 and 9999, which people write for "the first" and "now", local time can't be computed: there it is UTC.
"""

from __future__ import annotations

import datetime as dt


def with_zone(when: dt.datetime) -> dt.datetime:
    """The same moment with a zone."""
    if when.tzinfo is not None:
        return when
    try:
        return when.astimezone()
    except (OverflowError, ValueError, OSError):
        return when.replace(tzinfo=dt.UTC)


def unix_time(when: dt.datetime) -> float:
    """A moment in seconds since 1970."""
    return with_zone(when).timestamp()
