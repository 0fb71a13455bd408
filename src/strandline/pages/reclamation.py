"""What may be deleted: the objects of a dropped snapshot, and what was written and never named.

Dropping a snapshot (section 3.2.2, and 3.3 for partial ones): its page table is walked beside that of the next one,
pruned by commit numbers. Only what changed both between the previous snapshot and this one, and between this one
and the next, is visited, and all of it is freed. A partial snapshot is transparent for what it does not hold: then the
one before or after it counts, so the neighbours depend on the domain.

What transactions wrote and did not commit (new pages, blocks of names, reservations) is found from their blocks of
names and never by listing (invariant 8). Nothing here can end a transaction that stands: what can't be deleted now is
tried again after the next commit, and is unsettled in this process's block of names, so fencing the process finds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.errors import StrandlineError
from strandline.pages.batch_queue import PendingCommit
from strandline.pages.format import (
    Freed,
    LoadNode,
    NodeRef,
    Objects,
    SnapshotRecord,
    TableEntry,
    find,
    node_name,
    old_side,
    only_in,
    page_name,
    pages_only_in,
    table_entry,
    version_name,
)
from strandline.pages.ids import CATALOG, NEVER, NO_DOMAIN, CommitNumber, PhysicalPage, TableId
from strandline.pages.process_registry import NameBlock
from strandline.pages.swap import SwapAttempt, SwapPlan, change_pointer
from strandline.pages.transaction import TransactionResources
from strandline.storage import is_stored

if TYPE_CHECKING:
    from strandline.pages.version import Version


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The states before and after, for one domain. `before` is the infinite past's number when there is
    none.
    """

    before: CommitNumber
    after: CommitNumber
    root: NodeRef | None


def freed_by_drop(
    load: LoadNode, dropped: SnapshotRecord, others: Sequence[SnapshotRecord], current: SnapshotRecord
) -> list[Freed]:
    """The objects that only `dropped` names, of all permanent states (`others`, sorted) and the current
    one.
    """
    chain = [*others, current]
    freed = list(_upper_tier(load, dropped, neighbours(dropped, chain, NO_DOMAIN)))
    singled: set[TableId] = {CATALOG}
    for one in (dropped, *others):
        singled |= one.domains or set()
    for domain in sorted(singled):
        if dropped.holds(domain):
            freed += _one_domain(load, dropped, neighbours(dropped, chain, domain), domain)
    if dropped.domains is None:
        # Of the rest no partial snapshot holds anything, so their neighbours are the same: the full
        # snapshots.
        full = [one for one in chain if one.domains is None]
        freed += _other_domains(load, dropped, neighbours(dropped, full, NO_DOMAIN), singled)
    return freed


def freed_for_good(load: LoadNode, dropped: SnapshotRecord, sides: Neighbours) -> list[Freed]:
    """The objects of a full state that its neighbours, the same for all domains, do not name; parents
    first.
    """
    freed = list(_upper_tier(load, dropped, sides))
    return freed + list(_other_domains(load, dropped, sides, set()))


def neighbours(dropped: SnapshotRecord, chain: Sequence[SnapshotRecord], domain: TableId) -> Neighbours:
    """The nearest states on both sides that hold a domain. Another one of the same commit counts as
    before.
    """
    holding = [one for one in chain if one.holds(domain)]
    before = max((one.commit for one in holding[:-1] if one.commit <= dropped.commit), default=NEVER)
    later = next((one for one in holding[:-1] if one.commit > dropped.commit), holding[-1])
    return Neighbours(before, later.commit, later.root)


def _upper_tier(load: LoadNode, dropped: SnapshotRecord, sides: Neighbours) -> Iterator[Freed]:
    for item in old_side(load, dropped.root, sides.root, sides.before):
        if isinstance(item, NodeRef):
            yield Freed(sides.after, item.born, NO_DOMAIN, item.name)


def _one_domain(load: LoadNode, dropped: SnapshotRecord, sides: Neighbours, domain: TableId) -> Iterator[Freed]:
    old, new = (table_entry(find(load, root, domain)) for root in (dropped.root, sides.root))
    if old is not None:
        yield from _subtree(load, old, new, sides)


