"""The chain of dumps, drawn: what stands on what, what restores to when, what could be deleted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from strandline.dumps.catalog import BEGUN, DumpEntry


def draw(entries: Sequence[DumpEntry], zone: dt.tzinfo | None = None) -> Iterator[str]:
    """One line for each dump, children below what they stand on; attempts that are not complete last."""
    complete = [one for one in entries if one.complete]
    stores = dict.fromkeys(one.store for one in complete)
    ids = {one.id for one in complete}
    for store in stores:
        if len(stores) > 1:
            yield f"store {store}"
        own = [one for one in complete if one.store == store]
        for root in [one for one in own if one.parent not in ids]:
            missing = root.parent is not None
            yield from _branch(root, own, "", "", zone, " · its parent is MISSING" if missing else "")
    for one in entries:
        if not one.complete:
            what = "incomplete: the next dump goes on with it" if one.state == BEGUN else "being deleted"
            yield f"✗ {_when(one, zone)}  L{one.level}  {one.id}  {what}"


def _branch(
    one: DumpEntry, all_: Sequence[DumpEntry], first: str, rest: str, zone: dt.tzinfo | None, remark: str = ""
) -> Iterator[str]:
    children = [other for other in all_ if other.parent == one.id]
    alone = "the last one" if one is max(all_, key=lambda other: other.taken) else "nothing on it, could be deleted"
    standing = f"{len(children)} on it" if children else alone
    pages = f"{one.pages:,} {'page' if one.pages == 1 else 'pages'}"
    kind = " synthetic" if one.synthetic else ""
    scope = "" if str(one.scope) == "the whole store" else f" · {one.scope}"
    yield (
        f"{first}● {_when(one, zone)}  L{one.level}{kind}  {_size(one.bytes)} in {pages}  {one.id}  "
        f"{standing}{scope}{remark}"
    )
    for child in children:
        last = child is children[-1]
        yield from _branch(child, all_, rest + ("└─" if last else "├─"), rest + ("  " if last else "│ "), zone)


def _when(one: DumpEntry, zone: dt.tzinfo | None) -> str:
    return f"{dt.datetime.fromtimestamp(one.taken, zone):%Y-%m-%d %H:%M:%S}"


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
