"""Pruning: what a rule keeps, what that stands on, and the rest, which may go."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from strandline.dumps.calendar import kept_by, parse_rule
from strandline.dumps.catalog import Catalog, DumpEntry, Owner, require_catalog
from strandline.dumps.dump import process_runs
from strandline.dumps.sweep import attempts, drop_dumps, finish_dropping
from strandline.dumps.target import Target


@dataclass(frozen=True, slots=True)
class Pruned:
    """What stays, each with its reason, and what went; without `confirmed` nothing went yet."""

    kept: dict[str, str]
    removed: tuple[str, ...]
    attempts: tuple[str, ...]
    bytes: int
    confirmed: bool


def prune(target: Target, rule: str, *, confirm: bool = False, zone: dt.tzinfo | None = None) -> Pruned:
    """Remove what no kept dump needs, and what interrupted dumps left. A dry run unless confirmed; needs no key."""
    wanted = parse_rule(rule)
    catalog = require_catalog(target.storage)
    finish_dropping(target, catalog)
    kept: dict[str, str] = {}
    for line in lines(catalog):
        kept |= kept_by(line, wanted, zone)
    for entry in [*catalog.complete(), *attempts(catalog)]:
        if entry.id in kept or (not entry.complete and not _given_up(entry)):
            for ancestor in needed_by(catalog, entry):
                kept.setdefault(ancestor.id, f"{entry.id} stands on it")
    gone = [one for one in catalog.complete() if one.id not in kept]
    dead = [one for one in attempts(catalog) if _given_up(one)]
    if confirm:
        drop_dumps(target, [*gone, *dead])
    return Pruned(
        kept,
        tuple(one.id for one in gone),
        tuple(one.id for one in dead),
        sum(one.bytes for one in [*gone, *dead]),
        confirm,
    )


def sweep(target: Target, *, confirm: bool = False) -> Pruned:
    """Remove every dump that is not complete. One that is still being made fails then, and leaves nothing."""
    catalog = require_catalog(target.storage)
    finish_dropping(target, catalog)
    begun = attempts(catalog)
    if confirm:
        drop_dumps(target, begun)
    return Pruned({}, (), tuple(one.id for one in begun), sum(one.bytes for one in begun), confirm)


def lines(catalog: Catalog) -> list[list[DumpEntry]]:
    """The dumps of each store and scope, oldest first."""
    found: dict[object, list[DumpEntry]] = {}
    for entry in catalog.complete():
        found.setdefault((entry.store, entry.scope), []).append(entry)
    return list(found.values())


def needed_by(catalog: Catalog, entry: DumpEntry) -> list[DumpEntry]:
    """The dumps that one stands on, nearest first."""
    found: list[DumpEntry] = []
    while entry.parent is not None and (parent := catalog.find(entry.parent)) is not None and parent not in found:
        found.append(parent)
        entry = parent
    return found


def _given_up(entry: DumpEntry) -> bool:
    """Whether nobody makes an attempt any more, as far as can be told without the store."""
    owner = entry.owner
    return owner is None or (owner.host == Owner.here(0).host and not process_runs(owner.pid))
