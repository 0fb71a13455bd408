"""Page-table pages, called nodes: immutable, checksummed, 128 slots each (section 2 and figure 1).

The page table has two tiers, both trees of the same nodes indexed by number:

- the upper tier is indexed by domain number; its leaves hold one `TableEntry` for each domain (table);
- below each domain stands its own page table, indexed by logical page number; its leaves hold one `Entry` for each
  logical page. 128 slots in three levels hold 2,097,152 pages.

So a commit that touches one table rewrites the path to its entry and nothing of other tables, and a partial snapshot is
a set of subtrees. Every reference carries the number of the commit that made it (section 3.2.2), sums over what it
refers to, and the checksum of what it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.errors import Damaged
from strandline.pages.format.envelope import Json, checksum, seal, unseal
from strandline.pages.ids import CommitNumber, LogicalPage, PhysicalPage, TableId

SLOT_BITS = 7
SLOTS = 1 << SLOT_BITS


@dataclass(frozen=True, slots=True)
class PageRef:
    """A physical page. `born` is the commit that installed it, `UNBORN` until then."""

    name: PhysicalPage
    born: CommitNumber
    size: int
    checksum: str
    rows: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A page-table entry. Without a base page it is null: the page was deleted by the commit `changed`.

    `least` and `greatest` (both inclusive) bound the keys on the page, `rows` counts what a reader finds there, overlay
    applied.
    """

    number: LogicalPage
    changed: CommitNumber
    base: PageRef | None
    overlay: PageRef | None = None
    rows: int = 0
    least: bytes | None = None
    greatest: bytes | None = None
    directory: bool = False

    @property
    def pages(self) -> tuple[PageRef, ...]:
        """The physical pages that stand at this logical place."""
        return tuple(page for page in (self.base, self.overlay) if page is not None)

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(page.size for page in self.pages)


@dataclass(frozen=True, slots=True)
class Sums:
    """What a subtree holds: live data pages, null entries, rows, and bytes of physical pages."""

    pages: int = 0
    free: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.pages + other.pages, self.free + other.free, self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node. `born` is the commit that last rewrote it; a leaf has level 0."""

    name: PhysicalPage
    born: CommitNumber
    size: int
    checksum: str
    level: int
    sums: Sums


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One domain. Without a record it was dropped by the commit `changed`; its number is not used again.

    `record` names the page with the tables' own description (schema, key). `next_page` is the least logical
    number never used. `sequence` is a counter for the tables: the next row number. In the catalog's own
    entry it is the next domain number.
    """

    domain: TableId
    changed: CommitNumber
    name: str
    record: PageRef | None
    root: NodeRef | None
    next_page: int = 0
    sequence: int = 0

    @property
    def sums(self) -> Sums:
        """What its page table holds."""
        return Sums() if self.root is None else self.root.sums


Item = Entry | TableEntry | NodeRef


def page_entry(item: Item | None) -> Entry | None:
    """What a domain's page table holds at a place."""
    if item is None or isinstance(item, Entry):
        return item
    raise Damaged("a page table holds something else than pages", doing="reading a page table", hint="Run check")


def table_entry(item: Item | None) -> TableEntry | None:
    """What the upper tier holds at a place."""
    if item is None or isinstance(item, TableEntry):
        return item
    raise Damaged("the upper tier holds something else than tables", doing="reading a page table", hint="Run check")


@dataclass(frozen=True, slots=True)
class Node:
    """`slots` maps a slot number to what stands there. Treated as immutable, and shared by all threads."""

    domain: TableId
    level: int
    first: int
    slots: Mapping[int, Item]

    def sums(self) -> Sums:
        """The sums over all slots."""
        total = Sums()
        for item in self.slots.values():
            total = total + item_sums(item)
        return total


