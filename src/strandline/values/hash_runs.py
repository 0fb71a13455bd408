"""Whether a key occurs twice in what many work items hold: by sorted hashes in files, in bounded memory.

Kernels leave the hashes of keys in runs, each in ascending order. Runs are then gone through together, range by
range. No hash twice means no key twice. A hash that occurs twice is a suspicion, which the keys themselves must
confirm. An integer is its own hash, so that files in the order of such a key are only looked through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.values.buffers import Positions
from strandline.values.equality import comparable
from strandline.values.matching import repeated_rows
from strandline.values.signatures import DEFAULT_SEED, signature

Hashes = npt.NDArray[np.uint64]
ROOM = 1 << 22
"""So many hashes are looked at together."""
_SIGN = np.uint64(1 << 63)
_NULL = 0
"""Null shares the hash of an integer, as other keys may share one: it is a suspicion, no more."""


def key_hashes(keys: pa.Table) -> Hashes:
    """The hash of each row of a table of keys, in order: equal keys have equal ones."""
    columns = [comparable(column) for column in keys.columns]
    if len(columns) == 1 and pt.is_integer(columns[0].type) and columns[0].type != pa.uint64():
        numbers = np.asarray(columns[0].fill_null(_NULL) if columns[0].null_count else columns[0], dtype=np.int64)
        return numbers.view(np.uint64) ^ _SIGN
    return signature(columns, DEFAULT_SEED)


class HashWriter:
    """A file of runs, each of at most `run` hashes, sorted; the last may be shorter."""

    def __init__(self, path: str, run: int = ROOM // 4) -> None:
        self._run = run
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._waiting: list[Hashes] = []
        self._count = 0

    def write(self, hashes: Hashes) -> None:
        self._waiting.append(hashes)
        self._count += len(hashes)
        if self._count >= self._run:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._count:
            hashes = np.concatenate(self._waiting)
            if not _ascends(hashes):
                hashes = np.sort(hashes)
            self._file.write(np.uint64(len(hashes)).tobytes())
            self._file.write(hashes.tobytes())
        self._waiting, self._count = [], 0


def read_hashes(path: str) -> list[Hashes]:
    """The runs of a file, mapped into memory."""
    words = np.fromfile(path, dtype=np.uint64, count=1)
    if not len(words):
        return []
    mapped: Hashes = np.memmap(path, dtype=np.uint64, mode="r")
    runs, place = [], 0
    while place < len(mapped):
        end = place + 1 + int(mapped[place])
        runs.append(mapped[place + 1 : end])
        place = end
    return runs


def repeated_hashes(runs: Sequence[Hashes], room: int = ROOM) -> Hashes:
    """The hashes that occur more than once in runs that ascend; about `room` of them are in memory at a time."""
    total = sum(len(run) for run in runs)
    if not total:
        return np.empty(0, dtype=np.uint64)
    bounds = _bounds(runs, max(1, math.ceil(total / room)))
    cuts = [[0, *np.searchsorted(run, bounds).tolist(), len(run)] for run in runs]
    repeated = [np.empty(0, dtype=np.uint64)]
    for piece in range(len(bounds) + 1):
        parts = [run[cut[piece] : cut[piece + 1]] for run, cut in zip(runs, cuts, strict=True)]
        merged = np.concatenate(sorted((part for part in parts if len(part)), key=lambda part: int(part[0])) or parts)
        if not _ascends(merged):
            merged.sort()
        repeated.append(np.unique(merged[1:][merged[1:] == merged[:-1]]))
    return np.unique(np.concatenate(repeated))


def keys_met_again(runs: Sequence[Hashes], keys: Iterable[pa.Table]) -> tuple[pa.Table, Positions]:
    """The keys whose hashes occur twice, and the places of those among them that really do, each after its first.

    `keys` are read, a table at a time, only where some hash occurs twice.
    """
    repeated = repeated_hashes(runs)
    if not len(repeated):
        return pa.table({}), np.empty(0, dtype=np.int64)
    suspects = pa.concat_tables([each.filter(pa.array(np.isin(key_hashes(each), repeated))) for each in keys])
    return suspects, repeated_rows(suspects)


def _bounds(runs: Sequence[Hashes], pieces: int) -> Hashes:
    """Hashes that cut all runs together into so many pieces of about the same size."""
    sample = np.sort(np.concatenate([run[:: max(1, len(run) // (64 * pieces))] for run in runs]))
    return np.unique(sample[np.linspace(0, len(sample) - 1, pieces + 1).astype(np.int64)[1:-1]])


def _ascends(hashes: Hashes) -> bool:
    return bool(np.all(hashes[1:] >= hashes[:-1]))
