"""Creating and opening stores: by path or URL, or on any storage. It says what takes part in their commits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from strandline.errors import NotFound
from strandline.pages import (
    MAIN,
    Environment,
    Installer,
    PageStore,
    StateEdit,
    Transaction,
    create_store,
    open_store,
)
from strandline.storage import Storage, open_storage
from strandline.store.store import Store
from strandline.tables import SMALL_WRITES, VIEWS, Limits, PageCache, TableInstaller, TableValidator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ViewsOfStore:
    """What views have to do with a commit, a `pages.Deriver`. A store without any loads nothing of them."""

    def __init__(self, installer: Installer, cache: PageCache) -> None:
        self._installer = installer
        self._cache = cache

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        made = any(table.name == VIEWS for table in edit.domains.values())
        if made or edit.view.find_domain(VIEWS) is not None:
            from strandline.views import ViewDeriver

            ViewDeriver(self._installer, self._cache).derive(edit, transactions)


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
    environment: Environment | None = None,
) -> Store:
    """A new store on any storage; `limits` says how large its pages grow under small writes."""
    return _opened(create_store, storage, session, limits, environment)


def open_on(
    storage: Storage,
    *,
    session: SparkSession | None = None,
    limits: Limits = SMALL_WRITES,
    environment: Environment | None = None,
) -> Store:
    """An existing store on any storage."""
    try:
        return _opened(open_store, storage, session, limits, environment)
    except NotFound:
        raise NotFound(
            f"there is no store at {storage.url}", doing="opening a store", hint="Create one with create()"
        ) from None


def _opened(
    how: Callable[..., PageStore],
    storage: Storage,
    session: SparkSession | None,
    limits: Limits,
    environment: Environment | None,
) -> Store:
    cache = PageCache()
    installer = TableInstaller(cache, limits)
    pages = how(storage, installer, TableValidator(cache), environment, [ViewsOfStore(installer, cache)])
    if environment is None:  # a caller that brings its own clock decides when the store beats
        pages.start_heart()
    return Store(pages.version(MAIN), cache, session)
