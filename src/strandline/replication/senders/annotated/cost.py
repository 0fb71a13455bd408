"""Differential or full: what each way of refreshing a base's copy is expected to cost, before it is taken.

The paper: a differential trades a scan of the base, and updates of its annotations, for messages and updates of the
snapshot; where an index finds the qualified entries, repopulating may be cheaper. Costs are in units of reading one
row of the base; the weights are rough and stand here once.

Also what refreshes are measured against, the curves of figures 8 and 9: the ideal algorithm transmits only actual
changes to the restricted snapshot, and only the last one for each entry. The expectations hold for random updates that
keep their qualification, the message that ends a refresh left out; `q` is the part of the base that qualifies, `u` the
part that was updated since the last refresh.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.replication.explanation import BaseFacts, Explanation, RefreshWay
from strandline.replication.senders.annotated.base_table import PAPER
from strandline.replication.senders.sender import FULL


def expected_differential(q: float, u: float) -> float:
    """Messages of the paper's algorithm, as a part of the base: qu / (q + u − qu).

    >>> round(expected_differential(0.25, 0.1), 4), round(expected_differential(0.01, 0.1), 5)
    (0.0769, 0.00917)
    """
    either = q + u - q * u
    return q * u / either if either else 0.0


def expected_ideal(q: float, u: float) -> float:
    """Messages of the ideal algorithm, as a part of the base; also those of the improved one."""
    return q * u


SCAN, FIX, SEND = 1.0, 6.0, 8.0
"""Reading an entry; writing its annotations; sending a row and storing it in the copy."""
FIND = 2.0
"""Reading one entry through an index."""

ACTIVITY = 0.05
"""The part of a base that is taken to change between two refreshes, until there is something to count."""

DIFFERENTIAL = "differential"


def estimate(facts: BaseFacts) -> tuple[RefreshWay, RefreshWay]:
    """The differential's and the full refresh's."""
    rows = max(facts.rows, 1)
    q = min(facts.held / rows, 1.0)
    u = min(facts.changed / rows, 1.0)
    expected = expected_differential(q, u) if facts.algorithm == PAPER else expected_ideal(q, u)
    messages = expected * rows + 1
    differential = facts.rows * SCAN + facts.changed * FIX + messages * SEND
    full = facts.held * FIND if uses_index(facts) else facts.rows * SCAN + facts.changed * FIX
    return (
        RefreshWay(DIFFERENTIAL, messages, cost=differential),
        RefreshWay(FULL, float(facts.held), cost=full + facts.held * SEND),
    )


def at_activity(facts: BaseFacts) -> BaseFacts:
    """The facts of a later refresh, when a copy is defined and nothing has changed yet."""
    return replace(facts, changed=round(ACTIVITY * facts.rows))


def uses_index(facts: BaseFacts) -> bool:
    """Whether a full refresh reads through an index, and so leaves the annotations alone."""
    return facts.indexed and facts.restricted and facts.held * FIND < facts.rows * SCAN


def explain(facts: BaseFacts, obstacle: str = "") -> Explanation:
    """The choice by expected cost."""
    differential, full = ways = estimate(facts)
    if obstacle:
        return Explanation(facts, ways, FULL, "a differential is not possible", obstacle=obstacle)
    method, why = FULL, "so much changed that sending all is cheaper"
    if full.cost >= differential.cost:
        method, why = DIFFERENTIAL, "sending what changed is cheaper"
    elif uses_index(facts):
        why = "an index finds the qualified rows"
    return Explanation(facts, ways, method, f"{why}; {facts.altered}" if facts.altered else why)
