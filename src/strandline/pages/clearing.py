"""Clearing away what transactions wrote in vain: their new pages, their blocks of names, their reservations.

Nothing here can end a transaction that stands. What can't be deleted now is tried again after the next commit, and is
unsettled in this process's block of names: whoever buries the process finds it.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.errors import StrandlineError
from strandline.pages.ids import PhysicalPage
from strandline.pages.installing import Ticket
from strandline.pages.objects import Output
from strandline.pages.plan import Current, Plan
from strandline.pages.sweeping import sweep_block
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version


class Litter:
    """What committed transactions of one version wrote in vain. Used by one thread at a time, the leader."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._waiting: list[tuple[Transaction, frozenset[PhysicalPage]]] = []

    def add(self, transaction: Transaction, named: frozenset[PhysicalPage]) -> None:
        """A transaction stands; of its pages the new state names those of `named`."""
        self._waiting.append((transaction, named))

    def clear(self) -> None:
        """Delete what can be deleted."""
        waiting, self._waiting = self._waiting, []
        for transaction, named in waiting:
            try:
                clear_away(self._version, transaction, named)
            except StrandlineError:
                self._waiting.append((transaction, named))


def clear_failed(version: Version, ticket: Ticket) -> None:
    """Undo a transaction that failed, unless nobody knows whether it did: then its pages must stay."""
    assert ticket.error is not None
    if ticket.plan is not None and ticket.plan.attempted:
        return
    try:
        clear_away(version, ticket.transaction, frozenset())
    except StrandlineError as error:
        ticket.error.add_note(f"its new pages could not be deleted: {error}")


def clear_away(version: Version, transaction: Transaction, named: frozenset[PhysicalPage]) -> None:
    """Delete what a transaction wrote and the new state does not name."""
    context = version.context
    output = transaction.output
    for name in output.names - named:
        output.discard(name)
    context.membership.settled(output.taken)
    for block in transaction.blocks:
        # The order is the argument: see `workers`.
        context.membership.withdraw(block)
        sweep_block(context.objects, block, named)
        context.membership.close_block(block)
    if transaction.reservations and not named:
        _unreserve(version, transaction)


def _unreserve(version: Version, transaction: Transaction) -> None:
    own = (version.context.membership.number, str(transaction.number))

    def build(base: Current, _output: Output) -> Plan | None:
        kept = tuple(r for r in base.pointer.reservations if (r.process, r.id) != own)
        if kept == base.pointer.reservations:
            return None
        return Plan(replace(base.pointer, reservations=kept), "unreserve")

    version.swap(build)
