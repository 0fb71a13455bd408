"""Where difference tables come into a commit: after the tables' own changes, before the pointer is swapped.

A store without eagerly kept views pays one look into the catalog for each commit, and loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pages import DomainEdit, Installer, RowChange, Transaction
from strandline.pages.state_edit import StateEdit
from strandline.tables import PageCache
from strandline.tables.hidden import SEGMENTS


class DerivingInstaller:
    """An installer that hands everything on, and then adds what eager views make of it."""

    def __init__(self, inner: Installer, cache: PageCache) -> None:
        self._inner = inner
        self._cache = cache

    def install(self, edit: DomainEdit, changes: Sequence[RowChange]) -> None:
        self._inner.install(edit, changes)

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        made = any(one.name == SEGMENTS for one in edit.domains.values())
        if made or edit.view.find_domain(SEGMENTS) is not None:
            from strandline.views.eager import derive

            derive(edit, self._inner, self._cache, transactions)
