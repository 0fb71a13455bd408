"""What a range modification sends: the statement itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RangeStatement:
    """`UPDATE … SET … WHERE …` over the copy's own columns, in its dialect: names, and SQL that we made ourselves."""

    set: tuple[tuple[str, str], ...]
    where: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"set": [list(pair) for pair in self.set], "where": self.where}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> RangeStatement:
        return RangeStatement(tuple((name, value) for name, value in record["set"]), record["where"])
