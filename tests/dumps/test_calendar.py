"""Which level is due, which dumps a rule keeps, how a chain is drawn."""

from __future__ import annotations

import datetime as dt
import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.dumps import prune
from strandline.dumps.catalog import COMPLETE, DumpAttempt, DumpEntry
from strandline.dumps.dumps import draw
from strandline.dumps.manifest import DumpScope
from strandline.dumps.prune import due, kept_by, parse_rule, parse_schedule
from strandline.errors import InputError

SCHEDULE = parse_schedule("weekly=0, daily=1, hourly=2")
MONDAY = dt.datetime(2026, 10, 5, 0, 30, tzinfo=dt.UTC)


def entry(when: dt.datetime, level: int, parent: str | None = None) -> DumpEntry:
    name = f"{when:%m%dT%H%M}-L{level}"
    return DumpEntry(
        name, COMPLETE, "s", level, parent, when.timestamp(), DumpScope(), (DumpAttempt(1, 1),), bytes=10, pages=1
    )


def test_a_week_of_hourly_calls_makes_each_level_once_in_its_period() -> None:
    made: list[DumpEntry] = []
    for hour in range(24 * 8):
        for minute in (0, 20, 40):
            now = MONDAY.replace(minute=0) + dt.timedelta(hours=hour, minutes=minute)
            level = due(made, SCHEDULE, now)
            if level is not None:
                made.append(entry(now, level))
    levels = [one.level for one in made]
    assert len(made) == 24 * 8
    assert (levels.count(0), levels.count(1)) == (2, 6)
    assert levels[:24] == [0, *[2] * 23]
    assert levels[24:48] == [1, *[2] * 23]


def test_after_a_pause_the_lowest_level_comes_first() -> None:
    last_week = [entry(MONDAY - dt.timedelta(days=3), 0)]
    assert due(last_week, SCHEDULE, MONDAY) == 0
    assert due([entry(MONDAY, 1)], SCHEDULE, MONDAY) == 0, "a level 1 does not do for the weekly level 0"
    assert due([entry(MONDAY, 0)], SCHEDULE, MONDAY + dt.timedelta(minutes=5)) is None


def test_a_dump_by_a_clock_that_ran_ahead_is_of_no_present_period() -> None:
    tomorrow = [entry(MONDAY + dt.timedelta(hours=30), 0)]
    assert due(tomorrow, {"daily": 0}, MONDAY) == 0
    assert due(tomorrow, {"weekly": 0}, MONDAY) is None


@pytest.mark.parametrize(
    "bad", ["", "weekly", "weekly=x", "weekly=1", "daily=0, weekly=1", "weekly=0, daily=0", "fortnightly=0"]
)
def test_a_schedule_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises(InputError, match="weekly=0, daily=1, hourly=2"):
        parse_schedule(bad)


@pytest.mark.parametrize("bad", ["", "7", "daily", "0 daily", "7 daily 4 weekly", "7 daily, 3 daily", "-1 daily"])
def test_a_rule_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises(InputError, match="7 daily, 4 weekly, 6 monthly"):
        parse_rule(bad)


def test_a_rule_keeps_the_last_dump_of_each_of_the_last_periods() -> None:
    dumps = [entry(MONDAY + dt.timedelta(hours=hour), 0) for hour in range(0, 24 * 60, 6)]
    kept = kept_by(dumps, parse_rule("7 daily, 4 weekly, 6 monthly"), dt.UTC)
    days = sorted({dt.datetime.fromtimestamp(one.taken, dt.UTC).date() for one in dumps if one.id in kept})
    assert days[-7:] == [dt.date(2026, 11, 27) + dt.timedelta(days=n) for n in range(7)]
    assert days[:-7] == [dt.date(2026, 10, 31), dt.date(2026, 11, 15), dt.date(2026, 11, 22)]
    assert dumps[-1].id in kept


@given(st.lists(st.integers(0, 24 * 400), unique=True, max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_a_rule_keeps_no_more_than_it_says_and_always_the_last(hours: list[int], daily: int, monthly: int) -> None:
    dumps = [entry(MONDAY + dt.timedelta(hours=hour), 0) for hour in sorted(hours)]
    kept = kept_by(dumps, {"daily": daily, "monthly": monthly}, dt.UTC)
    assert len(kept) <= daily + monthly
    assert not dumps or dumps[-1].id in kept
    days = {dt.datetime.fromtimestamp(one.taken, dt.UTC).date() for one in dumps}
    assert len(kept) >= min(daily, len(days))


def test_the_chain_is_drawn_as_a_tree() -> None:
    root = entry(MONDAY, 0)
    one = entry(MONDAY + dt.timedelta(days=1), 1, root.id)
    two = entry(MONDAY + dt.timedelta(days=1, hours=1), 2, one.id)
    three = entry(MONDAY + dt.timedelta(days=2), 1, root.id)
    drawn = list(draw([root, one, two, three], dt.UTC))
    assert drawn == [
        "● 2026-10-05 00:30:00  L0  10 B in 1 page  1005T0030-L0  2 on it",
        "├─● 2026-10-06 00:30:00  L1  10 B in 1 page  1006T0030-L1  1 on it",
        "│ └─● 2026-10-06 01:30:00  L2  10 B in 1 page  1006T0130-L2  nothing on it, could be deleted",
        "└─● 2026-10-07 00:30:00  L1  10 B in 1 page  1007T0030-L1  the last one",
    ]
    assert "its parent is MISSING" in next(draw([one], dt.UTC))


def test_the_examples_hold() -> None:
    assert doctest.testmod(prune).failed == 0
