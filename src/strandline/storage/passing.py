"""Reading and writing large things once, as dumps do, without pushing what others use out of the machine's cache.

Only local files have such a cache; elsewhere these are the plain operations.
"""

from __future__ import annotations

from strandline.storage.local import LocalStorage
from strandline.storage.seam import Storage


def get_in_passing(storage: Storage, name: str) -> bytes:
    """`get`; what was not cached before is not cached afterwards."""
    return storage.get_in_passing(name) if isinstance(storage, LocalStorage) else storage.get(name)


def put_in_passing(storage: Storage, name: str, value: bytes) -> None:
    """`put_if_absent`; the value does not stay cached."""
    storage.put_if_absent(name, value)
    if isinstance(storage, LocalStorage):
        storage.forget(name)
