"""A chain of dumps, from a level 0 down to the wanted one: what its states hold, and where their pages are.

A `Source` like the store itself: restoring, combining and dumping further ask it the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from strandline.dumps.catalog import DumpCatalog, DumpEntry
from strandline.dumps.manifest import DumpManifest, Pack, RecordedState, StateChanges, StateKey, TableSet, covers
from strandline.dumps.target import Target
from strandline.errors import Damaged
from strandline.pages import CommitNumber, Entry, LogicalPage, TableEntry, TableId


@dataclass(frozen=True, slots=True)
class PackLocation:
    """Where a page is: a dump and a pack of it."""

    dump: str
    pack: Pack


class DumpChain:
    """See the module. The last manifest is the wanted dump's. Parts of the index are read when needed, once."""

    def __init__(self, target: Target, entries: Sequence[DumpEntry], manifests: Sequence[DumpManifest]) -> None:
        self.target = target
        self.entries = tuple(entries)
        self.manifests = tuple(manifests)
        self.recorded: dict[StateKey, tuple[DumpManifest, RecordedState]] = {}
        for manifest in manifests:
            self.recorded.update({one.key: (manifest, one) for one in manifest.recorded})
        self._changes: dict[StateKey, StateChanges] = {}
        for key in self.last.states:
            self._recorded(key)

    @property
    def last(self) -> DumpManifest:
        """The manifest of the wanted dump."""
        return self.manifests[-1]

    def knows(self, key: StateKey, held: TableSet) -> bool:
        """Whether the wanted dump has a state, with everything that `held` names."""
        return key in self.last.states and covers(self.last.states[key], held)

    def preds(self, key: StateKey | None) -> Iterator[RecordedState]:
        """A recorded state, the one that it stands on, and so on."""
        while key is not None:
            one = self._recorded(key)[1]
            yield one
            key = one.pred

    def headers_since(self, key: StateKey, after: CommitNumber) -> Mapping[TableId, TableEntry]:
        found: dict[TableId, TableEntry] = {}
        for one in self.preds(key):
            if one.key.commit <= after:
                break
            for domain, header in self.changes(one.key).headers.items():
                found.setdefault(domain, header)
        return {domain: header for domain, header in found.items() if header.changed > after}

    def header(self, key: StateKey, domain: TableId) -> TableEntry | None:
        for one in self.preds(key):
            header = self.changes(one.key).headers.get(domain)
            if header is not None:
                return header
        return None

    def entries_since(self, key: StateKey, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        # The newest entry of a place counts. Entries never vanish: a deleted page leaves a null entry.
        found: dict[LogicalPage, Entry] = {}
        for one in self.preds(key):
            if one.key.commit <= after:
                break
            for entry in self.changes(one.key).entries.get(domain, ()):
                found.setdefault(entry.number, entry)
        return (entry for _, entry in sorted(found.items()) if entry.changed > after)

    def changes(self, key: StateKey) -> StateChanges:
        """What a recorded state says."""
        if key not in self._changes:
            manifest, one = self._recorded(key)
            self._changes[key] = self.target.folder(manifest.id).changes(manifest.parts[one.part])
        return self._changes[key]

    @cached_property
    def places(self) -> dict[str, PackLocation]:
        """Where each page of the chain is."""
        found: dict[str, PackLocation] = {}
        for manifest in self.manifests:
            for pack in self.target.folder(manifest.id).with_pages(manifest):
                found.update({page.name: PackLocation(manifest.id, pack) for page in pack.pages})
        return found

    def _recorded(self, key: StateKey) -> tuple[DumpManifest, RecordedState]:
        try:
            return self.recorded[key]
        except KeyError:
            raise Damaged(
                f"no dump of the chain records the state of commit {key.commit} of {key.version}",
                doing=f"Reading dump {self.last.id}",
                hint="Run dumps --verify to see which dumps are whole",
            ) from None


def open_chain(target: Target, catalog: DumpCatalog, entry: DumpEntry) -> DumpChain:
    """The dumps that `entry` needs, verified link by link; `Damaged` names what is missing."""
    entries, manifests = [entry], [target.manifest(entry)]
    while manifests[-1].parent is not None:
        child = manifests[-1]
        assert child.parent is not None
        parent, expected = child.parent
        found = catalog.find(parent)
        if found is None or not found.complete:
            raise Damaged(
                f"dump {child.id} stands on dump {parent}, which is not there", doing=f"Reading dump {entry.id}",
                hint="Run dumps --verify to see which dumps are whole",
            )  # fmt: skip
        if found.manifest != expected:
            raise Damaged(
                f"dump {child.id} stands on another dump than the {parent} that is here",
                doing=f"Reading dump {entry.id}", hint="Run dumps --verify to see which dumps are whole",
            )  # fmt: skip
        if found.id in {one.id for one in entries}:
            raise Damaged(f"dump {parent} stands on itself", doing=f"Reading dump {entry.id}")
        entries.append(found)
        manifests.append(target.manifest(found))
    return DumpChain(target, entries[::-1], manifests[::-1])
