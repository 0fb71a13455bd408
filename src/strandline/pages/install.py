"""Installing what one transaction changes into the next state (section 2.2)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.errors import Conflict
from strandline.pages.ids import CommitNumber, TableId
from strandline.pages.state_edit import StateEdit, TableEdit
from strandline.pages.swap import SwapPlan
from strandline.pages.transaction import PageChange, RowChange, Transaction


@dataclass(slots=True, eq=False)
class PendingCommit:
    """A transaction on its way through the committer; done when it has a commit number or an error."""

    transaction: Transaction
    commit: CommitNumber | None = None
    error: BaseException | None = None
    resolved: dict[TableId, TableId] = field(default_factory=dict)
    plan: SwapPlan | None = None
    called: threading.Event = field(default_factory=threading.Event)
    """Wakes the transaction's thread: it is done, or has to lead the next batch."""
    abandoned: bool = False
    """Whether its thread was stopped while it waited."""

    @property
    def done(self) -> bool:
        return self.commit is not None or self.error is not None


def resolve(ticket: PendingCommit, domain: TableId) -> TableId:
    """The final number of a domain that the transaction created."""
    return ticket.resolved.get(domain, domain)


def rows_by_domain(live: Sequence[PendingCommit]) -> dict[TableId, list[RowChange]]:
    """The row changes of a batch by domain, in the order in which the transactions were queued."""
    found: dict[TableId, list[RowChange]] = {}
    for ticket in live:
        for domain, payloads in ticket.transaction.rows.items():
            changes = [RowChange(ticket.transaction, payload) for payload in payloads]
            found.setdefault(resolve(ticket, domain), []).extend(changes)
    return found


def install_catalog(ticket: PendingCommit, edit: StateEdit) -> None:
    """Tables created, dropped, renamed, described anew."""
    ticket.resolved = {}
    for change in ticket.transaction.catalog:
        domain = resolve(ticket, change.domain)
        if change.kind == "create":
            ticket.resolved[change.domain] = edit.create(change.name, change.record).domain
        elif change.kind == "drop":
            edit.drop(domain)
        elif change.kind == "rename":
            edit.rename(domain, change.name)
        else:
            edit.domain(domain).set_record(change.record)


def install_page(edit: TableEdit, change: PageChange) -> None:
    """One tuple ⟨L, Pold, Pnew⟩ of an incremental page table; `Conflict` when Pold is not there any more."""
    if edit.dropped:
        return
    if change.number is None:
        assert change.new is not None
        number = edit.add(change.new)
        if change.separator is not None:
            edit.index(change.separator, number)
        return
    now = edit.entry(change.number)
    if now is None or change.old is None or now.pages != change.old.pages:
        raise Conflict(
            f"page {change.number} changed meanwhile",
            doing="Committing",
            hint="Nothing was changed; try the transaction again",
        )
    if change.new is not None:
        edit.put(change.number, change.new)
        return
    edit.remove(change.number)
    if change.separator is not None:
        edit.unindex(change.separator)
