"""What the parts of an open store share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strandline.errors import NotFound
from strandline.pages.format import Objects, ObjectWriter, StoredMaster, read_master
from strandline.pages.ids import Environment
from strandline.pages.liveness import DeathWatch
from strandline.pages.process_registry import Membership
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
    store: str
    """The store's own id. What stands at its place under another id is another store."""
    objects: Objects
    membership: Membership
    environment: Environment
    watch: DeathWatch
    installer: Installer
    validator: Validator
    derivers: Sequence[Deriver] = ()
    closed: bool = False

    def read_master(self) -> StoredMaster:
        """MASTER, of this very store."""
        try:
            stored = read_master(self.objects)
        except NotFound:
            raise self._elsewhere("there is no store any more") from None
        self.refuse_other_store(stored.master.store)
        return stored

    def refuse_other_store(self, store: str) -> None:
        """Refuse what belongs to another store, which has come to this one's place."""
        if store != self.store:
            raise self._elsewhere("another store is there now")

    def _elsewhere(self, why: str) -> NotFound:
        hint = "The store that was opened there was moved or deleted: open it where it is"
        return NotFound(why, doing=f"using the store at {self.storage.url}", hint=hint)

    def output(self) -> ObjectWriter:
        """A collection of new objects, named from this process's block."""
        return ObjectWriter(self.objects, self.membership.stem)

    def abandon(self, output: ObjectWriter) -> None:
        """Take back new objects that nothing names. In a forked child they are its parent's, and stay."""
        if self.membership.is_inherited:
            return
        output.abandon()
        self.membership.settled(output.taken)
