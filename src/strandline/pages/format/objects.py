"""Reading and writing the immutable objects: nodes, pages, extension pages.

`Objects` reads, verifies and caches. `ObjectWriter` collects what one swap is going to need, writes it durably
before the swap (invariant 2), and can take it all back when the swap is not going to happen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Container, Mapping, Sequence

from strandline.errors import AlreadyExists, Damaged, NotFound, SnapshotExpired
from strandline.pages.format.envelope import Json, checksum, seal, unseal
from strandline.pages.format.node import Node, NodeRef, PageRef, decode_node, encode_node
from strandline.pages.format.pointer import Chunk, Pointer, decode_pointer
from strandline.pages.ids import UNBORN, CommitNumber, PhysicalPage, VersionObject
from strandline.storage import MemoryStorage, Recent, Storage, put_new

WRITE_AT_ONCE = 1 << 20
"""Pages from this size on are written when they are made; smaller ones wait, to be written together."""

Ref = NodeRef | PageRef | Chunk

Stem = Callable[[], str]
"""Gives the next name of this process's block."""


def _as_it_is(body: Json) -> Json:
    return body


def node_name(stem: str) -> PhysicalPage:
    """Where a node, or an extension page, of that stem is stored."""
    return PhysicalPage(f"nodes/{stem}")


def page_name(stem: str) -> PhysicalPage:
    """Where a page of that stem is stored."""
    return PhysicalPage(f"pages/{stem}.parquet")


def version_name(stem: str) -> VersionObject:
    """Where the pointer of a version of that stem is stored."""
    return VersionObject(f"versions/{stem}")


class Objects:
    """Verified reads of immutable objects, nodes and extension pages cached: what is kept answers only a reference
    with its own checksum, for another store may have used the same name.
    """

    def __init__(self, storage: Storage, cached: int = 8192) -> None:
        self.storage = storage
        self._kept: Recent[tuple[str, Node | Sequence[Json]]] = Recent(cached)

    def node(self, ref: NodeRef) -> Node:
        """The node that `ref` names."""
        cached = self._recall(ref)
        if cached is None:
            cached = decode_node(ref, self._get(ref.name))
            self.remember(ref, cached)
        if not isinstance(cached, Node):
            raise Damaged(f"{ref.name} is no node", doing=f"reading {ref.name}", hint="Run check")
        return cached

    def chunk(self, ref: Chunk) -> Sequence[Json]:
        """The records of an extension page."""
        cached = self._recall(ref)
        if cached is None:
            data = self._get(ref.name)
            records: Sequence[Json] = unseal("chunk", ref.name, data)
            if checksum(data) != ref.checksum:
                raise Damaged(f"{ref.name} is not the page that was named", doing=f"reading {ref.name}")
            self.remember(ref, records)
            return records
        if isinstance(cached, Node):
            raise Damaged(f"{ref.name} is no extension page", doing=f"reading {ref.name}", hint="Run check")
        return cached

    def page(self, ref: PageRef) -> bytes:
        """The verified bytes of a page."""
        data = self._get(ref.name)
        if len(data) != ref.size or checksum(data) != ref.checksum:
            raise Damaged(f"the checksum of {ref.name} does not hold", doing=f"reading {ref.name}", hint="Run check")
        return data

    def sealed(self, kind: str, ref: PageRef, decode: Callable[[Json], Json] = _as_it_is) -> Json:
        """The body of a page of the control plane's own, decoded and cached: treat it as immutable."""
        cached = self._recall(ref)
        if cached is None:
            cached = [decode(unseal(kind, ref.name, self.page(ref)))]
            self.remember(ref, cached)
        if isinstance(cached, Node):
            raise Damaged(f"{ref.name} is no {kind}", doing=f"reading {ref.name}", hint="Run check")
        return cached[0]

    def pointer(self, name: VersionObject) -> Pointer:
        """A version's pointer as it is stored now; `NotFound` when there is none."""
        return decode_pointer(name, self.storage.get(name))

    def remember(self, ref: Ref, value: Node | Sequence[Json]) -> None:
        """Keep a decoded object; the one used longest ago goes when there are too many."""
        self._kept.put(ref.name, (ref.checksum, value))

    def delete(self, name: PhysicalPage) -> None:
        """Delete an object that is proved unreachable."""
        self._kept.drop(name)
        self.storage.delete(name)

    def _recall(self, ref: Ref) -> Node | Sequence[Json] | None:
        kept = self._kept.get(ref.name)
        return None if kept is None or kept[0] != ref.checksum else kept[1]

    def _get(self, name: PhysicalPage) -> bytes:
        try:
            return self.storage.get(name)
        except NotFound as error:
            raise SnapshotExpired(
                f"{name} is gone: the state that it belongs to was freed",
                doing=f"reading {name}",
                hint="Name a snapshot to keep a state; check tells whether anything is damaged",
            ) from error


