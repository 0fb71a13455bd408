"""What stands on the relations of a store, views and copies, and dropping a view or a table together with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.errors import InUse, NotFound, StrandlineError
from strandline.replication import drop_rows
from strandline.tables import COPIES, VIEWS, TableTransaction
from strandline.views import (
    KnownViews,
    ViewHost,
    end,
    pins_of,
    read_views,
    relations_named,
    remove,
)


def views_above(known: KnownViews, relations: Sequence[str]) -> list[str]:
    """The views that stand on these relations, or on views that do, the oldest first."""
    below = set(relations)
    for name in known.records:
        if name not in below and any(_reads(known, name, one) for one in below):
            below.add(name)
    return [name for name in known.records if name in below - set(relations)]


@dataclass(frozen=True)
class Dropped:
    """Views that went, or would go, with what they stand on, and copies that were forgotten with them: their targets
    keep the rows that they have.
    """

    views: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


def drop_view(host: ViewHost, name: str, *, cascade: bool = False) -> Dropped:
    """Drop a view that nothing stands on or, with `cascade`, with all that does."""
    doing = f"dropping view {name!r}"
    with read_views(host) as known:
        if name not in known.records:
            listed = ", ".join(known.records) or "none"
            raise NotFound(f"there is no view {name!r}", doing=doing, hint=f"The views are: {listed}")
        with_it = standing_on(known, name)
    hint = "Drop those first, or say cascade=True (--cascade)"
    if with_it.copies and not cascade:
        raise InUse(f"there are copies of it: {', '.join(with_it.copies)}", doing=doing, hint=hint)
    if with_it.views and not cascade:
        raise InUse(f"views stand on it: {', '.join(with_it.views)}", doing=doing, hint=hint)
    return host.autocommit(lambda transaction: _drop_all(transaction, host, name))


def drop_table(host: ViewHost, name: str) -> Dropped:
    """Drop a table with the views that stand on it; their copies, and its own, are forgotten."""

    def work(transaction: TableTransaction) -> Dropped:
        went = _drop_all(transaction, host, name)
        transaction.drop_table(name)
        return went

    return host.autocommit(work)


def standing_on(known: KnownViews, name: str) -> Dropped:
    """The views that stand on a relation, and the copies of these and of itself."""
    views = views_above(known, [name])
    copies = [one.name for one in known.copies.values() if one.view in (name, *views)]
    return Dropped(tuple(views), tuple(copies))


def _drop_all(transaction: TableTransaction, host: ViewHost, name: str) -> Dropped:
    with read_views(host) as known:
        went = standing_on(known, name)
        for view in (name, *went.views):
            if view in known.records:
                drop_rows(transaction, host, known, view)
                remove(transaction, VIEWS, view)
            if view in known.segments:
                end(transaction, known.state.view, view)
        for copy in went.copies:
            remove(transaction, COPIES, copy)
            transaction.dropped_snapshots += pins_of(host, known.copies[copy].id)
    return went


def _reads(known: KnownViews, view: str, name: str) -> bool:
    """Whether a view's text names a relation; where it can't be read any more, whether it may."""
    try:
        return name in known.named_by(view)
    except StrandlineError:
        return any(one.lower() == name.lower() for one in relations_named(known.records[view].sql))
