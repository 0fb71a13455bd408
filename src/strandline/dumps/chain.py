"""A chain of dumps, from a level 0 to the wanted one: what its states hold, and where their pages are.

It answers the questions of a `DumpSource`, like a store snapshot: restoring, combining and planning the next dump ask
both the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from strandline.dumps.catalog import DumpCatalog, DumpEntry
from strandline.dumps.manifest import DumpManifest, Pack, RecordedState, StateChanges, StateKey, TableSet, covers
from strandline.dumps.packs import THREADS
from strandline.dumps.target import Target
from strandline.errors import Damaged
from strandline.pages import CommitNumber, Entry, LogicalPage, PageRef, TableEntry, TableId
from strandline.storage import Recent, cached_property

_VERIFY = "Run dumps --verify to see which dumps are whole"


@dataclass(frozen=True, slots=True)
class PackLocation:
    """Where a page is: a dump and a pack of it."""

    dump: str
    pack: Pack
    page: PageRef


class DumpChain:
    """Dumps that stand on each other; the last one is the wanted one. Parts of the index are read once, on demand."""

    def __init__(self, target: Target, entries: Sequence[DumpEntry], manifests: Sequence[DumpManifest]) -> None:
        self._target = target
        self.entries = tuple(entries)
        self._manifests = tuple(manifests)
        self._recorded: dict[StateKey, tuple[DumpManifest, RecordedState]] = {}
        for manifest in manifests:
            self._recorded.update({state.key: (manifest, state) for state in manifest.recorded})
        self._changes: dict[StateKey, StateChanges] = {}
        for key in self.last.states:
            self._find_recorded(key)

    @property
    def last(self) -> DumpManifest:
        """The manifest of the wanted dump."""
        return self._manifests[-1]

    def has_state(self, key: StateKey, held: TableSet) -> bool:
        """Whether the wanted dump has a state, with the tables that `held` names."""
        return key in self.last.states and covers(self.last.states[key], held)

    def states_from(self, key: StateKey | None) -> Iterator[RecordedState]:
        """A recorded state, the one that it stands on, and so on."""
        while key is not None:
            state = self._find_recorded(key)[1]
            yield state
            key = state.pred

    def headers_since(self, key: StateKey, after: CommitNumber) -> Mapping[TableId, TableEntry]:
        newest: dict[TableId, TableEntry] = {}
        for state in self.states_from(key):
            if state.key.commit <= after:
                break
            for domain, header in self._read_changes(state.key).headers.items():
                newest.setdefault(domain, header)
        return {domain: header for domain, header in newest.items() if header.changed > after}

    def header(self, key: StateKey, domain: TableId) -> TableEntry | None:
        for state in self.states_from(key):
            header = self._read_changes(state.key).headers.get(domain)
            if header is not None:
                return header
        return None

    def entries_since(self, key: StateKey, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        # The newest entry of a logical page counts. Entries never vanish: a deleted page leaves a null entry.
        newest: dict[LogicalPage, Entry] = {}
        for state in self.states_from(key):
            if state.key.commit <= after:
                break
            for entry in self._read_changes(state.key).entries.get(domain, ()):
                newest.setdefault(entry.number, entry)
        return (entry for _, entry in sorted(newest.items()) if entry.changed > after)

    @cached_property
    def locations(self) -> dict[str, PackLocation]:
        """Where each page of the chain is, by its name."""
        locations: dict[str, PackLocation] = {}
        for manifest in self._manifests:
            for pack in self._target.folder(manifest.id).with_pages(manifest):
                locations.update({page.name: PackLocation(manifest.id, pack, page) for page in pack.pages})
        return locations

    def check_indexes(self) -> None:
        """Refuse to build upon a chain that could not be restored: every index is read back. Packs are not."""
        for manifest in self._manifests:
            self._target.folder(manifest.id).check_index(manifest)

    def has_page(self, page: PageRef) -> bool:
        """Whether the chain has this very page; one name may stand for two in a store whose folder was put back."""
        location = self.locations.get(page.name)
        return location is not None and location.page == page

    def locate(self, page: str, doing: str) -> PackLocation:
        """Where a page is; `Damaged` when no dump of the chain has it."""
        try:
            return self.locations[page]
        except KeyError:
            raise Damaged(f"no dump of the chain has page {page}", doing=f"{doing} dump {self.last.id}") from None

    def _read_changes(self, key: StateKey) -> StateChanges:
        if key not in self._changes:
            manifest, state = self._find_recorded(key)
            self._changes[key] = self._target.folder(manifest.id).changes(manifest.parts[state.part])
        return self._changes[key]

    def _find_recorded(self, key: StateKey) -> tuple[DumpManifest, RecordedState]:
        try:
            return self._recorded[key]
        except KeyError:
            raise Damaged(
                f"no dump of the chain records the state of commit {key.commit} of {key.version}",
                doing=f"reading dump {self.last.id}",
                hint=_VERIFY,
            ) from None


class PageReader:
    """Verified pages out of a chain's packs; the packs used last are kept in memory. Safe for many threads."""

    def __init__(self, target: Target, chain: DumpChain) -> None:
        self._target = target
        self._chain = chain
        self._packs: Recent[dict[str, bytes]] = Recent(2 * THREADS)

    def read(self, page: PageRef) -> bytes:
        location = self._chain.locate(page.name, "reading")
        key = (location.dump, location.pack.name)
        pages = self._packs.get(key)
        if pages is None:
            pages = self._read_pack(location)
            self._packs.put(key, pages)
        return pages[page.name]

    def _read_pack(self, location: PackLocation) -> dict[str, bytes]:
        return {page.name: data for page, data in self._target.folder(location.dump).pages(location.pack)}


def open_chain(target: Target, catalog: DumpCatalog, entry: DumpEntry) -> DumpChain:
    """The dumps that `entry` needs, verified link by link; `Damaged` names what is missing."""
    doing = f"reading dump {entry.id}"
    entries, manifests = [entry], [target.manifest(entry)]
    while (link := manifests[-1].parent) is not None:
        child = manifests[-1].id
        parent_id, expected = link
        parent = catalog.find(parent_id)
        if parent is None or not parent.complete:
            why = f"dump {child} stands on dump {parent_id}, which is not there"
            raise Damaged(why, doing=doing, hint=_VERIFY)
        if parent.manifest != expected:
            why = f"dump {child} stands on another dump than the {parent_id} that is here"
            raise Damaged(why, doing=doing, hint=_VERIFY)
        if parent.id in {ancestor.id for ancestor in entries}:
            raise Damaged(f"dump {parent_id} stands on itself", doing=doing)
        entries.append(parent)
        manifests.append(target.manifest(parent))
    return DumpChain(target, entries[::-1], manifests[::-1])
