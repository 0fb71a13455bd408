"""What was seen of a copy's refreshes: the parameters of the paper's cost equations, measured here.

The paper has them given by an administrator. Here every refresh notes how many rows of the base changed (λ/Λ), how long
reading a row (Cs), testing and joining a changed row (Cr), entering a row in the difference table (Cm), and sending a
message took; each is an average in which the latest refresh counts for a third. Commits say what entering took
(`Entering`); a refresh of a view that is not kept eagerly enters its rows on trial, without a page to write. What was
never seen yet has a value that was chosen, not measured: see `USUAL`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from strandline.tables import PageCache
from strandline.views.cost import Load, Prices

CHANGED, SCAN, RELEVANCE, MAINTAIN, MESSAGE, ROW_BYTES = "changed", "scan", "relevance", "maintain", "message", "bytes"
USUAL = {SCAN: 2e-7, RELEVANCE: 2e-6, MAINTAIN: 2e-5, MESSAGE: 5e-6, ROW_BYTES: 40.0}
"""Seconds for one row or message; bytes of a message. Chosen for their order of magnitude, and measured nowhere: they
only decide until refreshes have been seen."""
LATEST = 1 / 3


@dataclass(frozen=True)
class Seen:
    """One refresh: rows of the base, those that changed, messages and their bytes, and the seconds of each part."""

    rows: int = 0
    changed: int | None = None
    messages: int = 0
    bytes: int = 0
    scanning: float | None = None
    comparing: float | None = None
    sending: float = 0.0
    entering: float | None = None
    """Seconds for one entry in the difference table."""


class Entering:
    """What entering rows in difference tables took this process since it was last asked, by store and view."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._noted: WeakKeyDictionary[PageCache, dict[str, tuple[int, float]]] = WeakKeyDictionary()

    def note(self, store: PageCache, view: str, rows: int, seconds: float) -> None:
        """So many rows were entered; a store is known by its cache of pages."""
        with self._mutex:
            noted = self._noted.setdefault(store, {})
            before = noted.get(view, (0, 0.0))
            noted[view] = (before[0] + rows, before[1] + seconds)

    def take(self, store: PageCache, view: str) -> float | None:
        """Seconds for one entry; None if there was none."""
        with self._mutex:
            rows, seconds = self._noted.get(store, {}).pop(view, (0, 0.0))
        return seconds / rows if rows else None


ENTERING = Entering()


def with_seen(measured: Mapping[str, float], seen: Seen) -> dict[str, float]:
    """The averages after one more refresh."""
    found = dict(measured)
    found["refreshes"] = found.get("refreshes", 0) + 1
    if seen.changed is not None:
        _average(found, CHANGED, float(seen.changed))
    if seen.scanning is not None and seen.rows:
        _average(found, SCAN, seen.scanning / seen.rows)
    if seen.comparing is not None and seen.changed:
        _average(found, RELEVANCE, seen.comparing / seen.changed / 2)
    if seen.entering is not None:
        _average(found, MAINTAIN, seen.entering)
    if seen.messages:
        _average(found, MESSAGE, seen.sending / seen.messages)
        _average(found, ROW_BYTES, seen.bytes / seen.messages)
    return found


def prices(measured: Mapping[str, float]) -> Prices:
    """Seconds for one row or message, as far as they were seen."""
    found = {**USUAL, **measured}
    return Prices(found[RELEVANCE], found[MAINTAIN], found[SCAN], found[MESSAGE])


def load(rows: int, held: int, changed: float, *, keyed: bool) -> Load:
    """A view's traffic between two refreshes; q is what the copy holds of the base."""
    return Load(rows, changed, 1, min(held / rows, 1.0) if rows else 0.0, keyed)


def _average(found: dict[str, float], name: str, value: float) -> None:
    before = found.get(name)
    found[name] = value if before is None else before + (value - before) * LATEST
