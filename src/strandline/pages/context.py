"""What the parts of an open store share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from strandline.errors import StoreError
from strandline.pages.format import Objects, ObjectWriter
from strandline.pages.ids import Environment
from strandline.pages.process_registry import DeathWatch, Membership
from strandline.storage import Storage

if TYPE_CHECKING:
    from strandline.pages.read_view import ReadView
    from strandline.pages.state_edit import StateEdit, TableEdit
    from strandline.pages.transaction import Transaction


class Installer(Protocol):
    """Puts row changes onto pages, when a commit batch is processed (section 2.2). The tables provide it."""

    def install(self, edit: TableEdit, changes: Sequence[object]) -> None:
        """Install the changes of a batch to one domain, in order, as if one transaction had made them. They are what
        `Transaction.change` was given.

        It may be called again for the same changes, on a newer state, when another process committed first:
        it must not remember anything. An error ends only the transaction that caused it: the batch is then
        installed one transaction at a time.
        """
        ...


class Deriver(Protocol):
    """Adds to a commit what follows from it, once all row changes of the batch are in place. The views provide it."""

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        """Change further domains according to what the batch changed: `edit.view` is the state before it.

        Like `install` it may be called again, and remembers nothing.
        """
        ...


class Validator(Protocol):
    """Judges whether a transaction may go on although another process committed in between."""

    def conflict(self, transaction: Transaction, older: ReadView, newer: ReadView) -> str | None:
        """Why the transaction must be tried again, or None: no row that changed from `older` to `newer`
        concerns it.

        `ReadView.changed_entries` gives the pages to look at.
        """
        ...


@dataclass(slots=True)
class Context:
    """The storage, this process's place in it, and what the tables provide."""

    storage: Storage
    objects: Objects
    membership: Membership
    surroundings: Environment
    watch: DeathWatch
    installer: Installer
    validator: Validator
    derivers: Sequence[Deriver] = ()
    closed: bool = False
    process: int = field(default_factory=os.getpid)
    """The operating system's number of the process that opened the store. A forked child shares its names and its place
    in the registry, so it may do nothing with them (invariant 7)."""

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child's copy of a store that its parent opened."""
        return os.getpid() != self.process

    def refuse_inherited(self) -> None:
        """Refuse to work on a store that a parent process opened."""
        if self.is_inherited:
            raise StoreError(
                f"it was opened in process {self.process}, of which this process {os.getpid()} is a fork",
                doing="Using a store",
                hint="Open the store again in this process, or start processes by spawn",
            )

    def output(self) -> ObjectWriter:
        """A collection of new objects, named from this process's block."""
        return ObjectWriter(self.objects, self.membership.stem)

    def abandon(self, output: ObjectWriter) -> None:
        """Take back new objects that nothing names. In a forked child they are its parent's, and stay."""
        if self.is_inherited:
            return
        output.abandon()
        self.membership.settled(output.taken)