def _other_domains(
    load: LoadNode, dropped: SnapshotRecord, sides: Neighbours, singled: set[TableId]
) -> Iterator[Freed]:
    for item in old_side(load, dropped.root, sides.root, sides.before):
        if isinstance(item, tuple):
            old, new = (table_entry(side) for side in item)
            if old is not None and old.domain not in singled:
                yield from _subtree(load, old, new, sides)


def _subtree(load: LoadNode, old: TableEntry, new: TableEntry | None, sides: Neighbours) -> Iterator[Freed]:
    for page in pages_only_in(old, new, sides.before):
        yield Freed(sides.after, page.born, old.domain, page.name)
    for ref in only_in(load, old.root, new.root if new is not None else None, sides.before):
        yield Freed(sides.after, ref.born, old.domain, ref.name)


def sweep_block(objects: Objects, block: NameBlock, keep: Container[PhysicalPage]) -> int:
    """Delete every object of a block that is not to be kept; tells how many names were tried.

    No process may be writing names of the block any more: its process ended the transaction, or was fenced. A
    run is filled densely from its start, so looking ends at its first absent page.
    """
    tried = 0
    for start in range(0, block.count, block.run):
        end = min(start + block.run, block.count)
        if block.run > 1:
            end = next((i for i in range(start, end) if not is_stored(objects.storage, page_name(block.stem(i)))), end)
        # From the last to the first: a sweep cut short leaves a run that is still dense.
        for index in reversed(range(start, end)):
            tried += 1
            for name in names_of(block.stem(index)):
                if name not in keep:
                    objects.delete(name)
    return tried


def names_of(stem: str) -> tuple[PhysicalPage, ...]:
    """Every object that a stem may have become."""
    return page_name(stem), node_name(stem), PhysicalPage(version_name(stem))


class Leftovers:
    """What ended transactions of one version wrote and did not commit. Cleared by one thread at a time, the leader."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._waiting: deque[tuple[TransactionResources, frozenset[PhysicalPage]]] = deque()

    def add(self, ended: TransactionResources, named: frozenset[PhysicalPage]) -> None:
        """A transaction has ended; of its pages the new state names those of `named`."""
        self._waiting.append((ended, named))

    def clear(self) -> None:
        """Delete what can be deleted."""
        for _ in range(len(self._waiting)):
            ended, named = self._waiting.popleft()
            try:
                clear_away(self._version, ended, named)
            except StrandlineError:
                self._waiting.append((ended, named))


def clear_failed(version: Version, pending: PendingCommit) -> None:
    """Undo a transaction that failed, unless it is not known whether it did: then its pages must stay."""
    if pending.attempt is not None and pending.attempt.may_stand:
        return
    try:
        clear_away(version, pending.transaction.resources, frozenset())
    except StrandlineError as error:
        if pending.error is not None:
            pending.error.add_note(f"its new pages could not be deleted: {error}")


def clear_away(version: Version, ended: TransactionResources, named: frozenset[PhysicalPage]) -> None:
    """Delete what a transaction wrote and the new state does not name."""
    context = version.context
    if context.membership.is_inherited:
        return  # a forked child: these are its parent's
    output = ended.output
    for name in output.names - named:
        output.discard(name)
    context.membership.settled(output.taken)
    for block in ended.blocks:
        # The order is the argument: see `worker_output`.
        context.membership.withdraw(block)
        sweep_block(context.objects, block, named)
        context.membership.close_block(block)
    if ended.reservations and not named:
        _unreserve(version, ended)


def _unreserve(version: Version, ended: TransactionResources) -> None:
    own = (version.context.membership.number, str(ended.number))

    def unreserve(attempt: SwapAttempt) -> None:
        pointer = attempt.base.pointer
        kept = tuple(one for one in pointer.reservations if (one.process, one.id) != own)
        if kept != pointer.reservations:
            attempt.write(SwapPlan(replace(pointer, reservations=kept), "unreserve"))

    change_pointer(version, unreserve)
