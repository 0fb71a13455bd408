"""What a dump shall hold: the states that its parent does not know, and the pages that they add (section 4.2).

The page table is walked from each new state, pruned by commit numbers: only nodes younger than the state that it
stands on are entered, only entries changed since are recorded, and only pages born since are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.dumps.chain import DumpChain
from strandline.dumps.manifest import RecordedState, StateChanges, StateKey, TableSet, VersionFacts, covers
from strandline.dumps.store_snapshot import DumpSource
from strandline.pages import CATALOG, NEVER, CommitNumber, Entry, PageRef, TableEntry, TableId


@dataclass(slots=True)
class DumpPlan:
    """The recorded states with their changes, in an order in which each stands on earlier ones; the pages to copy."""

    recorded: list[RecordedState] = field(default_factory=list)
    changes: list[StateChanges] = field(default_factory=list)
    pages: dict[str, PageRef] = field(default_factory=dict)
    freed: int = 0


class Lineage:
    """The versions of a dump, and which state comes before which. Commit numbers grow along a line of descent."""

    def __init__(self, versions: Sequence[VersionFacts]) -> None:
        self.versions = {one.object: one for one in versions}

    def before(self, key: StateKey, among: Iterable[StateKey]) -> Iterator[StateKey]:
        """The states among these that `key` descends from, nearest first."""
        among = list(among)
        version, limit, own = key.version, key.commit, True
        while True:
            older = [k for k in among if k.version == version and (k.commit < limit or (k.commit == limit and not own))]
            yield from sorted(older, key=lambda k: -k.commit)
            base = self.versions[version].base if version in self.versions else None
            if base is None:
                return
            version, limit, own = base.version, base.commit, False

    def in_order(self, states: Mapping[StateKey, TableSet]) -> list[StateKey]:
        """Ancestors first."""
        rank = {name: number for number, name in enumerate(self.versions)}
        return sorted(states, key=lambda key: (rank[key.version], key.commit))


def plan_dump(
    source: DumpSource, versions: Sequence[VersionFacts], states: Mapping[StateKey, TableSet], parent: DumpChain | None
) -> DumpPlan:
    """`versions` are in an order in which each comes after the one that it stands on."""
    work = _Planning(source, Lineage(versions), parent)
    for key in work.family.in_order(states):
        if parent is None or not parent.knows(key, states[key]):
            work.record(key, states[key])
    return work.plan


class _Planning:
    def __init__(self, source: DumpSource, family: Lineage, parent: DumpChain | None) -> None:
        self._source = source
        self.family = family
        self._parent = parent
        self.plan = DumpPlan()
        # States that may be stood on: those of the parent, and those recorded so far.
        self._known: dict[StateKey, TableSet] = dict(parent.last.states) if parent is not None else {}
        self._own: dict[StateKey, RecordedState] = {}

    def record(self, key: StateKey, held: TableSet) -> None:
        pred = next((one for one in self.family.before(key, self._known) if one != key), None)
        headers = self._source.headers_since(key, pred.commit if pred is not None else NEVER)
        entries: dict[TableId, tuple[Entry, ...]] = {}
        for header, after in self._tables(key, held, pred):
            rows = tuple(self._source.entries_since(key, header.domain, after))
            self._take_pages(key, header, rows, after)
            if rows:
                entries[header.domain] = rows
        one = RecordedState(key, held, pred, len(self.plan.recorded))
        self.plan.recorded.append(one)
        self.plan.changes.append(StateChanges(headers, entries))
        self._known[key] = held
        self._own[key] = one

    def _tables(
        self, key: StateKey, held: TableSet, pred: StateKey | None
    ) -> Iterator[tuple[TableEntry, CommitNumber]]:
        """The tables that a state holds and that changed, each with the commit since which its entries are wanted."""
        before = list(self._preds(pred))
        full = next((one.key.commit for one in before if one.domains is None), NEVER)
        if held is None:
            candidates = list(self._source.headers_since(key, full).values())
        else:
            found = (self._source.header(key, domain) for domain in sorted({*held, CATALOG}))
            candidates = [header for header in found if header is not None]
        for header in candidates:
            after = next((one.key.commit for one in before if holds_table(one.domains, header.domain)), NEVER)
            if header.changed > after:
                yield header, after

    def _preds(self, key: StateKey | None) -> Iterator[RecordedState]:
        while key is not None and key in self._own:
            yield self._own[key]
            key = self._own[key].pred
        if key is not None:
            assert self._parent is not None
            yield from self._parent.preds(key)

    def _take_pages(self, key: StateKey, header: TableEntry, rows: Sequence[Entry], after: CommitNumber) -> None:
        found = [page for entry in rows for page in entry.pages]
        found += [header.record] if header.record is not None else []
        self.plan.freed += sum(entry.base is None for entry in rows)
        for page in found:
            if page.born > after and not self._has(key, page):
                self.plan.pages[page.name] = page

    def _has(self, key: StateKey, page: PageRef) -> bool:
        """Whether the parent has a page. Only a state older than one of the parent's can share pages with it that are
        younger than what it stands on.
        """
        if self._parent is None:
            return False
        younger = any(k.version == key.version and k.commit > key.commit for k in self._parent.last.states)
        return younger and page.name in self._parent.places


def holds_table(held: TableSet, domain: TableId) -> bool:
    """Whether a state's table is there with its pages. The catalog always is."""
    return domain == CATALOG or covers(held, frozenset([domain]))
