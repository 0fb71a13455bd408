"""Reading one state of a version: the page table as of one commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from strandline.errors import Damaged, NotFound
from strandline.pages.format import (
    Entry,
    Json,
    Leafage,
    NodeRef,
    Objects,
    PageRef,
    TableEntry,
    decode_ref,
    differences,
    encode_ref,
    find,
    floor,
    items,
    page_entry,
    scan,
    table_entry,
)
from strandline.pages.ids import CATALOG, CommitNumber, LogicalPage, TableId, VersionObject, encoded_name

PARTIAL = "The snapshot is partial: it has some tables alone"


@dataclass(frozen=True, slots=True)
class State:
    """A root and a commit number: all that a snapshot is (section 3). `domains` is None unless it is
    partial; `commit_id` is the commit's own id."""

    version: VersionObject
    commit: CommitNumber
    root: NodeRef | None
    domains: frozenset[TableId] | None = None
    commit_id: str = ""

    def to_json(self) -> Json:
        """Plain JSON: a state travels to workers, which read it while another process keeps it from being freed."""
        domains = None if self.domains is None else sorted(self.domains)
        return [self.version, self.commit, encode_ref(self.root), domains, self.commit_id]

    @staticmethod
    def from_json(body: Json) -> State:
        version, commit, root, domains, id_ = body
        return State(version, commit, decode_ref(root), None if domains is None else frozenset(domains), id_)


class ReadView:
    """A state with the means to read it. Takes no locks; safe for many threads."""

    def __init__(self, state: State, objects: Objects) -> None:
        self.state = state
        self.commit = state.commit
        """The commit whose effects are the newest that this view shows."""
        self.objects = objects
        self._domains: dict[TableId, TableEntry | None] = {}
        self._named: dict[str, TableId | None] = {}

    def domains(self) -> Iterator[TableEntry]:
        """The domains of this state, the catalog itself left out, by number."""
        for item in items(self.objects.node, self.state.root):
            table = table_entry(item)
            chosen = table is not None and (self.state.domains is None or table.domain in self.state.domains)
            if chosen and table is not None and table.record is not None and table.domain != CATALOG:
                yield table

    def domain(self, domain: TableId) -> TableEntry | None:
        """The entry of a domain; None when it never was or was dropped."""
        if domain not in self._domains:
            self._check(domain)
            self._domains[domain] = self._listed(domain)
        return self._domains[domain]

    def lists(self, domain: TableId) -> bool:
        """Whether the state has a domain, though as a partial snapshot it may not hold its pages."""
        return self._listed(domain) is not None

    def _listed(self, domain: TableId) -> TableEntry | None:
        table = table_entry(find(self.objects.node, self.state.root, domain))
        return table if table is not None and (table.record is not None or domain == CATALOG) else None

    def find_domain(self, name: str) -> TableEntry | None:
        """The domain of that name; reads a handful of nodes whatever the number of domains, once."""
        if name not in self._named:
            place = floor(lambda number: self._leafage(CATALOG, number), encoded_name(name))
            self._named[name] = TableId(place[1]) if place is not None and place[0] == name.encode() else None
        domain = self._named[name]
        if domain is None:
            return None
        self._check(domain, name)
        return self.domain(domain)

    def held(self, name: str) -> TableEntry | None:
        """The domain of that name; None, too, where a partial snapshot leaves it out."""
        try:
            return self.find_domain(name)
        except NotFound:
            return None

    @property
    def is_partial(self) -> bool:
        """Whether it is that of a snapshot of some domains alone."""
        return self.state.domains is not None

    def record(self, domain: TableId) -> bytes:
        """What the tables wrote down about a domain."""
        entry = self.domain(domain)
        if entry is None or entry.record is None:
            raise NotFound(f"there is no domain {domain}", doing="reading a table's description")
        body: str = self.objects.sealed("record", entry.record)
        return body.encode()

    def entry(self, domain: TableId, number: LogicalPage) -> Entry | None:
        """The entry of a logical page, null entries included."""
        entry = self.domain(domain)
        return page_entry(find(self.objects.node, entry.root, number)) if entry is not None else None

    def entries_since(self, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        """Entries changed after `after` (exclusive), null and directory entries included (section 4.2)."""
        entry = self.domain(domain)
        root = entry.root if entry is not None else None
        for item in items(self.objects.node, root, lambda ref: ref.born > after):
            if isinstance(item, Entry) and item.changed > after:
                yield item

    def page_for(self, domain: TableId, key: bytes) -> Entry | None:
        """The entry of the page whose range holds `key`."""
        place = floor(lambda number: self._leafage(domain, number), key)
        return None if place is None else self.entry(domain, LogicalPage(place[1]))

    def pages_between(
        self, domain: TableId, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[tuple[bytes, Entry]]:
        """Separators and entries of the pages that may hold keys from `low` to `high` (inclusive), by key."""
        for separator, number in scan(lambda number: self._leafage(domain, number), low, high):
            entry = self.entry(domain, LogicalPage(number))
            if entry is None:
                raise Damaged(f"a directory leads to page {number}, which is not there", doing="reading a directory")
            yield separator, entry

    def changed_entries(self, domain: TableId, older: ReadView) -> Iterator[tuple[Entry | None, Entry | None]]:
        """Pairs (older, this) of data-page entries that differ; what both share is never read.

        Sharing is decided by physical name, so the views may be of different versions; one of them may be temporary.
        """
        before, after = older.domain(domain), self.domain(domain)
        loads = (older.objects.node, self.objects.node)
        pairs = differences(loads, before.root if before else None, after.root if after else None)
        for old, new in ((page_entry(left), page_entry(right)) for left, right in pairs):
            one = old if old is not None and not old.directory else None
            other = new if new is not None and not new.directory else None
            if (one is not None and one.base is not None) or (other is not None and other.base is not None):
                yield one, other

    def read(self, page: PageRef) -> bytes:
        """The verified bytes of a physical page."""
        return self.objects.page(page)

    def _leafage(self, domain: TableId, number: LogicalPage) -> Leafage | None:
        entry = self.entry(domain, number)
        if entry is None or entry.base is None or not entry.directory:
            return None
        page: Leafage = self.objects.sealed("directory", entry.base, Leafage.from_json)
        return page

    def _check(self, domain: TableId, name: str | None = None) -> None:
        chosen = self.state.domains
        if chosen is not None and domain != CATALOG and domain not in chosen:
            raise NotFound(
                f"the snapshot is partial and does not hold {name or f'table number {domain}'}",
                doing="reading a partial snapshot",
                hint="Read a full snapshot, or the current state",
            )
