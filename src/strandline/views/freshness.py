"""How far a copy is behind what it is a copy of: in commits, and in seconds.

A copy is behind since the first commit after the state that it shows which edited a table that its view reads: the
log says which commits did, and when. Where the log does not reach back so far, since the copy was last seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.pages import LogEntry, TableEntry
from strandline.views.catalog import ViewCopyRecord
from strandline.views.known_views import KnownViews


@dataclass(frozen=True)
class Lag:
    """How far a copy is behind. `commits` counts up to the last that touched what it reads; None: it has no position,
    and nobody knows since when.
    """

    commits: int | None
    seconds: float | None

    def exceeds(self, target: float | None, ahead: float = 0.0) -> bool:
        """Whether a target is missed, or will be in so many seconds; without one, never."""
        if target is None or self.commits == 0:
            return False
        return self.seconds is None or self.seconds + ahead > target


def touched(known: KnownViews, view: str) -> int:
    """The last commit that changed what a view reads."""
    return max((int(one.changed) for one in _tables(known, view)), default=0)


def lag(known: KnownViews, record: ViewCopyRecord, log: Sequence[LogEntry], now: float) -> Lag:
    """How far a copy is behind a state, at a time."""
    if record.taken is None:
        return Lag(None, None)
    current = max(record.taken.commit, record.current)
    missed = max(touched(known, record.view) - current, 0)
    if not missed:
        return Lag(0, 0.0)
    read = {one.domain for one in _tables(known, record.view)}
    later = [one for one in log if one.kind == "commit" and one.commit > current]
    reaches = any(one.commit <= current for one in log)
    first = next((one.when for one in later if not one.tables or not read.isdisjoint(one.tables)), None)
    return Lag(missed, max(now - (record.seen if first is None or not reaches else first), 0.0))


def _tables(known: KnownViews, view: str) -> list[TableEntry]:
    relations = known.definition(view).relations
    return [one for relation in relations for one in known.state.domains_below(relation)]
