"""What a store says of its views at one state: their texts and what those mean, their copies, their difference tables.

`KnownViews` reads each of these once, when it is first asked for; code that works on one state passes one of them down.
Texts are read against the relations of that state. `ViewHost` is what views need of the store that they are in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from strandline.errors import NotFound, SqlError
from strandline.pages import MAIN, PARTIAL, LogEntry, ReadView
from strandline.storage import cached_property
from strandline.tables import TableTransaction
from strandline.values import quoted
from strandline.views.catalog import (
    StoredRecord,
    ViewCopyRecord,
    ViewRecord,
    records_of,
)
from strandline.views.definition import Shape, ViewDefinition, define, flattened, instant_at
from strandline.views.difference_table import Segments, all_segments
from strandline.views.join import JoinRunner
from strandline.views.store_state import StoreState
from strandline.whatif import WhatIfHost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R")

SKEW = 60.0
"""So many seconds the clock of another machine may be ahead: what it wrote down is taken to have happened now."""


class ViewHost(WhatIfHost, Protocol):
    """One version of a store: what what-ifs need of it, and more."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """The store's own id, which no restored store shares."""
        ...

    def autocommit(self, work: Callable[[TableTransaction], R]) -> R: ...

    def frame(self, table: str, at: Any = None) -> DataFrame: ...

    def running(self, runner: str = "auto") -> JoinRunner: ...


@dataclass(frozen=True)
class Lag:
    """How far a copy is behind what it is a copy of. `commits` counts up to the last that touched what it reads; None:
    it has no position, and since when is not known. By the clock it may be behind without any.
    """

    commits: int | None
    seconds: float | None

    def exceeds(self, target: float | None, ahead: float = 0.0) -> bool:
        """Whether a target is missed, or will be in so many seconds; without one, never."""
        if target is None or (self.commits == 0 and not self.seconds):
            return False
        return self.seconds is None or self.seconds + ahead > target


class KnownViews:
    """The views of one state; `host` says of which version of a store, where copies are asked for."""

    def __init__(self, state: StoreState, host: ViewHost | None = None) -> None:
        self.state = state
        self._host = host
        self._definitions: dict[str, ViewDefinition] = {}
        self._sources: dict[str, ViewDefinition] = {}

    @cached_property
    def records(self) -> dict[str, ViewRecord]:
        """The views by name, the oldest first."""
        records = records_of(ViewRecord, self.state.view, self.state.cache)
        return dict(sorted(records.items(), key=lambda named: named[1].number))

    @cached_property
    def all_copies(self) -> dict[str, ViewCopyRecord]:
        """The copies that the state knows, of whichever version they are."""
        return records_of(ViewCopyRecord, self.state.view, self.state.cache)

    @cached_property
    def copies(self) -> dict[str, ViewCopyRecord]:
        """The copies of views, tables and what-ifs of this version, by name."""
        records, host = self.all_copies, self._host
        if host is None or all(record.version == host.name for record in records.values()):
            return records
        # A store that was restored from a branch has its copies as `main`, and no such branch.
        gone = (
            () if host.name != MAIN else {one.version for one in records.values()} - host.pages.store.versions().keys()
        )
        return {name: one for name, one in records.items() if one.version == host.name or one.version in gone}

    @cached_property
    def stored(self) -> dict[str, StoredRecord]:
        """What is known of the rows of stored views."""
        return records_of(StoredRecord, self.state.view, self.state.cache)

    def has_rows(self, name: str) -> bool:
        """Whether a view's rows stand in a table of its name: it is read like a table then."""
        record = self.records.get(name)
        return record is not None and record.stored and self.state.is_table(name)

    @cached_property
    def segments(self) -> dict[str, Segments]:
        """The segments of each view whose difference is kept at commits."""
        return all_segments(self.state.view, self.state.cache)

    def copy(self, name: str) -> ViewCopyRecord:
        """A copy's record, or an error that says that there is none."""
        record = self.copies.get(name)
        if record is None:
            inherited, known = self.all_copies.get(name), ", ".join([*self.copies][:20])
            hint = f"The copies are {known}" if known else "Replicate a view first"
            hint = hint if inherited is None else f"There is one of version {inherited.version!r}"
            raise NotFound(f"there is no copy {name!r}", doing="opening a copy", hint=hint)
        return record

    def count(self, name: str) -> int:
        """N: the rows of the relations that a view reads."""
        return sum(self.state.count(relation) for relation in self.definition(name).relations)

    def lag(self, record: ViewCopyRecord, log: Sequence[LogEntry], now: float) -> Lag:
        """How far a copy is behind this state, at a time.

        It is since the first commit after what it shows that edited a table which its view reads: the log says which
        did, and when. Where the log does not reach back so far, or the view reads the clock, since the copy was last
        seen. If that is yet to come by the clock, it was set back, and nobody knows since when.
        """
        if record.taken is None:
            return Lag(None, None)
        current = max(record.taken.commit, record.current)
        relations = self.followed(record).relations
        missed = max(self.state.last_change(relations) - current, 0)
        if self.followed(record).reads_clock:
            return Lag(missed, _passed(record.seen, now))
        if not missed:
            return Lag(0, 0.0)
        read = {one.domain for relation in relations for one in self.state.domains_below(relation)}
        later = [one for one in log if one.kind == "commit" and one.commit > current]
        reaches = any(one.commit <= current for one in log)
        first = next((one.when for one in later if not one.tables or not read.isdisjoint(one.tables)), None)
        return Lag(missed, _passed(record.seen if first is None or not reaches else first, now))

    def definition(self, name: str) -> ViewDefinition:
        """What is read under that name, over tables and what-ifs. A table, a what-if or a view whose rows
        are stored is the view that shows all of it.
        """
        if name not in self._definitions:
            known = self.records.get(name)
            if known is None or self.has_rows(name):
                self._refuse_unknown(name)
                record = ViewRecord(name, f"SELECT * FROM {quoted(name)}", 0)
                self._definitions[name] = _defined(record, _Relations(self, known.number + 1 if known else 0))
            else:
                self._definitions[name] = self.source(name)
        return self._definitions[name]

    def source(self, name: str) -> ViewDefinition:
        """What a view's text means, whether or not its rows are stored."""
        if name not in self._sources:
            record = self.records.get(name)
            self._sources[name] = self.definition(name) if record is None else self.meaning(record)
        return self._sources[name]

    def followed(self, record: ViewCopyRecord) -> ViewDefinition:
        """What a copy follows: what a read of its view gives. The rows of a stored view follow its text."""
        return self.source(record.view) if isinstance(record, StoredRecord) else self.definition(record.view)

    def meaning(self, record: ViewRecord) -> ViewDefinition:
        """What a text means here as a view over the relations that are older than it."""
        relations = _Relations(self, record.number)
        made = _defined(record, relations)
        inner = {one: self.definition(one) for one in made.relations if one in relations.views}
        unfollowed = [one.name for one in inner.values() if one.regenerated]
        if made.regenerated or unfollowed:
            why = made.regenerated or f"it stands on {unfollowed[0]}, which is computed anew each time"
            if record.strict:
                raise SqlError(why, doing=f"defining view {record.name!r}", hint="Say strict=False (--no-strict)")
            return _regenerated(made, inner, why)
        return flattened(made, inner)

    def named_by(self, name: str) -> tuple[str, ...]:
        """The relations that a view's own text names, views among them."""
        record = self.records[name]
        return _defined(record, _Relations(self, record.number)).relations

    def _refuse_unknown(self, name: str) -> None:
        if name not in self.state.names():
            listed = ", ".join([*self.records, *self.state.names()][:20])
            hint = f"There are {listed}" + (f". {PARTIAL}" if self.state.view.is_partial else "")
            raise NotFound(f"there is no view, table or what-if {name!r}", doing="opening a view", hint=hint)


