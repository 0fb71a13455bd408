"""Whether a view's difference is kept at every commit or computed at a refresh, by what both were seen to cost here;
and what a difference table costs by the paper's equations (1), (1a) and (2).

In the equations a base table has N rows, of which the fraction q is in the view. Between two refreshes λ/Λ updates
arrive, spread evenly. *Communication* is counted in messages, *delay* in the unit of the costs: checking a row's
relevance (Cr), entering a row in the difference table (Cm), reading a row when the view is computed from the base (Cs).
The paper prints λ/Λ where λ/(ΛN) is meant, the number of updates per row and refresh. It weighs a difference table
against regeneration, and has the parameters given by an administrator. Here both ways of keeping a view send the same
net difference and neither reads the base, so its two conditions don't choose between them.

Every refresh notes how many rows of the base changed (λ/Λ), how long reading a row (Cs), testing and joining a changed
row (Cr), entering a row in the difference table (Cm), and sending a message took; each is an average in which the
latest refresh counts for a third. A refresh of a view that is not kept eagerly enters its rows on trial, without a page
to write. What was never seen yet has a value that was chosen, not measured: see `USUAL`.

`auto` begins deferred. Both ways send the same, so what counts are seconds from one refresh to the next: deferred,
those that computing the difference took; eager, those that maintaining it took at commits and reading it at the
refresh. What eager would take is expected before it was tried: its entries, and one more small write for each commit
and for the refresh, where a small write takes as long as the commit in which the last refresh was noted.

A view that becomes deferred again leaves its difference table copy by copy (`Segments.leaving`): no copy loses its
place.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from strandline.errors import InputError, SqlError
from strandline.tables import PageCache, TableTransaction
from strandline.views.catalog import AUTO, DEFERRED, EAGER, STRICT, ViewCopyRecord
from strandline.views.definition import ViewDefinition, computed_whole
from strandline.views.difference_table import Segments, begin, end, write
from strandline.views.known_views import KnownViews, ViewHost, read_views


@dataclass(frozen=True)
class Load:
    """The view and its traffic: N, λ and Λ (both per the same time), q; `keyed` if X holds a key of the result."""

    rows: float
    updates: float
    refreshes: float
    qualified: float
    keyed: bool

    @property
    def per_refresh(self) -> float:
        """λ/Λ: updates between two refreshes. A view that is not refreshed gathers them without end."""
        if self.refreshes > 0:
            return self.updates / self.refreshes
        return math.inf if self.updates > 0 else 0.0

    @property
    def per_row(self) -> float:
        """λ/(ΛN): updates of one row between two refreshes."""
        if self.rows > 0:
            return self.per_refresh / self.rows
        return math.inf if self.updates > 0 else 0.0


@dataclass(frozen=True)
class Prices:
    """Seconds for one row or message: Cr, Cm, Cs, and sending a message and storing it at the replica."""

    relevance: float
    maintain: float
    scan: float
    message: float


def updated_rows(load: Load) -> float:
    """N(1 − e^(−λ/(ΛN))): how many rows receive at least one update between two refreshes."""
    return load.rows * -math.expm1(-load.per_row)


def messages_counted(load: Load) -> float:
    """Equation (1): a deletion and an insertion for each updated row, each sent if it qualifies."""
    return 2 * load.qualified * updated_rows(load)


def messages_keyed(load: Load) -> float:
    """Equation (1a): a deletion and an insertion of one key are sent as one replacement."""
    return (2 * load.qualified - load.qualified**2) * updated_rows(load)


def messages(load: Load) -> float:
    """What a refresh from a difference table sends."""
    return messages_keyed(load) if load.keyed else messages_counted(load)


@dataclass(frozen=True)
class Choice:
    """How a view is maintained, and why, in sentences."""

    maintain: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.maintain}: {'; '.join(self.reasons)}"


CHANGED, SCAN, RELEVANCE, MAINTAIN, MESSAGE, ROW_BYTES = "changed", "scan", "relevance", "maintain", "message", "bytes"
COMMITS, COMMIT_SECONDS = "commits", "commit"
"""Commits between two refreshes, and the seconds of a small one."""
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
    deferred: float | None = None
    """Seconds that computing the difference took, where it was computed at the refresh."""
    eager: float | None = None
    """Seconds that maintaining the difference took since the last refresh, reading it included."""
    commits: int | None = None
    commit_seconds: float | None = None


@dataclass(frozen=True)
class MaintenanceCost:
    """What maintaining a view's difference took: rows entered, commits that changed the view, and seconds."""

    rows: int = 0
    commits: int = 0
    seconds: float = 0.0

    @property
    def of_row(self) -> float | None:
        """Seconds for one entry; None if there was none."""
        return self.seconds / self.rows if self.rows else None


