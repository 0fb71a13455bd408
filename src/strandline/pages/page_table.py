"""The page table as a persistent array: finding, enumerating, and rewriting only changed paths (section 2).

A tree whose root has level n maps the numbers below 128 ** (n + 1). It grows by standing its old root below
a new one at slot 0, so a root may live on inside a deeper tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.pages.ids import DomainId
from strandline.pages.node import SLOT_BITS, SLOTS, DomainEntry, Entry, Item, Node, NodeRef

Load = Callable[[NodeRef], Node]
Write = Callable[[Node], NodeRef]
Leaf = TypeVar("Leaf", Entry, DomainEntry)


@dataclass(slots=True)
class Rewritten:
    """A new root, and the nodes of the old tree that the new one does not name."""

    root: NodeRef | None
    replaced: list[NodeRef] = field(default_factory=list)


def find(load: Load, root: NodeRef | None, number: int) -> Item | None:
    """What stands at `number` in the leaves, or None."""
    if root is None or number >> (SLOT_BITS * (root.level + 1)):
        return None
    while True:
        node = load(root)
        item = node.slots.get((number >> (SLOT_BITS * node.level)) & (SLOTS - 1))
        if node.level == 0 or item is None:
            return item
        assert isinstance(item, NodeRef)
        root = item


def items(load: Load, root: NodeRef | None, want: Callable[[NodeRef], bool] | None = None) -> Iterator[Item]:
    """Everything in the leaves, by number; subtrees that `want` refuses are not read."""
    if root is None or (want is not None and not want(root)):
        return
    node = load(root)
    for _, item in sorted(node.slots.items()):
        if isinstance(item, NodeRef):
            yield from items(load, item, want)
        else:
            yield item


def rewrite(load: Load, root: NodeRef | None, domain: DomainId, changes: Mapping[int, Item], write: Write) -> Rewritten:
    """The tree with `changes` made: new nodes along the changed paths, everything else shared."""
    result = Rewritten(root)
    if not changes:
        return result
    level = root.level if root is not None else 0
    while max(changes) >> (SLOT_BITS * (level + 1)):
        level += 1
    result.root = _rewrite(_Place(load, write, domain, result.replaced), root, level, 0, changes)
    return result


@dataclass(frozen=True, slots=True)
class _Place:
    load: Load
    write: Write
    domain: DomainId
    replaced: list[NodeRef]


def _rewrite(place: _Place, ref: NodeRef | None, level: int, first: int, changes: Mapping[int, Item]) -> NodeRef:
    if ref is not None and ref.level < level:
        slots: dict[int, Item] = {0: ref}
    elif ref is not None:
        slots = dict(place.load(ref).slots)
        place.replaced.append(ref)
    else:
        slots = {}
    if level == 0:
        slots.update((number - first, item) for number, item in changes.items())
    else:
        shift = SLOT_BITS * level
        parts: dict[int, dict[int, Item]] = {}
        for number, item in changes.items():
            parts.setdefault((number - first) >> shift, {})[number] = item
        for slot, part in parts.items():
            child = slots.get(slot)
            assert child is None or isinstance(child, NodeRef)
            slots[slot] = _rewrite(place, child, level - 1, first + (slot << shift), part)
    return place.write(Node(place.domain, level, first, slots))
