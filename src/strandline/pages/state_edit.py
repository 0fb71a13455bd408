"""Building the next state: what a commit batch changes.

A `StateEdit` starts from one view and ends as a new root. It writes new physical pages and nodes through an
`ObjectWriter`, never touches old ones, and lists what the new state no longer names. A `TableEdit` is one domain of it,
as the tables' installer edits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from strandline.errors import Damaged, InputError, NotFound
from strandline.pages.format import (
    DirectoryPages,
    Entry,
    Freed,
    FreeList,
    Item,
    Leafage,
    Node,
    NodeRef,
    Objects,
    ObjectWriter,
    PageRef,
    PendingObjects,
    PreviewWriter,
    TableEntry,
    delete,
    find,
    floor,
    insert,
    items,
    only_in,
    page_entry,
    pages_only_in,
    rewrite,
    scan,
)
from strandline.pages.ids import (
    CATALOG,
    DIRECTORY_ROOT,
    NO_DOMAIN,
    UNBORN,
    CommitNumber,
    LogicalPage,
    PhysicalPage,
    TableId,
    encoded_name,
)
from strandline.pages.locks import BatchLocks
from strandline.pages.read_view import ReadView, State


@dataclass(frozen=True, slots=True)
class Draft:
    """What a logical page will hold: an entry without its number and commit."""

    base: PageRef
    overlay: PageRef | None = None
    rows: int = 0
    least: bytes | None = None
    greatest: bytes | None = None


@dataclass(slots=True)
class EditOutcome:
    """The new root, what it replaced, the new pages that it names, and the domains that it has otherwise."""

    root: NodeRef | None
    changed: list[TableId] = field(default_factory=list)
    freed: list[Freed] = field(default_factory=list)
    named: set[PhysicalPage] = field(default_factory=set)


class FreeLists:
    """The numbers of deleted pages in the current state, by domain. Used by the thread that commits."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[TableId, FreeList] = {}

    def copy(self, entry: TableEntry) -> FreeList:
        """A copy of a domain's list; extracted from the null entries of its page table when first needed."""
        known = self._known.get(entry.domain)
        if known is None:
            nodes_with_free = items(self._objects.node, entry.root, lambda ref: ref.sums.free > 0)
            known = FreeList(item.number for item in nodes_with_free if isinstance(item, Entry) and item.base is None)
            self._known[entry.domain] = known
        return known.copy()

    def replace(self, lists: Mapping[TableId, FreeList]) -> None:
        """A commit stands: its copies count from now on."""
        for domain, free_list in lists.items():
            self._known.pop(domain, FreeList()).free()
            self._known[domain] = free_list

    def clear(self) -> None:
        """Another process has committed."""
        self._known.clear()