class MaintenanceCosts:
    """What views have cost this process since it was last asked; a store is known by its cache of pages."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._noted: WeakKeyDictionary[PageCache, dict[str, MaintenanceCost]] = WeakKeyDictionary()
        self._commit: WeakKeyDictionary[PageCache, float] = WeakKeyDictionary()

    def note(self, store: PageCache, view: str, rows: int, seconds: float) -> None:
        """A commit changed so many rows of a view."""
        with self._mutex:
            noted = self._noted.setdefault(store, {})
            one = noted.get(view, MaintenanceCost())
            noted[view] = MaintenanceCost(one.rows + rows, one.commits + 1, one.seconds + seconds)

    def take(self, store: PageCache, view: str) -> MaintenanceCost:
        """What was noted of a view, which is forgotten."""
        with self._mutex:
            return self._noted.get(store, {}).pop(view, MaintenanceCost())

    def note_commit(self, store: PageCache, seconds: float) -> None:
        """A small commit took so long."""
        with self._mutex:
            self._commit[store] = seconds

    def commit_seconds(self, store: PageCache) -> float | None:
        with self._mutex:
            return self._commit.get(store)


MAINTENANCE_COSTS = MaintenanceCosts()


def with_seen(measured: Mapping[str, float], seen: Seen) -> dict[str, float]:
    """The averages after one more refresh."""
    averages = dict(measured)
    averages["refreshes"] = averages.get("refreshes", 0) + 1
    if seen.changed is not None:
        _average(averages, CHANGED, float(seen.changed))
    if seen.scanning is not None and seen.rows:
        _average(averages, SCAN, seen.scanning / seen.rows)
    if seen.comparing is not None and seen.changed:
        _average(averages, RELEVANCE, seen.comparing / seen.changed / 2)
    for name, value in (
        (MAINTAIN, seen.entering),
        (DEFERRED, seen.deferred),
        (EAGER, seen.eager),
        (COMMITS, seen.commits),
        (COMMIT_SECONDS, seen.commit_seconds),
    ):
        if value is not None:
            _average(averages, name, float(value))
    if seen.messages:
        _average(averages, MESSAGE, seen.sending / seen.messages)
        _average(averages, ROW_BYTES, seen.bytes / seen.messages)
    return averages


def prices(measured: Mapping[str, float]) -> Prices:
    """Seconds for one row or message, as far as they were seen."""
    seconds = {**USUAL, **measured}
    return Prices(seconds[RELEVANCE], seconds[MAINTAIN], seconds[SCAN], seconds[MESSAGE])


def load(rows: int, held: int, changed: float, *, keyed: bool) -> Load:
    """A view's traffic between two refreshes; q is what the copy holds of the base."""
    return Load(rows, changed, 1, min(held / rows, 1.0) if rows else 0.0, keyed)


def _average(averages: dict[str, float], name: str, value: float) -> None:
    before = averages.get(name)
    averages[name] = value if before is None else before + (value - before) * LATEST


SEEN = 3
"""So many refreshes are looked at before `auto` chooses."""
MARGIN = 0.8
"""Eager maintenance must be expected to take less than this part of what computing the difference takes."""


def check_eager(definition: ViewDefinition, maintain: str) -> None:
    """Refuses to keep at commits what differences can't follow."""
    if maintain == EAGER and why_not_eager(definition):
        raise InputError(
            f"it can't be kept eagerly: {why_not_eager(definition)}",
            doing=f"defining view {definition.name!r}",
            hint="Say maintain='deferred' (--maintain deferred): its difference is then computed at each refresh",
        )


