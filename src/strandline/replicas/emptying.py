"""Ranges of addresses to empty, as numbers: which stretches of a copy they concern, and which addresses they hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.replicas.definition import ABOVE, UPTO

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
Addresses = np.ndarray[tuple[int], np.dtype[np.int64]]


class Emptying:
    """The ranges of one message. They do not overlap; each is open below and closed above."""

    def __init__(self, gone: pa.Table) -> None:
        gone = gone.take(pc.sort_indices(gone, sort_keys=[(ABOVE, "ascending")]))
        self._above = np.asarray(gone.column(ABOVE), dtype=np.int64)
        self._upto = np.asarray(gone.column(UPTO).fill_null(2**63 - 1), dtype=np.int64)

    def concerns(self, least: int, greatest: int) -> bool:
        """Whether addresses from `least` to `greatest`, both included, can be among them."""
        return bool(np.any((self._above < greatest) & (self._upto >= least)))

    def holds(self, addresses: Addresses) -> Flags:
        """Which of the addresses are to go."""
        if not len(self._above):
            return np.zeros(len(addresses), dtype=np.bool_)
        place = np.searchsorted(self._above, addresses, side="left") - 1
        return (place >= 0) & (addresses <= self._upto[np.maximum(place, 0)])
