"""Whether a view's difference is kept at every commit or computed at a refresh."""

from __future__ import annotations

from strandline.errors import InputError
from strandline.tables import TableTransaction
from strandline.views.catalogue import EAGER
from strandline.views.definition import Definition
from strandline.views.segments import all_segments, begin, end
from strandline.views.site import Site


def keep(transaction: TableTransaction, site: Site, definition: Definition, maintain: str) -> None:
    """Begin, go on with or end a view's difference table, as it is to be maintained now."""
    known = all_segments(site.view, site.cache).get(definition.name)
    if maintain != EAGER:
        if known is not None:
            end(transaction, site.view, definition.name)
        return
    obstacle = why_not_eager(definition, site)
    if obstacle:
        raise InputError(
            f"it can't be kept eagerly: {obstacle}",
            doing=f"defining view {definition.name!r}",
            hint="Say maintain='deferred'",
        )
    if known is None or known.broken or known.fingerprint != definition.fingerprint:
        begin(transaction, site.view, definition)


def why_not_eager(definition: Definition, site: Site) -> str:
    """Why a view can't have a difference table; empty if it can."""
    if definition.regenerated:
        return definition.regenerated
    above = [relation for relation in definition.relations if not site.is_table(relation)]
    return f"{above[0]} is a what-if" if above else ""
