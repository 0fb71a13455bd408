"""The numbers that a refresh hands to its statements. The statements themselves are the same each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

NONE = -1
"""In place of a bit: there is none."""


@dataclass(frozen=True)
class Numbers:
    """`now` is the time of this fix-up, `since` that of the copy (SnapTime); `start` the address before the first.

    `bit` is the copy's, unless it may hold any entry; `refreshing` the bit of the copy that will hold what qualifies.
    `tail_gap` is when entries above the greatest address last went, `last` what that was, `first` the next new one.
    """

    now: int = 0
    since: int = 0
    start: int = 0
    bit: int = NONE
    refreshing: int = NONE
    tail_gap: int = 0
    last: int = 0
    first: int = 1

    def values(self) -> Mapping[str, int]:
        """By name, in the order in which PostgreSQL numbers them."""
        return asdict(self)


_PLACES = {field.name: place for place, field in enumerate(fields(Numbers), 1)}


def number(dialect: str, name: str) -> str:
    """How a statement names one of them."""
    return f"CAST(${_PLACES[name]} AS bigint)" if dialect == "postgres" else f":{name}"
