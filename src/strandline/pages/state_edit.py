"""Building the next state: what a commit batch changes, all domains together.

A `StateEdit` starts from one view and ends as a new root. It writes new physical pages and nodes through an
`Output`, never touches old ones, and lists what the new state no longer names.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.errors import InputError, NotFound
from strandline.pages.directory import floor
from strandline.pages.edit import DomainEdit, Outcome
from strandline.pages.free_list import FreeList
from strandline.pages.ids import CATALOG, NO_DOMAIN, UNBORN, CommitNumber, DomainId, LogicalPage
from strandline.pages.node import DomainEntry, Item, Node, NodeRef, PageRef
from strandline.pages.objects import Output
from strandline.pages.page_table import rewrite
from strandline.pages.pointer import Freed
from strandline.pages.view import View


class StateEdit:
    """All domains of the next state. See the module."""

    def __init__(
        self,
        view: View,
        commit: CommitNumber,
        output: Output,
        free_list: Callable[[DomainEntry], FreeList],
        try_exclusive: Callable[[DomainId, tuple[LogicalPage, ...]], bool],
    ) -> None:
        self.view = view
        self.commit = commit
        self.output = output
        self.free_list = free_list
        self.try_exclusive = try_exclusive
        self.domains: dict[DomainId, DomainEdit] = {}

    def domain(self, domain: DomainId) -> DomainEdit:
        """The edit of a domain that is there."""
        if domain not in self.domains:
            before = self.view.domain(domain)
            if before is None and domain == CATALOG:
                before = DomainEntry(CATALOG, UNBORN, "", None, None, sequence=1)
            if before is None:
                raise NotFound(f"domain {domain} is not there any more", doing="Changing a table")
            self.domains[domain] = DomainEdit(self, before)
        return self.domains[domain]

    def find(self, name: str) -> DomainId | None:
        """The domain of that name, edits included."""
        found = floor(self.domain(CATALOG).get_leafage, name.encode())
        return DomainId(found[1]) if found is not None and found[0] == name.encode() else None

    def create(self, name: str, record: bytes) -> DomainEdit:
        """A new domain."""
        if self.find(name) is not None:
            raise InputError(f"there is a table {name} already", doing=f"Creating {name}", hint="Choose another")
        catalog = self.domain(CATALOG)
        domain = DomainId(catalog.take_sequence(1))
        edit = DomainEdit(self, DomainEntry(domain, UNBORN, name, None, None))
        edit.set_record(record)
        self.domains[domain] = edit
        catalog.index(name.encode(), LogicalPage(domain))
        return edit

    def drop(self, domain: DomainId) -> None:
        """Drop a domain with everything on its pages."""
        edit = self.domain(domain)
        self.domain(CATALOG).unindex(edit.name.encode())
        edit.dropped = True

    def rename(self, domain: DomainId, name: str) -> None:
        """Give a domain another name."""
        edit, catalog = self.domain(domain), self.domain(CATALOG)
        if self.find(name) is not None:
            raise InputError(f"there is a table {name} already", doing=f"Renaming {edit.name}")
        catalog.unindex(edit.name.encode())
        catalog.index(name.encode(), LogicalPage(domain))
        edit.rename(name)

    def finish(self) -> Outcome:
        """Write the changed paths of the page table."""
        outcome = Outcome(self.view.state.root)
        changes: dict[int, Item] = {}
        for domain, edit in self.domains.items():
            entry = edit.finish(outcome)
            if entry is not edit.before:
                changes[domain] = entry
        rewritten = rewrite(self.output.load, self.view.state.root, NO_DOMAIN, changes, self.write)
        outcome.freed += [self.freed(ref, NO_DOMAIN) for ref in rewritten.replaced]
        outcome.root = rewritten.root
        return outcome

    def write(self, node: Node) -> NodeRef:
        """Write a node of the next state."""
        return self.output.node(node, self.commit)

    def freed(self, ref: NodeRef | PageRef, domain: DomainId) -> Freed:
        """The note that the next state does not name an object that this one names."""
        return Freed(self.commit, ref.born, domain, ref.name)
