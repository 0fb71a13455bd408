"""Reading and writing large things once, as dumps do, without pushing what others use out of the machine's cache.

Only local files have such a cache; elsewhere these are the plain operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.storage.local import LocalStorage
from strandline.storage.seam import Storage


def get_in_passing(storage: Storage, name: str) -> bytes:
    """`get`; what was not cached before is not cached afterwards."""
    return storage.get_in_passing(name) if isinstance(storage, LocalStorage) else storage.get(name)


def put_in_passing(storage: Storage, name: str, pieces: Sequence[bytes]) -> None:
    """`put_if_absent` of pieces, one behind the other; the value does not stay cached."""
    if isinstance(storage, LocalStorage):
        storage.put_in_passing(name, pieces)
    else:
        storage.put_if_absent(name, b"".join(pieces))
