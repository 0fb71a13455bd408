"""How far apart matching records lie in two snapshots (Labio and Garcia-Molina, equation 3).

    distance = Σ |pos(R1) − pos(R2)| over matching records  /  (max(rec(F1), rec(F2))² / 2)

0 means that matching records stand at the same places, 1 is reached by a file in reverse order. (With an odd
number of records the reverse order reaches a little less: 80/81 for nine.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def distance(displacement: int, old_rows: int, new_rows: int) -> float:
    """Equation 3 from the sum of displacements, which parts of a comparison may collect on their own."""
    longest = max(old_rows, new_rows)
    return displacement / (longest * longest / 2) if longest else 0.0


def displacement(old_positions: npt.NDArray[np.int64], new_positions: npt.NDArray[np.int64]) -> int:
    """Σ |pos(R1) − pos(R2)| over pairs of matching records, given in the same order."""
    return int(np.abs(old_positions - new_positions).sum(dtype=np.int64))