def _passed(then: float, now: float) -> float | None:
    """How many seconds have passed since a time of the store's; None where the clock was set back behind it."""
    return None if then - now > SKEW else max(now - then, 0.0)


@contextmanager
def read_views(host: ViewHost, at: Any = None) -> Iterator[KnownViews]:
    """What a store says of views, now or at a state, readable inside."""
    with host.state(at) as view:
        yield KnownViews(state_now(host, view), host)


def state_now(host: ViewHost, view: ReadView) -> StoreState:
    """A state as it is read now: the clock is that of the store."""
    return StoreState(view, host.cache, instant=instant_at(host.pages.now()))


_Reading = tuple[dict[str, tuple[Shape | None, tuple[str, ...]]], ViewDefinition]
_readings: OrderedDict[tuple[str, str, bool], _Reading] = OrderedDict()
READINGS = 256
"""How many texts are remembered with what they meant; reading one anew takes some ten milliseconds."""


def _defined(record: ViewRecord, relations: _Relations) -> ViewDefinition:
    """What a text means over these relations; as it did last time, if what its names can mean is as it was."""
    text = (record.name, record.sql, record.strict)
    known = _readings.get(text)
    if known is not None and all(relations.meaning(name) == meant for name, meant in known[0].items()):
        return known[1]
    made = define(record.name, record.sql, relations, strict=record.strict)
    _readings[text] = ({name: relations.meaning(name) for name in made.relations}, made)
    while len(_readings) > READINGS:
        _readings.popitem(last=False)
    return made


class _Relations(Mapping[str, Shape]):
    """The relations that a view may name: tables, what-ifs, and views that are older."""

    def __init__(self, known: KnownViews, number: int) -> None:
        self._known = known
        older = {name for name, record in known.records.items() if record.number < number}
        self.views = {name for name in older if not known.has_rows(name)}
        younger = known.records.keys() - older
        self._names = [*(name for name in known.state.names() if name not in younger), *sorted(self.views)]

    def __getitem__(self, name: str) -> Shape:
        if name in self.views:
            inner = self._known.definition(name)
            return Shape(inner.schema, inner.key)
        if name not in self._names:
            raise KeyError(name)
        return self._known.state.shape(name)

    def meaning(self, name: str) -> tuple[Shape | None, tuple[str, ...]]:
        """A relation, and all whose names are like its name but for the case."""
        return self.get(name), tuple(one for one in self._names if one.lower() == name.lower())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _regenerated(made: ViewDefinition, inner: Mapping[str, ViewDefinition], why: str) -> ViewDefinition:
    """A view computed anew over views: those become parts of its query."""
    from strandline.views.definition import with_views

    sql, occurrences = with_views(made, inner)
    return replace(made, sql=sql, occurrences=occurrences, condition=None, key=(), regenerated=why)