class TableEdit:
    """One domain of the next state. Handed to the tables' installer; used by the committing thread only.

    Reads see the edits made so far. `splits` lists pages whose rows moved to others: locks follow them.
    """

    def __init__(self, state: StateEdit, before: TableEntry) -> None:
        self._state = state
        self.before = before
        self.domain = before.domain
        """The number of this domain, final."""
        self.commit = state.commit
        """The number of the commit being built."""
        self._pending: dict[LogicalPage, Entry] = {}
        self._leafage: dict[LogicalPage, Leafage | None] = {}
        self.free_list: FreeList | None = None
        """This edit's own copy of the free list, when it was needed."""
        self._entry = before
        self._next_page = before.next_page
        self.dropped = False
        self.splits: list[tuple[LogicalPage, LogicalPage]] = []

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def sequence(self) -> int:
        """The tables' counter: the next row number."""
        return self._entry.sequence

    def take_sequence(self, count: int) -> int:
        """The first of `count` numbers that are given once."""
        first = self._entry.sequence
        self._entry = replace(self._entry, sequence=first + count)
        return first

    @property
    def record(self) -> bytes:
        """What the tables wrote down about this domain."""
        if self._entry.record is None:
            return b""
        body: str = self._state.output.read_sealed("record", self._entry.record)
        return body.encode()

    @property
    def record_changed(self) -> bool:
        """Whether this edit describes the domain anew."""
        return self._entry.record != self.before.record

    def set_record(self, record: bytes) -> None:
        """Replace the description; UTF-8 text, JSON for instance."""
        self._entry = replace(self._entry, record=self._state.output.sealed("record", record.decode()))

    def entry(self, number: LogicalPage) -> Entry | None:
        """The entry of a logical page, null entries included."""
        if number in self._pending:
            return self._pending[number]
        return self._old(number)

    def changed(self) -> Iterator[tuple[Entry | None, Entry | None]]:
        """The data pages edited so far: as they were and as they will be, None where there is none."""
        for number, entry in sorted(self._pending.items()):
            old = self._old(number)
            before, after = (None if one is None or one.base is None or one.directory else one for one in (old, entry))
            if before is not None or after is not None:
                yield before, after

    def page_for(self, key: bytes) -> tuple[bytes, Entry] | None:
        """The separator and entry of the page whose range holds `key`."""
        place = floor(self.get_leafage, key)
        if place is None:
            return None
        entry = self.entry(LogicalPage(place[1]))
        if entry is None:
            raise Damaged(f"a directory leads to page {place[1]}, which is not there", doing="reading a directory")
        return place[0], entry

    def page_before(self, separator: bytes) -> tuple[bytes, Entry] | None:
        """The separator and entry of the page before the one with that separator."""
        place = floor(self.get_leafage, separator, below=True)
        entry = self.entry(LogicalPage(place[1])) if place is not None else None
        return (place[0], entry) if place is not None and entry is not None else None

    def page_after(self, separator: bytes) -> tuple[bytes, Entry] | None:
        """The separator and entry of the page after the one with that separator."""
        for key, number in scan(self.get_leafage, separator):
            entry = self.entry(LogicalPage(number))
            if key > separator and entry is not None:
                return key, entry
        return None

    def pages_between(self, low: bytes = b"", high: bytes | None = None) -> list[tuple[bytes, Entry]]:
        """Separators and entries of the pages that may hold keys from `low` to `high` (inclusive), by key."""
        pages = [(key, self.entry(LogicalPage(number))) for key, number in scan(self.get_leafage, low, high)]
        return [(key, entry) for key, entry in pages if entry is not None]

    def read(self, page: PageRef) -> bytes:
        """The verified bytes of a physical page."""
        return self._state.output.read(page)

    def write(self, data: bytes, rows: int) -> PageRef:
        """A new physical page, to be named in a `Draft`."""
        return self._state.output.page(data, rows)

    def add(self, draft: Draft) -> LogicalPage:
        """A new logical page; numbers of deleted pages are used again (section 3.4.1)."""
        number = self._new_number()
        self.put(number, draft)
        return number

    def put(self, number: LogicalPage, draft: Draft) -> None:
        """Replace what a logical page holds."""
        self._pending[number] = Entry(
            number, self.commit, self._born(draft.base), self._born(draft.overlay), draft.rows, draft.least,
            draft.greatest,
        )  # fmt: skip

    def remove(self, number: LogicalPage) -> None:
        """Delete a logical page; a null entry remembers when."""
        self._pending[number] = Entry(number, self.commit, None)
        self._free_list().put(number)

    def index(self, separator: bytes, number: LogicalPage) -> None:
        """Lead keys from `separator` (inclusive) on to a page, in the directory."""
        insert(self._directory(), separator, number)

    def unindex(self, separator: bytes) -> None:
        """Take a separator out of the directory: its keys fall to the page before."""
        delete(self._directory(), separator)

    def moved(self, old: LogicalPage, new: LogicalPage) -> None:
        """Rows moved from one page to another: a transaction with a lock on `old` gets it on `new` too."""
        self.splits.append((old, new))

    def try_exclusive(self, *pages: LogicalPage) -> bool:
        """Lock pages against everybody outside this batch until it is committed; false when somebody is
        there.

        Joining two pages needs it: a lock on one of them must not come to cover rows of the other.
        """
        return self._state.locks.try_exclusive(self.domain, pages)

    def finish(self, outcome: EditOutcome) -> TableEntry:
        """The new entry of this domain; fills in what was replaced."""
        if self.dropped:
            return self._finish_dropped(outcome)
        for number, page in self._leafage.items():
            if page is not None:
                self._store_leafage(number, page)
        self._entry = replace(self._entry, record=self._born(self._entry.record), next_page=self._next_page)
        root = self._finish_tree(outcome)
        self._free_pages(outcome, self.before, self._entry)
        outcome.named.update(page.name for page in (self._entry.record,) if page is not None)
        if root is self.before.root and self._entry == self.before:
            return self.before
        return replace(self._entry, root=root, changed=self.commit)

    def for_preview(self, state: StateEdit) -> TableEdit:
        """The same edit as part of another one, which may finish it."""
        copied = copy(self)
        copied._state, copied._pending = state, dict(self._pending)
        return copied

    def rename(self, name: str) -> None:
        """Set the name; the catalog's directory is `StateEdit`'s affair."""
        self._entry = replace(self._entry, name=name)

    def _finish_tree(self, outcome: EditOutcome) -> NodeRef | None:
        changes: dict[int, Item] = {}
        for number, entry in self._pending.items():
            old = self._old(number)
            if old is None and entry.base is None:
                # Created and deleted within one batch: the number was given out, so a null entry stays.
                changes[number] = entry
            elif old is None or replace(entry, changed=old.changed) != old:
                changes[number] = entry
            if old is not None:
                self._free_pages(outcome, old, entry)
            outcome.named.update(page.name for page in entry.pages)
        rewritten = rewrite(self._state.output.load, self.before.root, self.domain, changes, self._state.write)
        outcome.freed += [self._state.freed(ref, self.domain) for ref in rewritten.replaced]
        return rewritten.root

    def _finish_dropped(self, outcome: EditOutcome) -> TableEntry:
        for ref in only_in(self._state.output.load, self.before.root, None, UNBORN):
            outcome.freed.append(self._state.freed(ref, self.domain))
        self._free_pages(outcome, self.before, None)
        return TableEntry(self.domain, self.commit, "", None, None)

    def _free_pages(self, outcome: EditOutcome, old: Item, new: Item | None) -> None:
        for page in pages_only_in(old, new, UNBORN):
            outcome.freed.append(self._state.freed(page, self.domain))

    def _born(self, page: PageRef | None) -> PageRef | None:
        if page is None or page.born != UNBORN:
            return page
        return PageRef(page.name, self.commit, page.size, page.checksum, page.rows)

    def _old(self, number: LogicalPage) -> Entry | None:
        return page_entry(find(self._state.output.load, self.before.root, number))

    def _new_number(self) -> LogicalPage:
        number = self._free_list().get()
        if number is None:
            # Page 0 is the directory's root whether or not there is a directory.
            number = max(self._next_page, DIRECTORY_ROOT + 1)
            self._next_page = number + 1
        return LogicalPage(number)

    def _free_list(self) -> FreeList:
        if self.free_list is None:
            self.free_list = self._state.free_lists.copy(self.before)
        return self.free_list

    def get_leafage(self, number: LogicalPage) -> Leafage | None:
        if number not in self._leafage:
            entry = self.entry(number)
            if entry is None or entry.base is None or not entry.directory:
                return None
            page: Leafage = self._state.output.read_sealed("directory", entry.base, Leafage.from_json)
            return page.copy()
        return self._leafage[number]

    def _store_leafage(self, number: LogicalPage, page: Leafage) -> None:
        base = self._born(self._state.output.sealed("directory", page.to_json()))
        self._pending[number] = Entry(number, self.commit, base, directory=True)

    def _directory(self) -> DirectoryPages:
        def add(page: Leafage) -> LogicalPage:
            number = self._new_number()
            self._leafage[number] = page
            return number

        def remove(number: LogicalPage) -> None:
            self._leafage[number] = None
            self.remove(number)

        return DirectoryPages(self.get_leafage, self._leafage.__setitem__, add, remove)


