# mypy: disable-error-code="untyped-decorator"
"""The parts by themselves: free list, directory, page table, rosters, envelope, against plain Python."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.pages.format.directory import FULL, DirectoryPages, Leafage, delete, floor, insert, scan
from strandline.pages.format.envelope import checksum
from strandline.pages.format.node import Entry, Node, NodeRef, PageRef, decode_node, encode_node
from strandline.pages.format.page_table import FreeList, differences, find, items, only_in, rewrite
from strandline.pages.format.pointer import CHUNK, INLINE, Chunk, ChunkedList
from strandline.pages.ids import NEVER, CommitNumber, LogicalPage, PhysicalPage, TableId

DOMAIN = TableId(1)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["get", "put", "copy", "free"])), max_size=60))
def test_copies_of_a_free_list_are_independent(steps: list[tuple[int, str]]) -> None:
    lists, models = [FreeList(range(5))], [list(range(5))]
    for number, (which, what) in enumerate(steps):
        which %= len(lists)
        if what == "get":
            assert lists[which].get() == (models[which].pop() if models[which] else None)
        elif what == "put":
            lists[which].put(100 + number)
            models[which].append(100 + number)
        elif what == "copy":
            lists.append(lists[which].copy())
            models.append(list(models[which]))
        elif len(lists) > 1:
            lists.pop(which).free()
            models.pop(which)
    assert [list(one)[::-1] for one in lists] == models


def test_freeing_a_list_frees_exactly_the_cells_that_nobody_shares() -> None:
    original = FreeList([1, 2, 3])
    copy = original.copy()
    assert copy.get() == 3
    copy.put(7)
    copy.put(8)
    assert copy.free() == 2
    assert list(original) == [3, 2, 1]
    assert original.get() == 3
    assert original.free() == 2


class Pages(dict[LogicalPage, Leafage]):
    """Directory pages in a dictionary."""

    def pages(self) -> DirectoryPages:
        def add(page: Leafage) -> LogicalPage:
            number = LogicalPage(max(self, default=0) + 1)
            self[number] = page
            return number

        return DirectoryPages(self.get, self.__setitem__, add, self.__delitem__)


@settings(max_examples=examples(15), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(10, 3 * FULL))
def test_a_directory_finds_what_a_sorted_list_finds(chance: object, size: int) -> None:
    import random

    assert isinstance(chance, random.Random)
    store, model = Pages(), {b"": 0}
    insert(store.pages(), b"", 0)
    for number in range(1, size):
        key = b"%06d" % chance.randrange(10**6)
        insert(store.pages(), key, number)
        model[key] = number
        if chance.random() < 0.4:
            gone = chance.choice([key for key in model if key])
            delete(store.pages(), gone)
            del model[gone]
        if not any(model.keys() - {b""}):
            continue
    for key in [b"%06d" % chance.randrange(10**6) for _ in range(50)]:
        expected = max(one for one in model if one <= key)
        assert floor(store.get, key) == (expected, model[expected])
    assert list(scan(store.get)) == sorted(model.items())
    low, high = sorted(b"%06d" % chance.randrange(10**6) for _ in range(2))
    first = max(one for one in model if one <= low)
    assert list(scan(store.get, low, high)) == sorted((k, v) for k, v in model.items() if first <= k <= high)


def test_an_emptied_directory_can_be_filled_again() -> None:
    store = Pages()
    for number in range(3 * FULL):
        insert(store.pages(), b"%06d" % number, number)
    for number in range(3 * FULL):
        delete(store.pages(), b"%06d" % number)
    assert floor(store.get, b"5") is None
    assert len(store) == 1
    insert(store.pages(), b"a", 1)
    assert floor(store.get, b"b") == (b"a", 1)


class Nodes(dict[str, Node]):
    """Nodes in a dictionary."""

    def writer(self, commit: int) -> object:
        def write(node: Node) -> NodeRef:
            data = encode_node(node)
            ref = NodeRef(
                PhysicalPage(f"n{len(self)}"),
                CommitNumber(commit),
                len(data),
                checksum(data),
                node.level,
                node.sums(),
            )
            assert decode_node(ref, data) == node
            self[ref.name] = node
            return ref

        return write

    def load(self, ref: NodeRef) -> Node:
        return self[ref.name]


def entry(number: int, commit: int) -> Entry:
    page = PageRef(PhysicalPage(f"p{number}-{commit}"), CommitNumber(commit), 10, "", 1)
    return Entry(LogicalPage(number), CommitNumber(commit), page, least=b"\x00\xff")


NUMBERS = st.one_of(st.integers(0, 130), st.integers(0, 20_000), st.integers(0, 2_000_000))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sets(NUMBERS, max_size=6), min_size=1, max_size=6))
def test_trees_of_any_depth_agree_with_dictionaries(commits: list[set[int]]) -> None:
    nodes = Nodes()
    roots: list[NodeRef | None] = [None]
    models: list[dict[int, Entry]] = [{}]
    names: list[set[str]] = [set()]
    for commit, numbers in enumerate(commits, start=1):
        changes = {number: entry(number, commit) for number in numbers}
        rewritten = rewrite(nodes.load, roots[-1], DOMAIN, changes, nodes.writer(commit))  # type: ignore[arg-type]
        roots.append(rewritten.root)
        models.append({**models[-1], **changes})
        names.append(_names(nodes, rewritten.root))
        assert {ref.name for ref in rewritten.replaced} == {n for n in names[-2] - names[-1] if n[0] == "n"}
    for root, model in zip(roots, models, strict=True):
        assert list(items(nodes.load, root)) == [model[number] for number in sorted(model)]
        assert all(find(nodes.load, root, number) == model.get(number) for number in [*model, 0, 127, 128, 10**6])
    for old in range(len(roots)):
        for new in range(old, len(roots)):
            found = {
                (one or other).number: (one, other)  # type: ignore[union-attr]
                for one, other in differences((nodes.load, nodes.load), roots[old], roots[new])
            }
            keys = models[old].keys() | models[new].keys()
            pairs = {n: (models[old].get(n), models[new].get(n)) for n in keys}
            assert found == {n: pair for n, pair in pairs.items() if pair[0] != pair[1]}
            lost = {ref.name for ref in only_in(nodes.load, roots[old], roots[new], NEVER)}
            assert lost == names[old] - names[new]


def _names(nodes: Nodes, root: NodeRef | None) -> set[str]:
    return {ref.name for ref in only_in(nodes.load, root, None, NEVER)}


def test_a_million_pages_need_three_levels() -> None:
    nodes = Nodes()
    last = 1_000_000 - 1
    root = rewrite(nodes.load, None, DOMAIN, {0: entry(0, 1), last: entry(last, 1)}, nodes.writer(1)).root  # type: ignore[arg-type]
    assert root is not None
    assert root.level + 1 == 3


def test_a_roster_spills_its_oldest_records_to_extension_pages() -> None:
    chunks: dict[str, list[object]] = {}

    def write(records: object) -> Chunk:
        rows = list(records)  # type: ignore[call-overload]
        name = PhysicalPage(f"c{len(chunks)}")
        chunks[name] = rows
        return Chunk(name, 0, "", len(rows), rows[0][0], rows[-1][0])

    roster = ChunkedList()
    for number in range(1000):
        roster = roster.extended([[number]], write)
        assert len(roster.inline) <= INLINE
    roster = roster.extended([[number] for number in range(1000, 5000)], write)
    assert all(chunk.count <= CHUNK for chunk in roster.chunks)
    load = lambda chunk: chunks[chunk.name]  # noqa: E731
    assert [row[0] for row in roster.records(load)] == list(range(5000))
    assert len(roster) == 5000
    shorter, retired = roster.without(lambda row: row[0] == 3, load, write)
    assert [row[0] for row in shorter.records(load)] == [n for n in range(5000) if n != 3]
    assert len(retired) == 1
    assert ChunkedList.from_json(shorter.to_json()) == shorter
