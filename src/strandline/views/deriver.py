"""What views have to do with a commit: they keep their meaning, rows of stored views follow, eager differences grow."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pages import Installer, StateEdit, Transaction
from strandline.tables import SEGMENTS, STORED, VIEWS, PageCache
from strandline.views.dependencies import check_dependents
from strandline.views.eager import derive
from strandline.views.stored_rows import derive_rows


class ViewDeriver:
    """A `pages.Deriver`. Rows of stored views come first: differences of what is read from them follow."""

    def __init__(self, installer: Installer, cache: PageCache) -> None:
        self._installer = installer
        self._cache = cache

    def derive(self, edit: StateEdit, transactions: Sequence[Transaction]) -> None:
        there = concerned(edit)
        if VIEWS in there:
            check_dependents(edit, self._cache)
        if STORED in there:
            derive_rows(edit, self._installer, self._cache, transactions)
        if SEGMENTS in there:
            derive(edit, self._installer, self._cache, transactions)


def concerned(edit: StateEdit) -> set[str]:
    """The tables of views that the state before a commit has; and those that the commit makes, but for views alone."""
    made = {table.name for table in edit.domains.values()} & {STORED, SEGMENTS}
    return made | {name for name in (VIEWS, STORED, SEGMENTS) if edit.view.find_domain(name) is not None}
