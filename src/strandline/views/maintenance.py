"""Whether a view's difference is kept at every commit or computed at a refresh, by what refreshes were seen to cost.

The paper has the parameters of its cost equations given by an administrator. Here every refresh notes how many rows of
the base changed (λ/Λ), how long reading a row (Cs), testing and joining a changed row (Cr), entering a row in the
difference table (Cm), and sending a message took; each is an average in which the latest refresh counts for a third.
Commits say what entering took (`Entering`); a refresh of a view that is not kept eagerly enters its rows on trial,
without a page to write. What was never seen yet has a value that was chosen, not measured: see `USUAL`.

`auto` begins deferred, when nothing is known of the traffic, and after some refreshes follows the paper's two
conditions (see `cost`) with these parameters.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from strandline.errors import InputError
from strandline.tables import PageCache, TableTransaction
from strandline.views.catalog import AUTO, DEFERRED, EAGER, ViewCopyRecord
from strandline.views.cost import Choice, Load, Prices, choose
from strandline.views.definition import ViewDefinition
from strandline.views.difference_table import begin, end
from strandline.views.known_views import KnownViews, ViewHost, read_views
from strandline.views.store_state import StoreState

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
    averages = dict(measured)
    averages["refreshes"] = averages.get("refreshes", 0) + 1
    if seen.changed is not None:
        _average(averages, CHANGED, float(seen.changed))
    if seen.scanning is not None and seen.rows:
        _average(averages, SCAN, seen.scanning / seen.rows)
    if seen.comparing is not None and seen.changed:
        _average(averages, RELEVANCE, seen.comparing / seen.changed / 2)
    if seen.entering is not None:
        _average(averages, MAINTAIN, seen.entering)
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


def keep(transaction: TableTransaction, known: KnownViews, definition: ViewDefinition, maintain: str) -> None:
    """Begin, go on with or end a view's difference table, as it is to be maintained now."""
    state, segments = known.state, known.segments.get(definition.name)
    if maintain == AUTO:
        if segments is not None and segments.fingerprint != definition.fingerprint:
            end(transaction, state.view, definition.name)
        return
    if maintain != EAGER:
        if segments is not None:
            end(transaction, state.view, definition.name)
        return
    obstacle = why_not_eager(definition, state)
    if obstacle:
        raise InputError(
            f"it can't be kept eagerly: {obstacle}",
            doing=f"defining view {definition.name!r}",
            hint="Say maintain='deferred' (--maintain deferred): its difference is then computed at each refresh",
        )
    if segments is None or segments.broken or segments.fingerprint != definition.fingerprint:
        begin(transaction, state.view, state.cache, definition)


def why_not_eager(definition: ViewDefinition, state: StoreState) -> str:
    """Why a view can't have a difference table; empty if it can."""
    if definition.regenerated:
        return definition.regenerated
    above = [relation for relation in definition.relations if not state.is_table(relation)]
    return f"{above[0]} is a what-if" if above else ""


def chosen(known: KnownViews, definition: ViewDefinition, newest: ViewCopyRecord) -> Choice | None:
    """How the traffic of a view's copies says that it should be maintained; None while too little was seen.

    Every refresh of every copy counts: the copy that is refreshed most often has the fewest changes to wait for.
    `newest` is a copy's record that was written since the state was read.
    """
    records = {**known.copies, newest.name: newest}
    copies = [one for one in records.values() if one.view == definition.name]
    seen = [one for one in copies if one.measured.get("refreshes", 0) > SEEN and CHANGED in one.measured]
    if not seen:
        return None
    often = min(seen, key=lambda one: one.measured[CHANGED])
    traffic = load(known.count(definition.name), often.held, often.measured[CHANGED], keyed=bool(definition.key))
    return choose(traffic, prices(often.measured))


def retune(host: ViewHost, known: KnownViews, newest: ViewCopyRecord) -> None:
    """Let `auto` follow what was measured, once a copy of the view was refreshed.

    A copy that stands at an old state goes on from it when the view becomes eager; the other way round, its next
    refresh is a repair.
    """
    name = newest.view
    record = known.records.get(name)
    if record is None or record.maintain != AUTO:
        return
    definition = known.definition(name)
    choice = None if why_not_eager(definition, known.state) else chosen(known, definition, newest)
    if choice is None or (choice.maintain == EAGER) == (name in known.segments):
        return
    maintain = choice.maintain

    def work(transaction: TableTransaction) -> None:
        with read_views(host) as now:
            if now.records.get(name) != record:
                return
            if maintain == DEFERRED:
                end(transaction, now.state.view, name)
            elif name not in now.segments:
                begin(transaction, now.state.view, now.state.cache, now.definition(name))

    host.autocommit(work)