def item_sums(item: Item) -> Sums:
    """What one slot contributes to the sums of its node."""
    if isinstance(item, NodeRef):
        return item.sums
    if isinstance(item, TableEntry):
        record = item.record.size if item.record is not None else 0
        return Sums(bytes=record) + item.sums
    if item.base is None:
        return Sums(free=1)
    return Sums(bytes=item.size) if item.directory else Sums(pages=1, rows=item.rows, bytes=item.size)


def item_pages(item: Item) -> tuple[PageRef, ...]:
    """The physical pages that an entry of a leaf names."""
    if isinstance(item, TableEntry):
        return (item.record,) if item.record is not None else ()
    return item.pages if isinstance(item, Entry) else ()


def encode_node(node: Node) -> bytes:
    """The node as stored."""
    slots = [[slot, *encode_item(item)] for slot, item in sorted(node.slots.items())]
    return seal("node", [node.domain, node.level, node.first, slots])


def decode_node(ref: NodeRef, data: bytes) -> Node:
    """The node that `ref` names; `Damaged` when the bytes are another node's."""
    body = unseal("node", ref.name, data)
    if checksum(data) != ref.checksum:
        raise Damaged(
            f"{ref.name} is not the node that its parent names", doing=f"reading {ref.name}", hint="Run check"
        )
    domain, level, first, slots = body
    decode = _DECODERS[0 if level else (1 if domain >= 0 else 2)]
    return Node(domain, level, first, {row[0]: decode(first + row[0], row) for row in slots})


def encode_ref(ref: NodeRef | None) -> Json:
    """A node reference as JSON."""
    if ref is None:
        return None
    sums = ref.sums
    return [
        ref.name, ref.born, ref.size, ref.checksum, ref.level, sums.pages, sums.free, sums.rows, sums.bytes
    ]  # fmt: skip


def decode_ref(row: Json) -> NodeRef | None:
    """The reverse of `encode_ref`."""
    return None if row is None else NodeRef(row[0], row[1], row[2], row[3], row[4], Sums(*row[5:9]))


def encode_page_ref(page: PageRef | None) -> Json:
    """A page reference as JSON."""
    return None if page is None else [page.name, page.born, page.size, page.checksum, page.rows]


def decode_page_ref(row: Json) -> PageRef | None:
    """The reverse of `encode_page_ref`."""
    return None if row is None else PageRef(*row)


def _key_text(key: bytes | None) -> str | None:
    """Key bytes as JSON text."""
    return None if key is None else key.decode("latin-1")


def _key_of(text: str | None) -> bytes | None:
    """The reverse of `_key_text`."""
    return None if text is None else text.encode("latin-1")


def encode_item(item: Item) -> list[Json]:
    """What a slot holds; its row in a node, and in a dump, begins with its number."""
    if isinstance(item, NodeRef):
        return [encode_ref(item)]
    if isinstance(item, TableEntry):
        return [
            item.changed, item.name, encode_page_ref(item.record), encode_ref(item.root), item.next_page,
            item.sequence
        ]  # fmt: skip
    return [
        item.changed, encode_page_ref(item.base), encode_page_ref(item.overlay), item.rows,
        _key_text(item.least), _key_text(item.greatest), int(item.directory), None,
    ]  # fmt: skip


def _child(_number: int, row: Json) -> Item:
    ref = decode_ref(row[1])
    if ref is None:
        raise Damaged("an inner node of the page table names no node", doing="reading a page table")
    return ref


def decode_entry(number: int, row: Json) -> Entry:
    """An entry from its row."""
    return Entry(
        LogicalPage(number), row[1], decode_page_ref(row[2]), decode_page_ref(row[3]), row[4],
        _key_of(row[5]), _key_of(row[6]), bool(row[7]),
    )  # fmt: skip


def decode_table_entry(number: int, row: Json) -> TableEntry:
    """A table's entry from its row."""
    return TableEntry(TableId(number), row[1], row[2], decode_page_ref(row[3]), decode_ref(row[4]), row[5], row[6])


_DECODERS = (_child, decode_entry, decode_table_entry)
