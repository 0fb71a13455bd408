"""What lost is tried again, a number of times, and nothing else is."""

from __future__ import annotations

import random

import pytest

from strandline.errors import Conflict, Deadlock, NotFound, SnapshotExpired, StrandlineError
from strandline.storage import retried


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bounds of the pauses that would have been made."""
    bounds: list[float] = []

    def no_pause(least: float, most: float) -> float:
        bounds.append(most)
        return least

    monkeypatch.setattr(random, "uniform", no_pause)
    return bounds


class Work:
    """Fails with these errors, one after the other, and then gives its number of calls."""

    def __init__(self, *errors: type[StrandlineError]) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)("lost")
        return self.calls


def test_what_does_not_fail_is_done_once(pauses: list[float]) -> None:
    assert retried(Work(), 5) == 1
    assert pauses == []


def test_a_conflict_is_tried_again_after_a_pause_that_grows(pauses: list[float]) -> None:
    assert retried(Work(Conflict, Deadlock, Conflict), 5) == 4
    assert pauses == [0.002, 0.004, 0.008]


def test_the_last_try_tells_why_it_failed(pauses: list[float]) -> None:
    work = Work(*[Conflict] * 9)
    with pytest.raises(Conflict):
        retried(work, 9)
    assert work.calls == 9
    assert max(pauses) == 0.1


def test_other_errors_are_not_tried_again() -> None:
    work = Work(NotFound)
    with pytest.raises(NotFound):
        retried(work, 5)
    assert work.calls == 1
    assert retried(Work(SnapshotExpired), 2, (SnapshotExpired,)) == 2
