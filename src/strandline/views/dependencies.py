"""Views keep their meaning: what a commit would take away from under a view is refused, by the name of the view.

A view is kept as text, and read against the tables, what-ifs and older views of a state. So a table that is dropped or
renamed, a column that goes or gets another name, a what-if that is dropped and another view that gets a new text may
leave a view that can't be read any more; a relation that comes or goes may leave one that reads another than it did,
whose name differs in case alone. `check_dependents` runs while a commit is installed: every view that had a meaning
before must have one afterwards, over the same names, unless the same commit drops it. It costs nothing unless a commit
changes descriptions.

`ViewDeriver` is all that views have to do with a commit: they keep their meaning, rows of stored views follow, and
eager differences grow.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import InUse, SqlError, StrandlineError
from strandline.pages import Installer, StateEdit, TableEdit, Transaction
from strandline.tables import SEGMENTS, STORED, VIEWS, PageCache, is_defined_here, is_of_views
from strandline.values import parse_sql
from strandline.views.eager import derive
from strandline.views.known_views import KnownViews
from strandline.views.store_state import StoreState
from strandline.views.stored_rows import derive_rows
from strandline.whatif import CATALOG as WHAT_IFS
from strandline.whatif import is_of_what_ifs


class ViewDeriver:
    """A `pages.Deriver`. Rows of stored views come first: differences of what is read from them follow."""

    def __init__(self, installer: Installer, cache: PageCache) -> None:
        self._installer = installer
        self._cache = cache

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        made = {table.name for table in edit.domains.values()} & {STORED, SEGMENTS}
        there = made | {name for name in (VIEWS, STORED, SEGMENTS) if edit.view.find_domain(name) is not None}
        if VIEWS in there:
            check_dependents(edit, self._cache)
        if STORED in there:
            derive_rows(edit, self._installer, self._cache, transactions)
        if SEGMENTS in there:
            derive(edit, self._installer, self._cache, transactions)


def check_dependents(edit: StateEdit, cache: PageCache) -> None:
    """Refuses a commit that takes the meaning of a view away."""
    described = [table.name for table in edit.domains.values() if _is_described_anew(table)]
    if not described:
        return
    before = KnownViews(StoreState(edit.view, cache))
    after = KnownViews(StoreState(edit.preview(), cache))
    reasons = {name: _lost_meaning(name, before, after) for name in before.records if name in after.records}
    lost = [name for name, why in reasons.items() if why]
    if not lost:
        return
    rest = f"; views that it would concern, too: {', '.join(lost[1:])}" if lost[1:] else ""
    dropped = any(table.dropped and not is_of_what_ifs(table.name) for table in edit.domains.values())
    changed = ["what-ifs" if is_of_what_ifs(name) else name for name in sorted(described) if name != VIEWS]
    cascade = "; cascade=True (--cascade) drops the views, too" if dropped else ""
    raise InUse(
        f"view {lost[0]!r} {reasons[lost[0]]}{rest}",
        doing=f"changing {', '.join(dict.fromkeys(changed))}" if changed else "defining a view",
        hint=f"Drop view {lost[0]!r} first, or give it another text{cascade}",
    )


def relations_named(sql: str) -> list[str]:
    """The relations that a text names, without those that it defines itself; none if it is no SQL."""
    try:
        trees = parse_sql(sql, "ordering views")
    except SqlError:
        return []
    from sqlglot import exp

    tables = [table for tree in trees for table in tree.find_all(exp.Table)]
    return list(dict.fromkeys(table.name for table in tables if table.name and not is_defined_here(table)))


def _lost_meaning(name: str, before: KnownViews, after: KnownViews) -> str:
    """How a view that could be read would change its meaning; empty if it would not."""
    try:
        before.source(name)
    except StrandlineError:
        return ""
    try:
        after.source(name)
    except StrandlineError as error:
        return f"could not be read any more: {error.why}"
    if before.records[name].sql != after.records[name].sql:
        return ""
    then, now = before.named_by(name), after.named_by(name)
    return "" if then == now else f"would read {', '.join(now)}, and reads {', '.join(then)}"


def _is_described_anew(table: TableEdit) -> bool:
    if table.name in (VIEWS, WHAT_IFS):
        return not table.dropped and next(table.changed(), None) is not None
    ours = is_of_views(table.before.name) or is_of_what_ifs(table.before.name)
    return not ours and (table.dropped or table.record_changed or table.name != table.before.name)
