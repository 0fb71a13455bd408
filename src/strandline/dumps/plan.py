"""What a dump copies: the states that its parent does not know, and the pages that they add (section 4.2).

The page table is walked from each new state, pruned by commit numbers: only nodes younger than the state before it are
entered, only entries changed since are recorded, and only pages born since are copied (`pages_to_copy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from strandline.dumps.chain import DumpChain
from strandline.dumps.manifest import RecordedState, StateChanges, StateKey, TableSet, VersionFacts, covers
from strandline.pages import CATALOG, NEVER, CommitNumber, Entry, PageRef, TableEntry, TableId

_Changed = TypeVar("_Changed", TableEntry, Entry)
_Number = TypeVar("_Number", bound=int)


class DumpSource(Protocol):
    """States that can be asked what changed in them: a store snapshot, or a chain of dumps."""

    def headers_since(self, key: StateKey, after: CommitNumber) -> Mapping[TableId, TableEntry]:
        """The headers of tables changed after `after` (exclusive), dropped tables and the catalog's own included."""
        ...

    def header(self, key: StateKey, domain: TableId) -> TableEntry | None:
        """The header of one table, that of a dropped one included."""
        ...

    def entries_since(self, key: StateKey, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        """The entries changed after `after` (exclusive), null and directory entries included."""
        ...


@dataclass(slots=True)
class DumpPlan:
    """The states to record with their changes, each after those it stands on; and the pages to copy, by name."""

    recorded: list[RecordedState] = field(default_factory=list)
    changes: list[StateChanges] = field(default_factory=list)
    pages: dict[str, PageRef] = field(default_factory=dict)
    freed: int = 0


class Lineage:
    """The versions of a dump, and which state comes before which. Commit numbers grow along a line of descent."""

    def __init__(self, versions: Sequence[VersionFacts]) -> None:
        self.versions = {version.object: version for version in versions}

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

    def in_order(self, states: Iterable[StateKey]) -> list[StateKey]:
        """Ancestors first."""
        rank = {name: number for number, name in enumerate(self.versions)}
        return sorted(states, key=lambda key: (rank[key.version], key.commit))


def states_of(versions: Iterable[VersionFacts]) -> dict[StateKey, TableSet]:
    """The states that versions hold, each with the tables that any of its holders wants: snapshots, what forks stand
    on, and what is now.
    """
    states: dict[StateKey, TableSet] = {}
    for version in versions:
        snapshots = [(StateKey(version.object, one.commit), one.domains) for one in version.snapshots]
        forked = [(version.base, None)] if version.base is not None else []
        for key, held in (*snapshots, *forked, (version.current, None)):
            before = states.get(key, frozenset())
            states[key] = None if held is None or before is None else held | before
    return states


def states_to_record(states: Mapping[StateKey, TableSet], parent: DumpChain | None) -> list[StateKey]:
    """The states that the parent does not have with all their tables."""
    return [key for key, held in states.items() if parent is None or not parent.has_state(key, held)]


def plan_dump(
    source: DumpSource, versions: Sequence[VersionFacts], states: Mapping[StateKey, TableSet], parent: DumpChain | None
) -> DumpPlan:
    """What a dump of `states` records and copies. `versions` are in an order in which a parent precedes its forks."""
    lineage = Lineage(versions)
    planner = _Planner(source, lineage, parent)
    for key in lineage.in_order(states_to_record(states, parent)):
        planner.record(key, states[key])
    return planner.plan


def agrees_with_chain(
    source: DumpSource, versions: Sequence[VersionFacts], states: Mapping[StateKey, TableSet], chain: DumpChain
) -> bool:
    """Whether each state has, of what did not change since the nearest state of a chain before it, just what that one
    has: the same tables, and the same entries, which name their pages with checksums. Then a dump on the chain is
    right, whatever happened in between. It walks whole page tables.
    """
    lineage = Lineage(versions)
    for key, held in states.items():
        known = key in chain.last.states
        before = key if known else next(lineage.before(key, chain.last.states), None)
        if before is None:
            continue
        headers = source.headers_since(key, NEVER)
        older = {domain: replace(header, root=None) for domain, header in chain.headers_since(before, NEVER).items()}
        mine = {domain: replace(header, root=None) for domain, header in headers.items()}
        if not _is_older_part(mine, older, before.commit):
            return False
        for domain in [domain for domain in headers if holds_table(held, domain)]:
            since = next((one.key for one in chain.states_from(before) if holds_table(one.domains, domain)), None)
            if since is not None:
                entries = {entry.number: entry for entry in source.entries_since(key, domain, NEVER)}
                dumped = {entry.number: entry for entry in chain.entries_since(since, domain, NEVER)}
                if not _is_older_part(entries, dumped, since.commit):
                    return False
    return True


def _is_older_part(all_: Mapping[_Number, _Changed], older: Mapping[_Number, _Changed], commit: CommitNumber) -> bool:
    """Whether what did not change after a commit is as it was then. Nothing vanishes: what is deleted leaves a null."""
    unchanged = {number: one for number, one in all_.items() if one.changed <= commit}
    changed = all_.keys() - unchanged.keys()
    return unchanged == {number: one for number, one in older.items() if number not in changed}


class _Planner:
    def __init__(self, source: DumpSource, lineage: Lineage, parent: DumpChain | None) -> None:
        self._source = source
        self._lineage = lineage
        self._parent = parent
        self.plan = DumpPlan()
        # States that the next one may stand on: those of the parent, and those recorded so far.
        self._known: dict[StateKey, TableSet] = dict(parent.last.states) if parent is not None else {}
        self._recorded: dict[StateKey, RecordedState] = {}

    def record(self, key: StateKey, held: TableSet) -> None:
        """Add a state: what changed since the nearest known one before it, and the pages that it adds."""
        before = next((known for known in self._lineage.before(key, self._known) if known != key), None)
        headers = self._source.headers_since(key, before.commit if before is not None else NEVER)
        entries: dict[TableId, tuple[Entry, ...]] = {}
        for header, after in self._changed_tables(key, held, before):
            changed = tuple(self._source.entries_since(key, header.domain, after))
            self.plan.pages.update({page.name: page for page in self.pages_to_copy(key, header, changed, after)})
            self.plan.freed += sum(entry.base is None for entry in changed)
            if changed:
                entries[header.domain] = changed
        state = RecordedState(key, held, before, len(self.plan.recorded))
        self.plan.recorded.append(state)
        self.plan.changes.append(StateChanges(headers, entries))
        self._known[key] = held
        self._recorded[key] = state

    def pages_to_copy(
        self, key: StateKey, header: TableEntry, entries: Sequence[Entry], after: CommitNumber
    ) -> Iterator[PageRef]:
        """Of the changed entries of a table, and of its record: the pages born after `after` that the parent lacks."""
        for entry in entries:
            yield from (page for page in entry.pages if page.born > after and not self._parent_has(key, page))
        record = header.record
        if record is not None and record.born > after and not self._parent_has(key, record):
            yield record

    def _parent_has(self, key: StateKey, page: PageRef) -> bool:
        """Whether the parent has a page that was born after the state before `key`.

        That can be only when the parent has a younger state of the same version: then the two share pages.
        """
        if self._parent is None:
            return False
        younger = any(k.version == key.version and k.commit > key.commit for k in self._parent.last.states)
        return younger and self._parent.has_page(page)

    def _changed_tables(
        self, key: StateKey, held: TableSet, before: StateKey | None
    ) -> Iterator[tuple[TableEntry, CommitNumber]]:
        """The tables that a state holds and that changed, each with the commit after which its entries are wanted."""
        older = list(self._states_from(before))
        full = next((state.key.commit for state in older if state.domains is None), NEVER)
        if held is None:
            candidates = list(self._source.headers_since(key, full).values())
        else:
            headers = (self._source.header(key, domain) for domain in sorted({*held, CATALOG}))
            candidates = [header for header in headers if header is not None]
        for header in candidates:
            after = next((state.key.commit for state in older if holds_table(state.domains, header.domain)), NEVER)
            if header.changed > after:
                yield header, after

    def _states_from(self, key: StateKey | None) -> Iterator[RecordedState]:
        """A recorded state, the one that it stands on, and so on, through this dump and the chain of its parent."""
        while key is not None and key in self._recorded:
            yield self._recorded[key]
            key = self._recorded[key].pred
        if self._parent is not None:
            yield from self._parent.states_from(key)


def holds_table(held: TableSet, domain: TableId) -> bool:
    """Whether a state's table is there with its pages. The catalog always is."""
    return domain == CATALOG or covers(held, frozenset([domain]))
