"""Where difference tables come into a commit: after the tables' own changes, before the pointer is swapped.

A store without eagerly kept views pays one look into the catalog for each commit, and loads nothing.

Creating and opening stores: by path or URL, or on any storage.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.errors import NotFound
from strandline.pages import (
    MAIN,
    Environment,
    Installer,
    PageStore,
    RowChange,
    StateEdit,
    TableEdit,
    Transaction,
    create_store,
    open_store,
)
from strandline.storage import Storage, open_storage
from strandline.store.reader import Shared
from strandline.store.store import Store
from strandline.tables import SEGMENTS, SMALL_WRITES, Limits, PageCache, TableInstaller, TableValidator
from strandline.whatif import DatingInstaller

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DerivingInstaller:
    """An installer that hands everything on, and then adds what eager views make of it."""

    def __init__(self, inner: Installer, cache: PageCache) -> None:
        self._inner = inner
        self._cache = cache

    def install(self, edit: TableEdit, changes: Sequence[RowChange]) -> None:
        self._inner.install(edit, changes)

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        made = any(one.name == SEGMENTS for one in edit.domains.values())
        if made or edit.view.find_domain(SEGMENTS) is not None:
            from strandline.views import derive

            derive(edit, self._inner, self._cache, transactions)


def create(path: str | os.PathLike[str], *, session: SparkSession | None = None) -> Store:
    """A new, empty store in a folder or at an `s3://bucket/prefix` URL."""
    return create_on(open_storage(path), session=session)


def open(path: str | os.PathLike[str], *, session: SparkSession | None = None) -> Store:
    """An existing store."""
    return open_on(open_storage(path), session=session)


def create_on(
    storage: Storage,
    *,
    session: SparkSession | None = None,
    limits: Limits = SMALL_WRITES,
    surroundings: Environment | None = None,
) -> Store:
    """A new store on any storage; `limits` says how large its pages grow under small writes."""
    cache = PageCache()
    installer = DerivingInstaller(DatingInstaller(TableInstaller(cache, limits)), cache)
    pages = create_store(storage, installer, TableValidator(cache), surroundings)
    return _started(pages, cache, session, beats=surroundings is None)


def open_on(
    storage: Storage,
    *,
    session: SparkSession | None = None,
    limits: Limits = SMALL_WRITES,
    surroundings: Environment | None = None,
) -> Store:
    """An existing store on any storage."""
    cache = PageCache()
    try:
        installer = DerivingInstaller(DatingInstaller(TableInstaller(cache, limits)), cache)
        pages = open_store(storage, installer, TableValidator(cache), surroundings)
    except NotFound:
        raise NotFound(
            f"there is no store at {storage.url}", doing="Opening a store", hint="Create one with create()"
        ) from None
    return _started(pages, cache, session, beats=surroundings is None)


def _started(pages: PageStore, cache: PageCache, session: SparkSession | None, *, beats: bool) -> Store:
    # Whoever brings a clock of his own decides himself when it beats.
    if beats:
        pages.start_heart()
    return Store(Shared(pages, cache, session), pages.version(MAIN))
