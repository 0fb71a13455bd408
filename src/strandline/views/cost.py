"""What a difference table costs: equations (1), (1a) and (2) of the paper.

A base table has N rows, of which the fraction q is in the view. Between two refreshes λ/Λ updates arrive, spread
evenly. *Communication* is counted in messages, *delay* in the unit of the costs: checking a row's relevance (Cr),
entering a row in the difference table (Cm), reading a row when the view is computed from the base (Cs).

The paper weighs a difference table against regeneration. Here both ways of keeping a view send the same net difference
and neither reads the base, so its two conditions don't choose between them: `maintenance` does, by what was measured.

The paper prints λ/Λ where λ/(ΛN) is meant, the number of updates per row and refresh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """The view and its traffic: N, λ and Λ (both per the same time), q; `keyed` if X holds a key of the result."""

    rows: float
    updates: float
    refreshes: float
    qualified: float
    keyed: bool

    @property
    def per_refresh(self) -> float:
        """λ/Λ: updates between two refreshes. A view that is not refreshed gathers them without end."""
        if self.refreshes > 0:
            return self.updates / self.refreshes
        return math.inf if self.updates > 0 else 0.0

    @property
    def per_row(self) -> float:
        """λ/(ΛN): updates of one row between two refreshes."""
        if self.rows > 0:
            return self.per_refresh / self.rows
        return math.inf if self.updates > 0 else 0.0


@dataclass(frozen=True)
class Prices:
    """Seconds for one row or message: Cr, Cm, Cs, and sending a message and storing it at the replica."""

    relevance: float
    maintain: float
    scan: float
    message: float


def updated_rows(load: Load) -> float:
    """N(1 − e^(−λ/(ΛN))): how many rows receive at least one update between two refreshes."""
    return load.rows * -math.expm1(-load.per_row)


def messages_counted(load: Load) -> float:
    """Equation (1): a deletion and an insertion for each updated row, each sent if it qualifies."""
    return 2 * load.qualified * updated_rows(load)


def messages_keyed(load: Load) -> float:
    """Equation (1a): a deletion and an insertion of one key are sent as one replacement."""
    return (2 * load.qualified - load.qualified**2) * updated_rows(load)


def messages(load: Load) -> float:
    """What a refresh from a difference table sends."""
    return messages_keyed(load) if load.keyed else messages_counted(load)


@dataclass(frozen=True)
class Choice:
    """How a view is maintained, and why, in sentences."""

    maintain: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.maintain}: {'; '.join(self.reasons)}"
