"""What dropping a snapshot frees (section 3.2.2, and 3.3 for partial snapshots).

The page table of the snapshot is walked in parallel with that of the next one, pruned by commit numbers:
only what changed both between the previous snapshot and this one, and between this one and the next, is
visited, and all of it is freed. A partial snapshot is transparent for what it does not hold: then the one
before or after it counts, so the neighbours depend on the domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.pages.ids import CATALOG, NEVER, NO_DOMAIN, CommitNumber, DomainId
from strandline.pages.node import DomainEntry, NodeRef
from strandline.pages.page_table import Load, find
from strandline.pages.pointer import Freed, SnapshotRecord
from strandline.pages.walk import old_side, only_in, pages_only_in


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The states before and after, for one domain. `before` is the infinite past's number when there is
    none.
    """

    before: CommitNumber
    after: CommitNumber
    root: NodeRef | None


def freed_by_drop(
    load: Load, dropped: SnapshotRecord, others: Sequence[SnapshotRecord], current: SnapshotRecord
) -> list[Freed]:
    """The objects that only `dropped` names, of all permanent states (`others`, sorted) and the current
    one.
    """
    chain = [*others, current]
    freed = list(_upper_tier(load, dropped, neighbours(dropped, chain, NO_DOMAIN)))
    singled: set[DomainId] = {CATALOG}
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


def freed_for_good(load: Load, dropped: SnapshotRecord, sides: Neighbours) -> list[Freed]:
    """The objects of a full state that its neighbours, the same for all domains, do not name; parents
    first.
    """
    freed = list(_upper_tier(load, dropped, sides))
    return freed + list(_other_domains(load, dropped, sides, set()))


def neighbours(dropped: SnapshotRecord, chain: Sequence[SnapshotRecord], domain: DomainId) -> Neighbours:
    """The nearest states on both sides that hold a domain. Another one of the same commit counts as
    before.
    """
    holding = [one for one in chain if one.holds(domain)]
    before = max((one.commit for one in holding[:-1] if one.commit <= dropped.commit), default=NEVER)
    later = next((one for one in holding[:-1] if one.commit > dropped.commit), holding[-1])
    return Neighbours(before, later.commit, later.root)


def _upper_tier(load: Load, dropped: SnapshotRecord, sides: Neighbours) -> Iterator[Freed]:
    for found in old_side(load, dropped.root, sides.root, sides.before):
        if isinstance(found, NodeRef):
            yield Freed(sides.after, found.born, NO_DOMAIN, found.name)


def _one_domain(load: Load, dropped: SnapshotRecord, sides: Neighbours, domain: DomainId) -> Iterator[Freed]:
    old, new = (find(load, root, domain) for root in (dropped.root, sides.root))
    assert old is None or isinstance(old, DomainEntry)
    assert new is None or isinstance(new, DomainEntry)
    if old is not None:
        yield from _subtree(load, old, new, sides)


def _other_domains(load: Load, dropped: SnapshotRecord, sides: Neighbours, singled: set[DomainId]) -> Iterator[Freed]:
    for found in old_side(load, dropped.root, sides.root, sides.before):
        if isinstance(found, tuple):
            old, new = found
            assert isinstance(old, DomainEntry)
            assert new is None or isinstance(new, DomainEntry)
            if old.domain not in singled:
                yield from _subtree(load, old, new, sides)


def _subtree(load: Load, old: DomainEntry, new: DomainEntry | None, sides: Neighbours) -> Iterator[Freed]:
    for page in pages_only_in(old, new, sides.before):
        yield Freed(sides.after, page.born, old.domain, page.name)
    for ref in only_in(load, old.root, new.root if new is not None else None, sides.before):
        yield Freed(sides.after, ref.born, old.domain, ref.name)
