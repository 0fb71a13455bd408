"""How many cases a property test tries: its own number, always the same; `make soak` draws many more, by chance."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

USUAL = 50
EXAMPLES = int(os.environ.get("STRANDLINE_EXAMPLES", str(USUAL)))
DERANDOMIZED = EXAMPLES == USUAL
"""So that a failure is the same on every machine; a soak is to find new cases, and prints how to repeat them."""


def examples(number: int) -> int:
    return max(1, number * EXAMPLES // USUAL)


LAWS = settings(
    derandomize=DERANDOMIZED,
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
"""The settings of the laws."""
