"""Copies of tables and views: each is brought to the store's present state by what changed since its own position.

The store keeps each copy's position and difference (see `views`); here the pipeline's names and addresses are put to
them, and what went over is set against what sending everything would take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.pipeline.settings import ReplicaOf, ViewOf
from strandline.replicas.databases import parse_address
from strandline.store import Store

FIRST, FULL = "first", "full"


def keep_view(store: Store, view: ViewOf) -> None:
    """Defines a view, or gives it a new text; does nothing if it is there with this one."""
    known = {one.name: one.sql for one in store.views()}
    if known.get(view.name) != view.sql:
        store.view(view.name, view.sql, strict=view.strict)


def ship(
    store: Store, replica: ReplicaOf, name: str, url: str, last: Mapping[str, Any] | None, runner: str
) -> dict[str, Any]:
    """Brings a copy, called `name` in the store, up to date; what that took.

    `last` is what the last refresh took: the size of a row is known from the first one.
    """
    known = {copy.name: copy for copy in store.copies()}
    shown = parse_address(url).shown
    there = known.get(name)
    if there is not None and (there.record.view, there.record.target) == (replica.of, shown):
        copy = store.copy(name, url)
        done = copy.refresh(replica.method, runner=runner)
        result = {"method": done.method, "messages": done.messages, "bytes": done.bytes, "why": done.why}
        result |= {"seconds": round(done.seconds, 3), "position": done.position}
    else:
        copy = store.view(replica.of).replicate(url, name=name, runner=runner)
        taken = copy.record.taken
        result = {**copy.record.last, "why": "the copy is new", "position": None if taken is None else taken.commit}
    return {**result, **_against_everything(result, copy.record.held, last or {})}


def _against_everything(result: Mapping[str, Any], rows: int, last: Mapping[str, Any]) -> dict[str, Any]:
    """How many messages and about how many bytes sending all rows takes, by the size of a row when all were sent."""
    size = last.get("row_bytes")
    if result["method"] in (FIRST, FULL) and result["messages"]:
        size = result["bytes"] / result["messages"]
    full = result["bytes"] if size is None else round(size * rows)
    return {"row_bytes": size, "full_messages": rows, "full_bytes": full}
