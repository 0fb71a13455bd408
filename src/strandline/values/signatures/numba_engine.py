"""sl3's primitives compiled with numba: the same words as `numpy_engine`, several times as fast.

Importing this module loads numba and the compiled code, so import it only when there is work for it. The
first process on a machine compiles for some seconds; later ones load what it left on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.errors import extra
from strandline.values.buffers import Flags, Offsets, Words
from strandline.values.signatures.compiled_cache import load_compiled

with extra("fast", "computing row signatures"):
    kernels: Any = load_compiled(
        "strandline.values.signatures.numba_kernels", "strandline.values.signatures.numpy_engine"
    )

BLOCK_ROWS = 1 << 15


def fold(h: Words, words: Words, valid: Flags | None) -> None:
    """As `numpy_engine.fold`."""
    if valid is None:
        kernels.fold_all(h, _plain(words))
    else:
        kernels.fold_valid(h, _plain(words), valid)


def fold_where(h: Words, words: Words, chosen: Flags | None) -> None:
    """As `numpy_engine.fold_where`."""
    if chosen is None:
        kernels.fold_all(h, _plain(words))
    else:
        kernels.fold_chosen(h, _plain(words), chosen)


def float_words(values: npt.NDArray[np.float64]) -> Words:
    """As `numpy_engine.float_words`."""
    plain = _plain(values)
    words = np.empty(len(plain), dtype=np.uint64)
    kernels.clean_floats(words, plain.view(np.uint64), plain)
    return words


def shorten(numbers: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> None:
    """As `numpy_engine.shorten`."""
    kernels.shorten(numbers, places)


def hash_bytes(offsets: Offsets, data: npt.NDArray[np.uint8], seed: int) -> Words:
    """As `numpy_engine.hash_bytes`."""
    words = np.empty(len(offsets) - 1, dtype=np.uint64)
    kernels.hash_bytes(words, _plain(offsets), data, np.uint64(seed))
    return words


def hash_lists(offsets: Offsets, elements: Words, seed: int) -> Words:
    """As `numpy_engine.hash_lists`."""
    words = np.empty(len(offsets) - 1, dtype=np.uint64)
    kernels.hash_lists(words, _plain(offsets), _plain(elements), np.uint64(seed))
    return words


def _plain(array: Any) -> Any:
    """The array contiguous and aligned, as the explicit signatures ask; almost always itself."""
    return np.require(array, requirements=("C", "A"))
