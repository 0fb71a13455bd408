"""What a refresh is measured against: the ideal algorithm, the full one, and the curves of figures 8 and 9.

The ideal transmits only actual changes to the restricted snapshot, and only the last one for each entry. The
expectations hold for random updates that keep their qualification, the message that ends a refresh left out; `q` is
the part of the base that qualifies, `u` the part that was updated since the last refresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUALIFYING = (0.01, 0.05, 0.25, 0.50, 0.75, 1.00)
"""The curves that figures 8 and 9 draw."""


def ideal_messages(before: Mapping[int, Any], after: Mapping[int, Any]) -> int:
    """How many entries of the snapshot really changed: one message each."""
    gone = sum(address not in after for address in before)
    return gone + sum(address not in before or bool(before[address] != value) for address, value in after.items())


def expected_differential(q: float, u: float) -> float:
    """Messages of the paper's algorithm, as a part of the base: qu / (q + u − qu).

    >>> round(expected_differential(0.25, 0.1), 4), round(expected_differential(0.01, 0.1), 5)
    (0.0769, 0.00917)
    """
    either = q + u - q * u
    return q * u / either if either else 0.0


def expected_ideal(q: float, u: float) -> float:
    """Messages of the ideal algorithm, as a part of the base; also those of the improved one."""
    return q * u


def expected_full(q: float) -> float:
    """Messages of a full refresh, as a part of the base."""
    return q
