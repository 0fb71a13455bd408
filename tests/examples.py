"""How many cases a property test tries: its own number, and in `make soak` as many times more as all others."""

from __future__ import annotations

import os

USUAL = 50
EXAMPLES = int(os.environ.get("STRANDLINE_EXAMPLES", str(USUAL)))


def examples(number: int) -> int:
    return max(1, number * EXAMPLES // USUAL)
