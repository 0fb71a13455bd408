"""Annotating a base table, and defining copies of it: written into its database, in one transaction each.

A table that is annotated already is not touched; annotations that can't be trusted any more, and those that the first
version put among the table's own columns, are made anew, and then no differential starts before that.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from strandline.changes import check_columns
from strandline.errors import Conflict, InputError, NotFound
from strandline.relations import Address, same_place
from strandline.replication.definition import PREFIX
from strandline.replication.senders.annotated import base_table
from strandline.replication.senders.annotated.base_table import ALGORITHMS, MARKED, PAPER, UNHELD, fields
from strandline.replication.senders.annotated.catalog import BaseCopyRecord, BaseRecord
from strandline.replication.senders.annotated.fix_up import BaseSite
from strandline.replication.senders.annotated.program import check_restriction, restriction
from strandline.values import quoted


def check_algorithm(algorithm: str | None) -> None:
    """Refuses what is neither of the two."""
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise InputError(f"{algorithm!r} is no algorithm", doing="annotating", hint=f"Use {', '.join(ALGORITHMS)}")


def annotate(site: BaseSite, algorithm: str | None) -> None:
    """Adds what is missing, in one transaction; a table that is annotated already is not touched."""
    if _is_annotated(site, algorithm):
        return
    with site.table.database.transaction():
        site.table.lock()
        site.table.check_unaltered()
        site.catalog.make()
        if not _is_annotated(site, algorithm):  # by another one since
            _annotate_anew(site, algorithm)


def _is_annotated(site: BaseSite, algorithm: str | None) -> bool:
    """Whether nothing is to be done; refuses what can't be annotated so."""
    known = site.catalog.base(site.name)
    if known is not None and algorithm not in (None, known.algorithm):
        raise InputError(
            f"the base is annotated for {known.algorithm!r}",
            doing=f"annotating {site.table.address.shown}",
            hint="Release it first, or leave the algorithm out",
        )
    if known is None and site.table.annotated_inside:
        raise InputError(
            "the table has columns that are named as annotations are, and no record says whose they are",
            doing=f"annotating {site.table.address.shown}",
            hint=f"Columns that begin with {PREFIX} are ours: drop them",
        )
    site.table.check_annotatable()
    return known is not None and not site.trouble(known)


def _annotate_anew(site: BaseSite, algorithm: str | None) -> None:
    key, record = site.table.row_key, site.catalog.base(site.name, lock=True)
    site.table.remove_annotations()
    if record is None:
        record = BaseRecord(site.name, secrets.token_hex(8), key, algorithm or MARKED)
    else:
        record = replace(record, key=key, since=record.time + 1, start=0, rows=0)
    site.table.create_annotations(key, fields(record.algorithm))
    site.table.create_triggers(key)
    site.catalog.put_base(record)
    site.program(record)


def release_base(site: BaseSite) -> None:
    """Removes whatever is there of a base, in one transaction; its table may be gone."""
    with site.table.database.transaction():
        if site.catalog.base(site.name) is None:
            site.table.check_ordinary()
            raise NotFound(f"{site.name!r} is not annotated", doing=f"releasing {site.table.address.shown}")
        if not site.table.other_kind():
            site.table.lock()
        site.table.remove_annotations()
        for copy in site.catalog.copies(site.name):
            site.catalog.drop_copy(copy.name)
        site.catalog.drop_base(site.name)
        site.catalog.remove_if_empty()


def wanted_copy(site: BaseSite, target: Address, where: str | None, columns: Sequence[str] | None) -> BaseCopyRecord:
    """The record of a copy that a user asks for, still without a name; its restriction is checked by the database."""
    record = site.record()
    schema = site.table.schema
    chosen = tuple(schema.names if columns is None else columns)
    check_columns(schema, chosen, "choosing the columns of a copy")
    restricted = restriction(where, schema, site.table.database.dialect)
    check_restriction(restricted, where, site.table.database, site.table.sql)
    return BaseCopyRecord("", record.table, 0, target.shown, chosen, where, restricted.sql, restricted.columns)


def check_same(known: BaseCopyRecord | None, wanted: BaseCopyRecord, target: Address) -> None:
    """Refuses a copy of a name that another one has."""
    if known is None:
        return
    described = [(one.base, one.where, one.columns) for one in (known, wanted)]
    if described[0] != described[1] or not same_place(known.target, target):
        raise InputError(
            f"there is a copy {known.name!r} already, with another target, restriction or columns",
            doing="replicating",
            hint="Give this one a name of its own, or drop that one",
        )


def define_copy(site: BaseSite, wanted: BaseCopyRecord) -> None:
    """Records the copy, with a bit of its own while there are any. A bit that a dropped copy used is cleared first."""
    database = site.table.database
    with database.transaction():
        site.table.lock()
        record = site.record(lock=True)
        if site.catalog.copy(wanted.name) is not None:
            raise Conflict("another one has defined it meanwhile", doing=f"defining {wanted.name!r}", hint="Try again")
        used = {copy.bit for copy in site.catalog.copies(record.table)}
        bit = next((number for number in range(base_table.BITS) if number not in used), None)
        if bit is not None and bit < record.bits and record.algorithm != PAPER:
            unheld, mask = quoted(UNHELD), 1 << bit
            database.execute(
                f"UPDATE {site.table.annotations} SET {unheld} = {unheld} - {mask} WHERE ({unheld} & {mask}) <> 0"
            )
        site.catalog.put_base(replace(record, bits=max(record.bits, 0 if bit is None else bit + 1)))
        copy = replace(wanted, bit=bit)
        site.catalog.put_copy(copy)
        site.prepare(record, copy)


def move_copy(site: BaseSite, wanted: BaseCopyRecord) -> None:
    """Notes another writing of the place that a copy is at."""
    with site.table.database.transaction():
        site.record(lock=True)
        known = site.catalog.copy(wanted.name)
        if known is not None:
            site.catalog.put_copy(replace(known, target=wanted.target))
