"""A side of a comparison on the command line: a path, or `STORE#NAME`, a table or what-if of a store."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from strandline.cli.stores import found, storage_of, tables_of

if TYPE_CHECKING:
    from strandline.store import Store


def open_side(text: str | None, stack: ExitStack) -> Any:
    """What `sl.diff` takes for a side. `STORE#NAME@STATE` is a table or what-if as it was at a state."""
    if text is None or not _names_a_relation(text):
        return text
    from strandline.pages import parse_at

    path, _, name = text.rpartition("#")
    storage_of(path)
    store = stack.enter_context(tables_of(path))
    name, _, state = name.partition("@")
    at = parse_at(store.pages, state or None)
    found(_relations(store, at), name, "table")
    return store.named(name, at)


def _relations(store: Store, at: Any) -> list[str]:
    from strandline.whatif import definitions

    with store.state(at) as view:
        return [*store.tables(at=at), *definitions(view, store.cache)]


def _names_a_relation(text: str) -> bool:
    """A file may have a # in its name; a store is a folder with a MASTER, or at a URL."""
    path, mark, name = text.rpartition("#")
    if not mark or not path or not name or os.path.exists(text):
        return False
    return "://" in path or os.path.isfile(os.path.join(path, "MASTER"))
