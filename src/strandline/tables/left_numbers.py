"""Numbers that deleted rows left behind inside a transaction: whoever takes their key takes the number too.

Deleting a key and putting a row under it again, in one transaction, is an update. Rows that are kept apart see to that
by themselves; when whole pages are changed in between, the numbers are noted in files of the spool, and read only if
the transaction goes on.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.engine import Spool


def write_left(left: Mapping[bytes, int], path: str) -> str:
    """Writes numbers in order of their keys; the path."""
    keys = sorted(left)
    table = pa.table({"key": pa.array(keys, pa.large_binary()), "row": [left[key] for key in keys]})
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def read_left(path: str | None = None, start: int = 0, end: int | None = None) -> dict[bytes, int]:
    """Some of the numbers in a file: from `start` (inclusive) to `end` (exclusive)."""
    if path is None:
        return {}
    with pa.memory_map(path) as file:
        rows = pa.ipc.open_file(file).read_all()
        rows = rows.slice(start, len(rows) if end is None else end - start)
        return dict(zip(rows.column("key").to_pylist(), rows.column("row").to_pylist(), strict=True))


@dataclass(frozen=True)
class SharedLeft:
    """Numbers in a file that workers read."""

    keys: Sequence[bytes]
    path: str

    @staticmethod
    def of(left: Mapping[bytes, int], spool: Spool) -> SharedLeft:
        path = os.path.join(spool.path, f"left-{secrets.token_hex(6)}.arrow")
        return SharedLeft(sorted(left), write_left(left, path) if left else path)

    def between(self, low: bytes, high: bytes | None) -> list[Any]:
        """What a range of keys needs of them, as `read_left` takes it."""
        start = bisect_left(self.keys, low)
        end = len(self.keys) if high is None else bisect_left(self.keys, high)
        return [self.path, start, end] if start < end else []


class LeftNumbers:
    """What one table's rows left behind in one transaction."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._files: list[tuple[str, Spool]] = []

    def note(self, left: Mapping[bytes, int]) -> None:
        self._known.update(left)

    def note_file(self, path: str, spool: Spool) -> None:
        """The file is read when it is needed; its spool is held until then."""
        self._files.append((path, spool))

    def all(self) -> dict[bytes, int]:
        files, self._files = self._files, []
        for path, _ in files:
            self._known |= read_left(path)
        return self._known
