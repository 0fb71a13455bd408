"""Old snapshots of a pipeline: which a rule such as `7 daily, 4 weekly` keeps, and dropping the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.dumps.calendar import kept_by, parse_rule
from strandline.errors import InUse
from strandline.store import Store


@dataclass(frozen=True)
class Taken:
    """A snapshot of a step, as the calendar sees it."""

    id: str
    taken: float


def retire(store: Store, names: Iterable[str], rule: str) -> list[str]:
    """Drops the snapshots among `names` that the rule does not keep; which they were.

    One that a branch stands on stays. Snapshots that are not the pipeline's own are never touched.
    """
    ours = set(names)
    found = [Taken(record.name, record.taken) for record in store.snapshots() if record.name in ours]
    kept = kept_by(found, parse_rule(rule))
    dropped = []
    for one in found:
        if one.id in kept:
            continue
        try:
            store.drop_snapshot(one.id)
            dropped.append(one.id)
        except InUse:
            continue
    return dropped
