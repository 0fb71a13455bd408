"""A copy listens to us, with the columns that its view has now.

A changed definition, or changed columns of a base table, are shipped as a difference, too: a keyed copy gets the
columns of the new view in one transaction of the target, keeps its rows, and is then compared and sent what differs.
Stopped between the two, it stands at a position from which no difference may start: the next refresh compares it again.
Where rows can't stay (another key, another form) the copy is made anew, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.replicas import Definition, Replica, State
from strandline.replicas.evolution import Evolution


@dataclass(frozen=True)
class Claimed:
    """The copy's state, and what was done before: `evolved` says how its columns changed, `anew` why it is empty."""

    state: State
    evolved: str = ""
    anew: str = ""


def claim(replica: Replica, definition: Definition) -> Claimed:
    """Make the copy one of this definition, and fence off other senders."""
    found = replica.state()
    if found is None or found.definition.source != definition.source or found.definition == definition:
        replica.create(definition)
        return Claimed(replica.claim())
    evolution = Evolution(found.definition, definition)
    obstacle = "its first content was not complete" if found.position is None else evolution.obstacle
    obstacle = obstacle or replica.evolve(definition)
    if not obstacle:
        return Claimed(replica.claim(), evolved=f"the view's columns have changed ({evolution})")
    replica.drop()
    replica.create(definition)
    return Claimed(replica.claim(), anew=f"the copy was made anew: {obstacle}")
