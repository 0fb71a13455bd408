"""How many cases a property test tries: its own number, and in `make soak` as many times more as all others."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

USUAL = 50
EXAMPLES = int(os.environ.get("STRANDLINE_EXAMPLES", str(USUAL)))


def examples(number: int) -> int:
    return max(1, number * EXAMPLES // USUAL)


LAWS = settings(
    derandomize=True,
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
"""The settings of the laws: derandomised, so that a failure is the same on every machine."""
