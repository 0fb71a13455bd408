"""Deleting dumps, and what interrupted ones left: say so in the catalog, delete, forget. Each step can be repeated."""

from __future__ import annotations

from dataclasses import replace

from strandline.dumps.catalog import BEGUN, DROPPING, Catalog, DumpEntry, change_catalog
from strandline.dumps.target import Target, names_of
from strandline.errors import Conflict, InUse


def drop_dumps(target: Target, entries: list[DumpEntry]) -> None:
    """Delete dumps that nothing stands on, or attempts at dumps. From the first swap on they are no dumps."""
    chosen = {entry.id: entry for entry in entries}

    def edit(catalog: Catalog) -> Catalog:
        for one in catalog.dumps:
            if one.parent in chosen and one.id not in chosen and one.state != DROPPING:
                raise InUse(
                    f"dump {one.id} stands on dump {one.parent}", doing=f"Deleting dump {one.parent}",
                    hint="Delete that first, or make a synthetic full",
                )  # fmt: skip
        edited = catalog
        for entry in chosen.values():
            now = catalog.find(entry.id)
            if now is None or now.state == DROPPING:
                continue
            if now != entry:
                raise Conflict(f"dump {entry.id} changed meanwhile", doing="Deleting dumps", hint="Try again")
            edited = edited.with_entry(replace(now, state=DROPPING, owner=None))
        return edited

    if chosen:
        finish_dropping(target, change_catalog(target.storage, edit))


def finish_dropping(target: Target, catalog: Catalog) -> None:
    """Go on with what was being deleted."""
    gone = [entry for entry in catalog.dumps if entry.state == DROPPING]
    for entry in gone:
        folder = target.folder(entry.id)
        for name in names_of(entry):
            target.storage.delete(folder.path(name))
    for entry in gone:
        change_catalog(target.storage, lambda one, id_=entry.id: one.without(id_) if one.find(id_) else one)  # type: ignore[misc]


def attempts(catalog: Catalog) -> list[DumpEntry]:
    """Dumps that were begun and are not complete."""
    return [entry for entry in catalog.dumps if entry.state == BEGUN]