class ObjectWriter:
    """The new objects of one swap, or of one transaction."""

    def __init__(self, objects: Objects, stem: Stem) -> None:
        self._objects = objects
        self._stem = stem
        self.swap = ""
        """The id of the swap that these objects are for; a commit's own id, if it is one."""
        self._pending: dict[str, bytes] = {}
        self._nodes: dict[PhysicalPage, tuple[Ref, Node | Sequence[Json]]] = {}
        self.names: set[PhysicalPage] = set()
        self.taken: set[PhysicalPage] = set()
        """Every name that was used, also of objects taken back since."""
        self._pages: set[PhysicalPage] = set()
        self.unflushed: Collection[str] = ()

    def page(self, data: bytes, rows: int) -> PageRef:
        """A new page of rows; durable after `flush` at the latest. Several threads may call it."""
        name = page_name(self._stem())
        self._add(name, data)
        self._pages.add(name)
        return PageRef(name, UNBORN, len(data), checksum(data), rows)

    def sealed(self, kind: str, body: Json) -> PageRef:
        """A new page of the control plane's own: a directory page, or a domain's record."""
        name, data = node_name(self._stem()), seal(kind, body)
        self._add(name, data)
        self._pages.add(name)
        return PageRef(name, UNBORN, len(data), checksum(data), 0)

    def node(self, node: Node, born: CommitNumber) -> NodeRef:
        """A new node."""
        name, data = node_name(self._stem()), encode_node(node)
        self._add(name, data)
        ref = NodeRef(name, born, len(data), checksum(data), node.level, node.sums())
        self._nodes[name] = ref, node
        return ref

    def chunk(self, records: Sequence[Json]) -> Chunk:
        """A new extension page."""
        name, data = node_name(self._stem()), seal("chunk", list(records))
        self._add(name, data)
        numbers = [record[0] for record in records]
        ref = Chunk(name, len(data), checksum(data), len(records), min(numbers), max(numbers))
        self._nodes[name] = ref, records
        return ref

    def read(self, ref: PageRef) -> bytes:
        """A page, pending or stored."""
        pending = self._pending.get(ref.name)
        return pending if pending is not None else self._objects.page(ref)

    def read_sealed(self, kind: str, ref: PageRef, decode: Callable[[Json], Json] = _as_it_is) -> Json:
        """A page of the control plane's own, pending or stored."""
        pending = self._pending.get(ref.name)
        if pending is not None:
            return decode(unseal(kind, ref.name, pending))
        return self._objects.sealed(kind, ref, decode)

    def load(self, ref: NodeRef) -> Node:
        """A node, pending or stored."""
        _, pending = self._nodes.get(ref.name, (ref, None))
        return pending if isinstance(pending, Node) else self._objects.node(ref)

    def load_chunk(self, ref: Chunk) -> Sequence[Json]:
        """An extension page, pending or stored."""
        _, pending = self._nodes.get(ref.name, (ref, None))
        return pending if pending is not None and not isinstance(pending, Node) else self._objects.chunk(ref)

    def discard(self, name: PhysicalPage) -> None:
        """Take back one new page that nothing is going to name."""
        if self._pending.pop(name, None) is None:
            self._objects.delete(name)
        self.names.discard(name)

    def keep_pages(self, named: Container[PhysicalPage]) -> None:
        """Take back the new pages that were replaced again before anything could name them."""
        for name in [name for name in self._pages if name not in named]:
            self.discard(name)
            self._pages.discard(name)

    def flush(self, *, by_swap: bool = False) -> None:
        """Make everything durable, or leave that to the swap, which is told of what is `unflushed`. Nodes become cached
        only now: before, no reader may find them.
        """
        pending, self._pending = self._pending, {}
        if pending:
            self.unflushed = pending.keys() if by_swap else ()
            self._put(pending, for_swap=by_swap)
        for ref, value in self._nodes.values():
            self._objects.remember(ref, value)

    def abandon(self) -> None:
        """Delete everything: it was never visible (section 2: freeing the new versions)."""
        for name in self.names:
            self._objects.delete(name)
        self._pending.clear()
        self.names.clear()

    def _add(self, name: PhysicalPage, data: bytes) -> None:
        self.names.add(name)
        self.taken.add(name)
        self._pending[name] = data
        if len(data) >= WRITE_AT_ONCE:
            del self._pending[name]
            self._put({name: data})

    def _put(self, objects: Mapping[str, bytes], *, for_swap: bool = False) -> None:
        """Store objects. One that is there with our bytes is an answer that was lost; one with others is not ours, and
        never ours to delete.
        """
        foreign = put_new(self._objects.storage, objects, for_swap=for_swap)
        for name in foreign:
            self.names.discard(PhysicalPage(name))
        if foreign:
            raise AlreadyExists(f"{foreign[0]} exists already", doing=f"writing {foreign[0]}")


class PendingObjects(Objects):
    """The objects of a writer, stored or pending, for reading what it is about to name.

    Nothing may read past it from the storage, which does not have all of them: so its own is empty.
    """

    def __init__(self, writer: ObjectWriter) -> None:
        super().__init__(MemoryStorage())
        self._writer = writer

    def node(self, ref: NodeRef) -> Node:
        return self._writer.load(ref)

    def page(self, ref: PageRef) -> bytes:
        return self._writer.read(ref)

    def sealed(self, kind: str, ref: PageRef, decode: Callable[[Json], Json] = _as_it_is) -> Json:
        return self._writer.read_sealed(kind, ref, decode)


_previewed = itertools.count()


class PreviewWriter(ObjectWriter):
    """New objects over those of a writer, in memory alone: they are never stored, and their names are no object's."""

    def __init__(self, writer: ObjectWriter) -> None:
        super().__init__(PendingObjects(writer), lambda: f"preview.{next(_previewed)}")

    def _add(self, name: PhysicalPage, data: bytes) -> None:
        self._pending[name] = data
