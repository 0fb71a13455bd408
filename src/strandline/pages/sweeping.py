"""Deleting what was written and never named, found from blocks of names and never by listing (invariant
8).
"""

from __future__ import annotations

from collections.abc import Container

from strandline.errors import NotFound
from strandline.pages.ids import PhysicalPage
from strandline.pages.objects import Objects, node_name, page_name, version_name
from strandline.pages.roll import Block


def sweep_block(objects: Objects, block: Block, keep: Container[PhysicalPage]) -> int:
    """Delete every object of a block that is not to be kept; tells how many names were tried.

    Nobody may be writing names of the block any more: its process ended the transaction, or was fenced. A
    run is filled densely from its start, so looking ends at its first absent page.
    """
    tried = 0
    for start in range(0, block.count, block.run):
        end = min(start + block.run, block.count)
        if block.run > 1:
            end = next((i for i in range(start, end) if not _exists(objects, page_name(block.stem(i)))), end)
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


def _exists(objects: Objects, name: PhysicalPage) -> bool:
    try:
        objects.storage.get_range(name, 0, 1)
    except NotFound:
        return False
    return True
