"""How likely it is that signatures hide an update (Labio and Garcia-Molina, section 3.2, equations 1 and 2).

Two different records get the same signature of n bits with probability E = 2⁻ⁿ. A run that compares the
signatures of `records` matching records overlooks nothing with probability (1 − E)^records, and the number of
runs up to and including the first that overlooks something has the mean 1 / (1 − (1 − E)^records).

Only records that really changed can be overlooked. The paper counts every record of the file, as if all had
changed; a caller who knows the number of updates may pass that instead.
"""

from __future__ import annotations

import math

from strandline.errors import InputError
from strandline.values import MAXIMUM_BITS, MINIMUM_BITS


def error_of_one_comparison(bits: int) -> float:
    """E: the probability that two different records have the same signature."""
    return 2.0**-bits


def miss_probability(records: int, error: float) -> float:
    """The probability that a run overlooks at least one update: 1 less equation 1, exact where that rounds to 1."""
    return -math.expm1(records * math.log1p(-error))


def expected_runs_to_first_miss(records: int, error: float) -> float:
    """Equation 2: how many runs pass, on average, up to the first that overlooks an update."""
    miss = miss_probability(records, error)
    return 1 / miss if miss else math.inf


def bits_for(records: int, target: float) -> int:
    """The fewest bits with which a run over so many records overlooks an update with at most `target`."""
    if not 0 < target < 1:
        raise InputError(
            f"a probability of {target} can't be aimed at",
            doing="choosing the bits of signatures",
            hint="Give a number between 0 and 1, such as 1e-6",
        )
    for bits in range(MINIMUM_BITS, MAXIMUM_BITS + 1):
        if miss_probability(records, error_of_one_comparison(bits)) <= target:
            return bits
    raise InputError(
        f"not even {MAXIMUM_BITS} bits make a miss among {records:,} records as unlikely as {target}",
        doing="choosing the bits of signatures",
        hint="Compare whole records instead, or verify the result",
    )
