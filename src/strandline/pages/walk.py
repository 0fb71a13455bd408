"""Walking two page tables in parallel, synchronously by logical number (section 3.2.2).

Shared subtrees are recognised by physical name and skipped: a physical page stands in one logical place
(invariant 5), so what differs at one place is in neither tree anywhere else. The trees may differ in depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.pages.ids import CommitNumber
from strandline.pages.node import Item, Node, NodeRef, PageRef, item_pages
from strandline.pages.page_table import Load

OldSide = NodeRef | tuple[Item, Item | None]


@dataclass(slots=True)
class Visits:
    """Counts the nodes that a walk read."""

    nodes: int = 0

    def counting(self, load: Load) -> Load:
        """`load`, counted."""

        def counted(ref: NodeRef) -> Node:
            self.nodes += 1
            return load(ref)

        return counted


def old_side(load: Load, old: NodeRef | None, new: NodeRef | None, after: CommitNumber) -> Iterator[OldSide]:
    """Each node of `old` that `new` lacks and that was born after `after` (exclusive), and its leaves' items.

    A leaf's item comes with what `new` has in its place. Nodes of `old` last rewritten at or before `after`
    are not entered: nothing below them is younger.
    """
    if old is None or old.born <= after:
        return
    while new is not None and new.level > old.level:
        new = _child(load(new).slots, 0)
    if new is not None and new.name == old.name:
        return
    yield old
    left = load(old).slots
    right = _slots_at(load, new, old.level)
    for slot, item in sorted(left.items()):
        if isinstance(item, NodeRef):
            yield from old_side(load, item, _child(right, slot), after)
        else:
            yield item, right.get(slot)


def only_in(load: Load, old: NodeRef | None, new: NodeRef | None, after: CommitNumber) -> Iterator[NodeRef | PageRef]:
    """Nodes and pages of `old` that `new` does not name and that were born after `after` (exclusive)."""
    for found in old_side(load, old, new, after):
        if isinstance(found, NodeRef):
            yield found
        else:
            yield from pages_only_in(*found, after)


def pages_only_in(item: Item, other: Item | None, after: CommitNumber) -> Iterator[PageRef]:
    """Pages of one entry that the entry in its place does not name and that were born after `after`."""
    kept = {page.name for page in item_pages(other)} if other is not None else set()
    return (page for page in item_pages(item) if page.born > after and page.name not in kept)


def differences(load: Load, old: NodeRef | None, new: NodeRef | None) -> Iterator[tuple[Item | None, Item | None]]:
    """Pairs of leaf items, old and new, where two trees differ; None where a tree has nothing."""
    if old is not None and new is not None and old.name == new.name:
        return
    level = max(ref.level for ref in (old, new) if ref is not None) if old or new else 0
    left, right = (_slots_at(load, ref, level) for ref in (old, new))
    for slot in sorted(left.keys() | right.keys()):
        one, other = left.get(slot), right.get(slot)
        if isinstance(one, NodeRef) or isinstance(other, NodeRef):
            yield from differences(load, _child(left, slot), _child(right, slot))
        elif one != other:
            yield one, other


def _slots_at(load: Load, ref: NodeRef | None, level: int) -> Mapping[int, Item]:
    if ref is None:
        return {}
    return load(ref).slots if ref.level == level else {0: ref}


def _child(slots: Mapping[int, Item], slot: int) -> NodeRef | None:
    item = slots.get(slot)
    assert item is None or isinstance(item, NodeRef)
    return item
