"""How a worker finds a store's storage: by its URL; a storage that only this process has, by a name that it gave it."""

from __future__ import annotations

import weakref
from functools import lru_cache

from strandline.pages.objects import Objects
from strandline.storage import LocalStorage, ObjectStorage, Storage, open_storage

_here: weakref.WeakValueDictionary[str, Storage] = weakref.WeakValueDictionary()


def reachable(storage: Storage) -> str:
    """The name by which workers find a storage; one in memory is found by this process alone."""
    if is_shared(storage):
        return storage.url
    name = f"{storage.url}{id(storage)}"
    _here[name] = storage
    return name


def is_shared(storage: Storage) -> bool:
    """Whether other processes can open it."""
    return isinstance(storage, (LocalStorage, ObjectStorage))


def objects_of(store: str) -> Objects:
    """The objects of the store that `reachable` named."""
    here = _here.get(store)
    return Objects(here) if here is not None else _opened(store)


@lru_cache(maxsize=16)
def _opened(url: str) -> Objects:
    return Objects(open_storage(url))
