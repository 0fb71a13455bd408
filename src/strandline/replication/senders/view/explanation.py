"""What each way of refreshing a copy would cost, and which one is taken: `copy.explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.views import CHANGED, ROW_BYTES, USUAL, Choice, choose, load, messages, prices

DIFFERENCE, REPAIR, FULL = "difference", "repair", "full"


@dataclass(frozen=True)
class RefreshWay:
    """One way, as it is expected to be: messages by equations (1) and (1a), seconds by what was measured."""

    method: str
    messages: float
    bytes: float
    seconds: float


@dataclass(frozen=True)
class RefreshFacts:
    """What is known before a refresh: rows of the base, of the copy, and base rows changed since its position.

    `changed` is None where that is not known; `obstacle` says why no difference is.
    """

    rows: int
    held: int
    changed: int | None
    keyed: bool
    eager: bool
    obstacle: str = ""


@dataclass(frozen=True)
class Explanation:
    """The ways, the one that is taken, why, and how the view should be maintained by the paper's conditions."""

    facts: RefreshFacts
    ways: tuple[RefreshWay, ...]
    method: str
    why: str
    maintain: Choice

    def __str__(self) -> str:
        changed = "unknown" if self.facts.changed is None else f"{self.facts.changed:,}"
        lines = [f"{self.method}: {self.why}"]
        lines.append(
            f"  base {self.facts.rows:,} rows, copy {self.facts.held:,}; changed since its position: {changed}"
        )
        for way in self.ways:
            size = f"{way.messages:,.0f} messages, {way.bytes:,.0f} bytes, {way.seconds:.3f} s"
            lines.append(f"  {way.method:10} about {size}")
        lines.append(f"  maintained {self.maintain}")
        return "\n".join(lines)


def explain(facts: RefreshFacts, measured: Mapping[str, float]) -> Explanation:
    """The ways by expected cost. A difference is taken wherever it is known; it never sends more than it must."""
    price = prices(measured)
    width = measured.get(ROW_BYTES, USUAL[ROW_BYTES])
    usual = measured.get(CHANGED, 0.0)
    traffic = load(facts.rows, facts.held, usual if facts.changed is None else facts.changed, keyed=facts.keyed)
    scanning = facts.rows * price.scan
    ways = []
    if facts.changed is not None:
        sent = min(messages(traffic), 2.0 * facts.changed)
        comparing = 0.0 if facts.eager else 2 * facts.changed * price.relevance
        ways.append(RefreshWay(DIFFERENCE, sent, sent * width, comparing + sent * price.message))
    differing = messages(traffic)
    ways.append(
        RefreshWay(REPAIR, differing, differing * width, scanning + facts.held * price.scan + differing * price.message)
    )
    ways.append(RefreshWay(FULL, facts.held, facts.held * width, scanning + facts.held * price.message))
    if facts.obstacle:
        method, why = REPAIR, facts.obstacle
    else:
        kept = "kept at every commit" if facts.eager else "computed from the pages that changed"
        method, why = DIFFERENCE, f"the net difference since its position, {kept}"
    usual_traffic = load(facts.rows, facts.held, usual, keyed=facts.keyed)
    return Explanation(facts, tuple(ways), method, why, choose(usual_traffic, price))