def check_policy(definition: ViewDefinition, policy: str) -> None:
    """Refuses a view for which there is more than differences to compute, where nothing else is wanted."""
    wholly = computed_whole(definition)
    why = definition.regenerated or (f"a change computes {wholly[0]} again over all rows" if wholly else "")
    if policy == STRICT and why:
        hint = "PARTITION BY, GROUP BY or an equality makes parts of it" if wholly else "Choose another refresh policy"
        raise SqlError(f"its policy is {STRICT}, but {why}", doing=f"defining view {definition.name!r}", hint=hint)


def keep(transaction: TableTransaction, known: KnownViews, definition: ViewDefinition, maintain: str) -> None:
    """Begin, go on with or end a view's difference table, as it is to be maintained now."""
    segments = known.segments.get(definition.name)
    if maintain == AUTO:
        if segments is not None and segments.fingerprint != definition.fingerprint:
            end(transaction, known.state.view, definition.name)
        return
    _maintained(transaction, known, definition, maintain)


def why_not_eager(definition: ViewDefinition) -> str:
    """Why a view can't be kept at commits; empty if it can."""
    if definition.reads_clock:
        return "it reads the clock, which moves between commits"
    return definition.regenerated


def choose(measured: Mapping[str, float], *, eager: bool) -> Choice:
    """How a view should be maintained by what its refreshes have cost; `eager` says whether it is so now."""
    if DEFERRED not in measured or COMMIT_SECONDS not in measured:
        return Choice(EAGER if eager else DEFERRED, ("too little was measured here to choose",))
    commits = measured.get(COMMITS, 1.0)
    expected = measured.get(CHANGED, 0.0) * measured.get(MAINTAIN, USUAL[MAINTAIN])
    expected += (commits + 1) * measured[COMMIT_SECONDS]
    seconds = measured.get(EAGER, expected)
    known = "took" if EAGER in measured else "would take about"
    reason = (
        f"computing the difference took {measured[DEFERRED]:.3g} s a refresh, "
        f"and maintaining it at {commits:.0f} commits {known} {seconds:.3g} s"
    )
    better = seconds < measured[DEFERRED] * (1.0 if eager else MARGIN)
    return Choice(EAGER if better else DEFERRED, (reason,))


def chosen(known: KnownViews, definition: ViewDefinition, newest: ViewCopyRecord) -> Choice | None:
    """How the traffic of a view's copies says that it should be maintained; None while too little was seen.

    The copy that is refreshed most often, with the fewest changes to wait for, says so. `newest` is a copy's record
    that was written since the state was read.
    """
    records = {**known.copies, newest.name: newest}
    copies = [one for one in records.values() if one.view == definition.name]
    seen = [one for one in copies if one.measured.get("refreshes", 0) > SEEN and CHANGED in one.measured]
    if not seen:
        return None
    often = min(seen, key=lambda one: one.measured[CHANGED])
    return choose(often.measured, eager=_is_kept(known.segments.get(definition.name)))


def retune(host: ViewHost, known: KnownViews, newest: ViewCopyRecord) -> None:
    """Let `auto` follow what was measured, once a copy of the view was refreshed; every copy goes on from its place."""
    name = newest.view
    record = known.records.get(name)
    if record is None or record.maintain != AUTO:
        return
    definition = known.definition(name)
    choice = None if why_not_eager(definition) else chosen(known, definition, newest)
    if choice is None or (choice.maintain == EAGER) == _is_kept(known.segments.get(name)):
        return
    maintain = choice.maintain

    def work(transaction: TableTransaction) -> None:
        with read_views(host) as now:
            if now.records.get(name) == record:
                _maintained(transaction, now, now.definition(name), maintain)

    host.autocommit(work)


def _maintained(transaction: TableTransaction, known: KnownViews, definition: ViewDefinition, maintain: str) -> None:
    """Begin a difference table, go on with it, or let copies leave it."""
    state, segments = known.state, known.segments.get(definition.name)
    if segments is not None and segments.is_sound(definition):
        if bool(segments.leaving) != (maintain == DEFERRED):
            write(transaction, segments.left(leaving=maintain == DEFERRED))
    elif maintain == EAGER:
        begin(transaction, state.view, state.cache, definition)
    elif segments is not None:
        end(transaction, state.view, definition.name)


def _is_kept(segments: Segments | None) -> bool:
    return segments is not None and not segments.leaving
