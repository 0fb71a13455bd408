"""Table 1 of the paper, "processing criteria for HR's", as a table, and figure 12, which applies it.

Line 10 is FORWARD's (section 4.4): it is not accepted, and it is seen. `seen` tests ids of higher levels only. A
FORWARD may stand before the REPLACE of its own level, so a level's ids join the seen ones when that level ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.values import Flags
from strandline.whatif.tuples import Type

Lines = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Criterion:
    """Conditions (None: any) and actions."""

    number: int
    level0: bool
    newest: bool | None
    seen: bool | None
    type: Type | None
    samelevel: bool | None
    accept: bool
    see: bool

    def holds(self, level0: bool, newest: bool, seen: bool, kind: Type, samelevel: bool) -> bool:
        wanted = (self.level0, self.newest, self.seen, self.type, self.samelevel)
        return all(
            w is None or w == fact for w, fact in zip(wanted, (level0, newest, seen, kind, samelevel), strict=True)
        )


YES, NO, ANY = True, False, None

TABLE_1 = (
    #     level0 newest seen type        samelevel accept see
    Criterion(1, YES, ANY, YES, ANY, ANY, NO, NO),
    Criterion(2, YES, ANY, NO, ANY, ANY, YES, NO),
    Criterion(3, NO, NO, ANY, ANY, ANY, NO, NO),
    Criterion(4, NO, YES, YES, ANY, ANY, NO, NO),
    Criterion(5, NO, YES, NO, Type.DELETE, YES, NO, NO),
    Criterion(6, NO, YES, NO, Type.REPLACE, YES, YES, NO),
    Criterion(7, NO, YES, NO, Type.APPEND, YES, YES, NO),
    Criterion(8, NO, YES, NO, Type.DELETE, NO, NO, YES),
    Criterion(9, NO, YES, NO, Type.REPLACE, NO, YES, YES),
    Criterion(10, NO, YES, NO, Type.FORWARD, ANY, NO, YES),
)

ACCEPT: Flags = np.array([False, *(line.accept for line in TABLE_1)])
"""Whether a line of the table accepts a tuple, by the line's number."""

SEE: Flags = np.array([False, *(line.see for line in TABLE_1)])


def line_of(level0: bool, newest: bool, seen: bool, kind: Type, samelevel: bool) -> int:
    """The one line that applies; 0 for what can't be: an APPEND that names a tuple of another level."""
    return next((line.number for line in TABLE_1 if line.holds(level0, newest, seen, kind, samelevel)), 0)


_LOOKUP: Lines = np.array(
    [line_of(False, *case) for case in product((False, True), (False, True), Type, (False, True))], dtype=np.int8
)


def differential_lines(newest: Flags, seen: Flags, kinds: npt.NDArray[np.integer[Any]], samelevel: Flags) -> Lines:
    """The line of Table 1 for each tuple of a differential relation."""
    code = ((newest * np.int8(2) + seen) * np.int8(len(Type)) + kinds) * 2 + samelevel
    lines: Lines = _LOOKUP[code]
    return lines
