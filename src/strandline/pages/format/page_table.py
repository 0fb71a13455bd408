"""The page table: a persistent array from logical numbers to what stands there (section 2).

A tree whose root has level n maps the numbers below 128 ** (n + 1). `rewrite` makes new nodes along the changed paths
and shares all others with the old tree. A tree grows by putting its old root below a new one at slot 0, so a root may
live on inside a deeper tree.

Two trees, which may differ in depth, are compared by walking them in parallel by logical number (section 3.2.2). A
subtree that both share is recognised by its physical name and skipped. This is enough, because a physical page stands
in one logical place (invariant 5): what differs at one place is in neither tree anywhere else.

`FreeList` holds the logical numbers that are free, with lazy reference counts (section 3.4.1, figure 4). Each snapshot
that may be modified has its own list, and copies share what they have in common. Get, put and copy take constant time;
free is linear in what is not shared.

Nothing here reads or writes storage by itself, or decides what may be deleted: callers pass in how nodes are loaded
and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from strandline.errors import Damaged
from strandline.pages.format.node import SLOT_BITS, SLOTS, Item, Node, NodeRef, PageRef, item_pages
from strandline.pages.ids import CommitNumber, TableId

LoadNode = Callable[[NodeRef], Node]
WriteNode = Callable[[Node], NodeRef]


@dataclass(slots=True)
class Rewritten:
    """A new root, and the nodes of the old tree that the new one does not name."""

    root: NodeRef | None
    replaced: list[NodeRef] = field(default_factory=list)


def find(load: LoadNode, root: NodeRef | None, number: int) -> Item | None:
    """What stands at `number` in the leaves, or None."""
    if root is None or number >> (SLOT_BITS * (root.level + 1)):
        return None
    while True:
        node = load(root)
        item = node.slots.get((number >> (SLOT_BITS * node.level)) & (SLOTS - 1))
        if node.level == 0 or item is None:
            return item
        root = _node_ref(item)


def items(load: LoadNode, root: NodeRef | None, want: Callable[[NodeRef], bool] | None = None) -> Iterator[Item]:
    """Everything in the leaves, by number; subtrees that `want` refuses are not read."""
    if root is None or (want is not None and not want(root)):
        return
    node = load(root)
    for _, item in sorted(node.slots.items()):
        if isinstance(item, NodeRef):
            yield from items(load, item, want)
        else:
            yield item


def rewrite(
    load: LoadNode, root: NodeRef | None, domain: TableId, changes: Mapping[int, Item], write: WriteNode
) -> Rewritten:
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
    load: LoadNode
    write: WriteNode
    domain: TableId
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
            slots[slot] = _rewrite(place, _child(slots, slot), level - 1, first + (slot << shift), part)
    return place.write(Node(place.domain, level, first, slots))


OldSide = NodeRef | tuple[Item, Item | None]


@dataclass(slots=True)
class Visits:
    """Counts the nodes that a walk read."""

    nodes: int = 0

    def counting(self, load: LoadNode) -> LoadNode:
        """`load`, counted."""

        def counted(ref: NodeRef) -> Node:
            self.nodes += 1
            return load(ref)

        return counted


def old_side(load: LoadNode, old: NodeRef | None, new: NodeRef | None, after: CommitNumber) -> Iterator[OldSide]:
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


def only_in(
    load: LoadNode, old: NodeRef | None, new: NodeRef | None, after: CommitNumber
) -> Iterator[NodeRef | PageRef]:
    """Nodes and pages of `old` that `new` does not name and that were born after `after` (exclusive)."""
    for item in old_side(load, old, new, after):
        if isinstance(item, NodeRef):
            yield item
        else:
            yield from pages_only_in(*item, after)


def pages_only_in(item: Item, other: Item | None, after: CommitNumber) -> Iterator[PageRef]:
    """Pages of one entry that the entry in its place does not name and that were born after `after`."""
    kept = {page.name for page in item_pages(other)} if other is not None else set()
    return (page for page in item_pages(item) if page.born > after and page.name not in kept)


def differences(
    loads: tuple[LoadNode, LoadNode], old: NodeRef | None, new: NodeRef | None
) -> Iterator[tuple[Item | None, Item | None]]:
    """Pairs of leaf items, old and new, where two trees differ; None where a tree has nothing. Each has its loader."""
    if old is not None and new is not None and old.name == new.name:
        return
    level = max(ref.level for ref in (old, new) if ref is not None) if old or new else 0
    left, right = (_slots_at(load, ref, level) for load, ref in zip(loads, (old, new), strict=True))
    for slot in sorted(left.keys() | right.keys()):
        one, other = left.get(slot), right.get(slot)
        if isinstance(one, NodeRef) or isinstance(other, NodeRef):
            yield from differences(loads, _child(left, slot), _child(right, slot))
        elif one != other:
            yield one, other


def _slots_at(load: LoadNode, ref: NodeRef | None, level: int) -> Mapping[int, Item]:
    if ref is None:
        return {}
    return load(ref).slots if ref.level == level else {0: ref}


def _child(slots: Mapping[int, Item], slot: int) -> NodeRef | None:
    item = slots.get(slot)
    return None if item is None else _node_ref(item)


def _node_ref(item: Item) -> NodeRef:
    """What stands in an inner node is a node."""
    if not isinstance(item, NodeRef):
        raise Damaged("an inner node of the page table holds what only a leaf may", doing="reading a page table")
    return item


@dataclass(slots=True)
class _Cell:
    number: int
    next: _Cell | None
    references: int = 1


class FreeList:
    """One copy of the list: an independent current pointer into shared cells."""

    __slots__ = ("_current",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._current: _Cell | None = None
        for number in numbers:
            self.put(number)

    def get(self) -> int | None:
        """Take a number, or None when there is none."""
        cell = self._current
        if cell is None:
            return None
        self._current = cell.next
        cell.references -= 1
        # A cell that dies hands its reference to the next one on; a shared one stays, and we are one
        # pointer more.
        if cell.references and cell.next is not None:
            cell.next.references += 1
        return cell.number

    def put(self, number: int) -> None:
        """Add a number; the new cell takes over our reference to the old current one."""
        self._current = _Cell(number, self._current)

    def copy(self) -> FreeList:
        """An independent copy, sharing all cells."""
        twin = FreeList()
        twin._current = self._current
        if self._current is not None:
            self._current.references += 1
        return twin

    def free(self) -> int:
        """Give up the whole copy; tells how many cells died with it."""
        cell, died = self._current, 0
        self._current = None
        while cell is not None:
            cell.references -= 1
            if cell.references:
                break
            died += 1
            cell = cell.next
        return died

    def __iter__(self) -> Iterator[int]:
        cell = self._current
        while cell is not None:
            yield cell.number
            cell = cell.next
