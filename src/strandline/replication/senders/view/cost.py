"""What each way of refreshing a view's copy would cost, by equations (1) and (1a) and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.replication.explanation import Explanation, RefreshFacts, RefreshWay
from strandline.replication.senders.sender import FULL, REPAIR
from strandline.views import CHANGED, ROW_BYTES, USUAL, choose, load, messages, prices

DIFFERENCE = "difference"


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
