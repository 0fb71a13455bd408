"""The "funny" names of the extra fields and of our own tables in a base's database."""

from __future__ import annotations

from strandline.replicas.definition import PREFIX

ADDRESS = f"{PREFIX}address"
PREVIOUS, TIME = f"{PREFIX}previous", f"{PREFIX}time"
GAP, UNHELD = f"{PREFIX}gap", f"{PREFIX}unheld"
VALUED = f"{PREFIX}valued"
BASES, COPIES = f"{PREFIX}bases", f"{PREFIX}copies"
TOUCHED, SENT, MET, RUNS = (f"{PREFIX}{word}" for word in ("touched", "sent", "met", "runs"))
FRESH, BLOCKS, BROKEN, EVERY = (f"{PREFIX}{word}" for word in ("fresh", "blocks", "broken", "every"))

BITS = 62
"""So many copies have a bit of their own; further ones are refreshed without, as careful as the paper."""

PAPER, MARKED = "paper", "marked"
ALGORITHMS = (PAPER, MARKED)


def fields(algorithm: str) -> tuple[str, ...]:
    """The extra fields that an algorithm keeps, besides the address."""
    return (PREVIOUS, TIME) if algorithm == PAPER else (PREVIOUS, TIME, GAP, UNHELD)