class StateEdit:
    """All domains of the next state. Used by the committing thread only."""

    def __init__(self, view: ReadView, output: ObjectWriter, free_lists: FreeLists, locks: BatchLocks) -> None:
        self.view = view
        self.commit = CommitNumber(view.commit + 1)
        self.output = output
        self.free_lists = free_lists
        self.locks = locks
        self.domains: dict[TableId, TableEdit] = {}
        self.named: frozenset[PhysicalPage] = frozenset()
        """The new pages that the next state names, once finished."""

    def domain(self, domain: TableId) -> TableEdit:
        """The edit of a domain that is there."""
        if domain not in self.domains:
            before = self.view.domain(domain)
            if before is None and domain == CATALOG:
                before = TableEntry(CATALOG, UNBORN, "", None, None, sequence=1)
            if before is None:
                raise NotFound(f"domain {domain} is not there any more", doing="changing a table")
            self.domains[domain] = TableEdit(self, before)
        return self.domains[domain]

    def find(self, name: str) -> TableId | None:
        """The domain of that name, edits included."""
        place = floor(self.domain(CATALOG).get_leafage, encoded_name(name))
        return TableId(place[1]) if place is not None and place[0] == name.encode() else None

    def create(self, name: str, record: bytes) -> TableEdit:
        """A new domain."""
        if self.find(name) is not None:
            raise InputError(f"there is a table {name} already", doing=f"creating {name}", hint="Choose another")
        catalog = self.domain(CATALOG)
        domain = TableId(catalog.take_sequence(1))
        edit = TableEdit(self, TableEntry(domain, UNBORN, name, None, None))
        edit.set_record(record)
        self.domains[domain] = edit
        catalog.index(name.encode(), LogicalPage(domain))
        return edit

    def drop(self, domain: TableId) -> None:
        """Drop a domain with everything on its pages."""
        edit = self.domain(domain)
        self.domain(CATALOG).unindex(edit.name.encode())
        edit.dropped = True

    def rename(self, domain: TableId, name: str) -> None:
        """Give a domain another name."""
        edit, catalog = self.domain(domain), self.domain(CATALOG)
        if self.find(name) is not None:
            raise InputError(f"there is a table {name} already", doing=f"renaming {edit.name}")
        catalog.unindex(edit.name.encode())
        catalog.index(name.encode(), LogicalPage(domain))
        edit.rename(name)

    def finish(self) -> EditOutcome:
        """Write the changed paths of the page table."""
        outcome = EditOutcome(self.view.state.root)
        changes: dict[int, Item] = {}
        for domain, edit in self.domains.items():
            entry = edit.finish(outcome)
            if entry is not edit.before:
                changes[domain] = entry
        outcome.changed = sorted(TableId(domain) for domain in changes)
        rewritten = rewrite(self.output.load, self.view.state.root, NO_DOMAIN, changes, self.write)
        outcome.freed += [self.freed(ref, NO_DOMAIN) for ref in rewritten.replaced]
        outcome.root = rewritten.root
        self.named = frozenset(outcome.named)
        return outcome

    def preview(self) -> ReadView:
        """The next state as far as it is edited, for work on this edit: nothing is written, nothing changes."""
        writer = PreviewWriter(self.output)
        draft = StateEdit(self.view, writer, self.free_lists, self.locks)
        draft.domains = {domain: edit.for_preview(draft) for domain, edit in self.domains.items()}
        state = State(self.view.state.version, self.commit, draft.finish().root)
        return ReadView(state, PendingObjects(writer))

    def write(self, node: Node) -> NodeRef:
        """Write a node of the next state."""
        return self.output.node(node, self.commit)

    def freed(self, ref: NodeRef | PageRef, domain: TableId) -> Freed:
        """The note that the next state does not name an object that this one names."""
        return Freed(self.commit, ref.born, domain, ref.name)
