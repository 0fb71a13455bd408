"""What each way of refreshing a copy is expected to cost, and which one is taken: what `copy.explain` gives.

How the costs are found is each sender's own: see `senders/view.py` and `senders/annotated/cost.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from strandline.views import Choice


@dataclass(frozen=True)
class RefreshWay:
    """One way, as it is expected to be.

    Of a view's copy `bytes` and `seconds` are known, by what was measured; of a base's copy `cost`, in units of reading
    one row of the base.
    """

    method: str
    messages: float
    bytes: float = 0.0
    seconds: float = 0.0
    cost: float = 0.0


@dataclass(frozen=True)
class RefreshFacts:
    """What is known before a refresh of a view's copy: rows of the base, of the copy, and base rows changed since.

    `changed` is None where that is not known; `obstacle` says why no difference is.
    """

    rows: int
    held: int
    changed: int | None
    keyed: bool
    eager: bool
    obstacle: str = ""

    def __str__(self) -> str:
        changed = "unknown" if self.changed is None else f"{self.changed:,}"
        return f"base {self.rows:,} rows, copy {self.held:,}; changed since its position: {changed}"

    def line(self, way: RefreshWay) -> str:
        size = f"{way.messages:,.0f} messages, {way.bytes:,.0f} bytes, {way.seconds:.3f} s"
        return f"{way.method:10} about {size}"


@dataclass(frozen=True)
class BaseFacts:
    """What is known before a refresh of a base's copy.

    `changed` counts inserts, updates and deletes since the last fix-up and, where other copies were refreshed since,
    what they fixed up; `indexed` says whether an index serves the restriction, `altered` why every row counts as
    changed.
    """

    rows: int
    held: int
    changed: int
    indexed: bool
    restricted: bool
    algorithm: str
    altered: str = ""

    def __str__(self) -> str:
        altered = f"; {self.altered}" if self.altered else ""
        return f"base {self.rows} rows, copy {self.held}, {self.changed} changed since the last refresh{altered}"

    def line(self, way: RefreshWay) -> str:
        return f"{way.method:12} about {way.messages:.0f} messages, cost {way.cost:.0f}"


@dataclass(frozen=True)
class Explanation:
    """The ways, the one that is taken, and why.

    `maintain` says how a view should be maintained by the paper's conditions, and `policy` which refresh policy it has;
    `obstacle` why no differential of a base is possible, if none is. The method is `refused` where the policy wants
    differences only and there is none. `as_of` is the instant at which the copy shows a view that reads the clock.
    """

    facts: RefreshFacts | BaseFacts
    ways: tuple[RefreshWay, ...]
    method: str
    why: str
    maintain: Choice | None = None
    obstacle: str = ""
    policy: str = "auto"
    as_of: str | None = None

    def way(self, method: str) -> RefreshWay:
        """One way by its name."""
        return next(way for way in self.ways if way.method == method)

    @property
    def differential(self) -> RefreshWay:
        """Of a base's copy: the differential refresh."""
        return self.way("differential")

    @property
    def full(self) -> RefreshWay:
        """Sending all rows."""
        return self.way("full")

    def __str__(self) -> str:
        lines = [f"{self.method}: {self.why}", f"  {self.facts}", *(f"  {self.facts.line(way)}" for way in self.ways)]
        if self.maintain is not None:
            lines.append(f"  refresh policy {self.policy}; maintained {self.maintain}")
        if self.as_of is not None:
            lines.append(f"  the copy shows the view as of {self.as_of}")
        if self.obstacle:
            lines.append(f"  no differential: {self.obstacle}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """What `strandline refresh --explain --json` prints."""
        facts, choice = {"facts": asdict(self.facts)}, {"method": self.method, "why": self.why}
        if self.maintain is None:
            ways = {way.method: _chosen(way, "method", "messages", "cost") for way in self.ways}
            return {**facts, **ways, **choice, "obstacle": self.obstacle}
        timed = [_chosen(way, "method", "messages", "bytes", "seconds") for way in self.ways]
        return {
            **facts,
            "ways": timed,
            **choice,
            "maintain": asdict(self.maintain),
            "policy": self.policy,
            "as_of": self.as_of,
        }


def _chosen(way: RefreshWay, *names: str) -> dict[str, Any]:
    return {name: getattr(way, name) for name in names}
