"""What the parts of an open store share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from strandline.pages.freeing import DeathWatch
from strandline.pages.membership import Membership
from strandline.pages.objects import Objects, Output
from strandline.pages.surroundings import Surroundings
from strandline.storage import Storage

if TYPE_CHECKING:
    from strandline.pages.edit import DomainEdit
    from strandline.pages.state_edit import StateEdit
    from strandline.pages.transaction import RowChange, Transaction
    from strandline.pages.view import View


class Installer(Protocol):
    """Puts row changes onto pages, when a commit batch is processed (section 2.2). The tables provide it."""

    def install(self, edit: DomainEdit, changes: Sequence[RowChange]) -> None:
        """Install the changes of a batch to one domain, in order, as if one transaction had made them.

        It may be called again for the same changes, on a newer state, when another process committed first:
        it must not remember anything. An error ends only the transaction that caused it: the batch is then
        installed one transaction at a time.
        """
        ...


@runtime_checkable
class Deriver(Protocol):
    """An installer that has something to add to a commit once all row changes of the batch are in place."""

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        """Change further domains according to what the batch changed: `edit.view` is the state before it.

        Like `install` it may be called again, and remembers nothing.
        """
        ...


class Validator(Protocol):
    """Judges whether a transaction may go on although another process committed in between."""

    def conflict(self, transaction: Transaction, older: View, newer: View) -> str | None:
        """Why the transaction must be tried again, or None: no row that changed from `older` to `newer`
        concerns it.

        `View.changed_entries` gives the pages to look at.
        """
        ...


@dataclass(slots=True)
class Context:
    """The storage, this process's place in it, and what the tables provide."""

    storage: Storage
    objects: Objects
    membership: Membership
    surroundings: Surroundings
    watch: DeathWatch
    installer: Installer
    validator: Validator
    closed: bool = False

    def output(self) -> Output:
        """A collection of new objects, named from this process's block."""
        return Output(self.objects, self.membership.stem)

    def abandon(self, output: Output) -> None:
        """Take back new objects that nothing names."""
        output.abandon()
        self.membership.settled(output.taken)
