"""Making, listing, purging and dropping what-ifs: each one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from strandline.errors import Conflict, InputError, InUse, NotFound
from strandline.pages import Mode, is_own_name
from strandline.tables import TableSchema, tables_hint
from strandline.whatif.catalog import (
    CATALOG,
    IDS,
    SCHEMA,
    WhatIfChain,
    chain_of,
    children,
    define,
    definitions,
)
from strandline.whatif.placement import place_type
from strandline.whatif.transaction import WhatIfHost, WhatIfTransaction, commit_of, refuse_name, run_transaction
from strandline.whatif.tuples import KEY, differential_schema


@dataclass(frozen=True)
class WhatIfListing:
    """One line of the list of what-ifs: `table` is None when it was dropped; `tuples` counts what D holds."""

    name: str
    below: str | None
    table: str | None
    level: int
    tuples: int


def new_what_if(home: WhatIfHost, name: str, on: str) -> None:
    """A new what-if on a table or on another what-if (section 4: DEFINE HYPREL name ON on)."""

    def work(transaction: WhatIfTransaction) -> None:
        refuse_name(transaction, name)
        chain = _base(transaction, on)
        transaction.inner.lock_table(chain.table.domain, Mode.IS)
        transaction.footprint().tables.add(chain.table.domain)
        made = define(name, chain, transaction.scan)
        schema = chain.schema
        data = pa.schema([pa.field(made.columns[c.id], c.type) for c in schema.columns])
        if transaction.view.find_domain(CATALOG) is None:
            _create_catalog(transaction)
        transaction.tables.create_own_table(made.differential, differential_schema(data, place_type(schema)), key=KEY)
        transaction.tables.insert(CATALOG, pa.Table.from_pylist([made.row()], schema=SCHEMA))

    run_transaction(home, f"what-if {name} on {on}", work)


def listed(home: WhatIfHost) -> list[WhatIfListing]:
    """The what-ifs of a store, the lowest levels first."""
    with home.state() as view:
        listing = []
        for definition in definitions(view, home.cache).values():
            table, tuples = view.domain(definition.table), view.find_domain(definition.differential)
            rows = tuples.sums.rows if tuples is not None else 0
            below = definition.below if definition.below is not None else (table.name if table is not None else None)
            listing.append(
                WhatIfListing(definition.name, below, table.name if table is not None else None, definition.level, rows)
            )
        return sorted(listing, key=lambda each: (each.level, each.name))


def purge(home: WhatIfHost, name: str, before: Any) -> int:
    """Delete what became invalid before a date (section 4.5); how many tuples that were. As-of reads end there."""
    doing = f"purging {name}"
    date = commit_of(home, before, doing)

    def work(transaction: WhatIfTransaction) -> int:
        opened = transaction.open(name)
        gone = transaction.tables.delete(opened.definition.differential, where="maxdate < :date", params={"date": date})
        if date > opened.definition.purged:
            opened.definition = replace(opened.definition, purged=date)
            opened.save_definition()
        return gone

    return run_transaction(home, f"purge {name}", work)


def drop(home: WhatIfHost, name: str, *, with_children: bool = False) -> list[str]:
    """Drop a what-if; one that others stand on is refused, or takes them along. What was dropped."""

    def work(transaction: WhatIfTransaction) -> list[str]:
        known = definitions(transaction.view, transaction.cache)
        if name not in known:
            chain_of(transaction.view, transaction.cache, name)
        deeper = children(known, name)
        if deeper and not with_children:
            raise refuse_children(name, deeper, f"dropping {name}")
        for dropped in (*reversed(deeper), name):
            transaction.tables.drop_own_table(known[dropped].differential)
            transaction.tables.delete(CATALOG, where="name = :name", params={"name": dropped})
            if known[dropped].indexed:
                transaction.tables.delete(IDS, where="what_if = :name", params={"name": dropped})
        return [name, *deeper]

    return run_transaction(home, f"drop what-if {name}", work)


def refuse_children(name: str, deeper: list[str], doing: str) -> InUse:
    """The error that says who stands on a what-if."""
    return InUse(
        f"{', '.join(deeper)} {'stands' if len(deeper) == 1 else 'stand'} on {name}",
        doing=doing,
        hint="Merge or drop those first",
    )


def _base(transaction: WhatIfTransaction, on: str) -> WhatIfChain:
    if on in definitions(transaction.view, transaction.cache):
        return chain_of(transaction.view, transaction.cache, on)
    table = None if is_own_name(on) else transaction.view.find_domain(on)
    if table is None:
        hint = tables_hint([other.name for other in transaction.view.domains()])
        raise NotFound(f"there is no table {on}", doing="creating a what-if", hint=hint)
    return WhatIfChain((), table, TableSchema.from_bytes(transaction.view.record(table.domain)))


def _create_catalog(transaction: WhatIfTransaction) -> None:
    try:
        transaction.tables.create_own_table(CATALOG, SCHEMA, key="name")
    except InputError as error:
        raise Conflict("another what-if was created meanwhile", doing="creating a what-if") from error
