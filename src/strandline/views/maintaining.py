"""Whether a view's difference is kept at every commit or computed at a refresh.

`auto` begins deferred, when nothing is known of the traffic, and after some refreshes follows the paper's two
conditions, with parameters measured at this store: see `measuring` and `cost`.
"""

from __future__ import annotations

from strandline.errors import InputError
from strandline.tables import TableTransaction
from strandline.views.catalogue import AUTO, DEFERRED, EAGER, copy_records
from strandline.views.cost import Choice, choose
from strandline.views.definition import Definition
from strandline.views.home import Home
from strandline.views.knowing import Known
from strandline.views.measuring import CHANGED, load, prices
from strandline.views.segments import all_segments, begin, end
from strandline.views.site import Site

SEEN = 3
"""So many refreshes are looked at before `auto` chooses."""


def keep(transaction: TableTransaction, site: Site, definition: Definition, maintain: str) -> None:
    """Begin, go on with or end a view's difference table, as it is to be maintained now."""
    known = all_segments(site.view, site.cache).get(definition.name)
    if maintain == AUTO:
        if known is not None and known.fingerprint != definition.fingerprint:
            end(transaction, site.view, definition.name)
        return
    if maintain != EAGER:
        if known is not None:
            end(transaction, site.view, definition.name)
        return
    obstacle = why_not_eager(definition, site)
    if obstacle:
        raise InputError(
            f"it can't be kept eagerly: {obstacle}",
            doing=f"defining view {definition.name!r}",
            hint="Say maintain='deferred' (--maintain deferred): its difference is then computed at each refresh",
        )
    if known is None or known.broken or known.fingerprint != definition.fingerprint:
        begin(transaction, site.view, site.cache, definition)


def why_not_eager(definition: Definition, site: Site) -> str:
    """Why a view can't have a difference table; empty if it can."""
    if definition.regenerated:
        return definition.regenerated
    above = [relation for relation in definition.relations if not site.is_table(relation)]
    return f"{above[0]} is a what-if" if above else ""


def chosen(site: Site, definition: Definition) -> Choice | None:
    """How the traffic of a view's copies says that it should be maintained; None while too little was seen.

    Every refresh of every copy counts: the copy that is refreshed most often has the fewest changes to wait for.
    """
    copies = [one for one in copy_records(site.view, site.cache).values() if one.view == definition.name]
    seen = [one for one in copies if one.measured.get("refreshes", 0) > SEEN and CHANGED in one.measured]
    if not seen:
        return None
    often = min(seen, key=lambda one: one.measured[CHANGED])
    rows = sum(site.count(relation) for relation in definition.relations)
    traffic = load(rows, often.held, often.measured[CHANGED], keyed=bool(definition.key))
    return choose(traffic, prices(often.measured))


def retune(home: Home, name: str) -> None:
    """Let `auto` follow what was measured.

    A copy that stands at an old state goes on from it when the view becomes eager; the other way round, its next
    refresh is a repair.
    """
    with home.state() as view:
        known = Known(Site(view, home.cache))
        record = known.records.get(name)
        if record is None or record.maintain != AUTO:
            return
        definition = known.definition(name)
        choice = None if why_not_eager(definition, known.site) else chosen(known.site, definition)
        eager = name in all_segments(view, home.cache)
    if choice is not None and (choice.maintain == EAGER) != eager:

        def work(transaction: TableTransaction) -> None:
            with home.state() as now:
                if choice.maintain == DEFERRED:
                    end(transaction, now, name)
                elif name not in all_segments(now, home.cache):
                    begin(transaction, now, home.cache, definition)

        home.autocommit(work)
