"""A change set in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.changes.shape import COUNTED, Header


@dataclass(frozen=True)
class Summary:
    """How much changed. In a counted set `inserted` and `deleted` are rows added and removed, and `updated` is 0.

    `unchanged` is None where nobody counted, `columns` (updates in which each value column differs) where the set does
    not know. `added`, `removed` and `retyped` are the columns whose values a partial set does not hold.
    """

    form: str
    inserted: int
    updated: int
    deleted: int
    unchanged: int | None
    columns: Mapping[str, int] | None
    added_columns: tuple[str, ...] = ()
    removed_columns: tuple[str, ...] = ()
    retyped_columns: tuple[str, ...] = ()
    inexact: bool = False

    @property
    def added(self) -> int:
        """Rows added: the word for counted sets."""
        return self.inserted

    @property
    def removed(self) -> int:
        """Rows removed: the word for counted sets."""
        return self.deleted

    @property
    def changed(self) -> int:
        """All changes together; 0 means that the relations are equal in what was compared."""
        return self.inserted + self.updated + self.deleted

    def to_json(self) -> dict[str, Any]:
        columns = None if self.columns is None else dict(self.columns)
        lists = {name: list(getattr(self, name)) for name in ("added_columns", "removed_columns", "retyped_columns")}
        return {**vars(self), "columns": columns, **lists}

    def __str__(self) -> str:
        if self.form == COUNTED:
            text = f"{self.added:,} rows added, {self.removed:,} removed"
        else:
            text = f"{self.inserted:,} inserted, {self.updated:,} updated, {self.deleted:,} deleted"
        return text if self.unchanged is None else f"{text}, {self.unchanged:,} unchanged"


def summarise(header: Header) -> Summary:
    """The summary of a set with this header."""
    counts = header.counts
    return Summary(
        form=header.form,
        inserted=counts.inserted,
        updated=counts.updated,
        deleted=counts.deleted,
        unchanged=counts.unchanged,
        columns=counts.columns,
        added_columns=header.added,
        removed_columns=header.removed,
        retyped_columns=header.retyped,
        inexact=header.inexact,
    )
