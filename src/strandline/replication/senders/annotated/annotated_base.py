"""`sl.base`: an annotated base table in a database, and the copies of it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from strandline.changes import check_columns
from strandline.errors import InputError, NotFound
from strandline.relations import Address, connect, parse_address
from strandline.replication.definition import PREFIX
from strandline.replication.senders.annotated import base_table
from strandline.replication.senders.annotated.base_table import ADDRESS, ALGORITHMS, MARKED, PAPER, UNHELD, fields
from strandline.replication.senders.annotated.catalog import BaseCatalog, BaseCopyRecord, BaseRecord
from strandline.replication.senders.annotated.copy import METHODS, BaseCopy, opened
from strandline.replication.senders.annotated.delivery import definition_of
from strandline.replication.senders.annotated.fix_up import BaseSite, fix_up_base
from strandline.replication.senders.annotated.program import check_restriction, restriction
from strandline.replication.targets import open_replica
from strandline.values import quoted


def base(url: str, table: str | None = None, *, algorithm: str | None = None) -> Base:
    """The table as a base of copies, annotated if it is not yet.

    `url` is `postgresql://…/db` or `sqlite:///file.db`; `table` may stand behind `#` instead. `algorithm` is `marked`
    (fewer messages, two more extra fields) or `paper`. What was dropped of the annotations is made again.
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise InputError(f"{algorithm!r} is no algorithm", doing="annotating", hint=f"Use {', '.join(ALGORITHMS)}")
    address = parse_address(url, table)
    with opened(address) as site:
        _annotate(site, algorithm)
    return Base(address)


def bases(url: str) -> list[BaseRecord]:
    """The annotated tables of a database (of PostgreSQL: in the schema that `#schema.` names, or the first one)."""
    address = parse_address(url, None if "#" in url else "_")
    with connect(address) as database:
        return BaseCatalog(database, address.schema).bases()


class Base:
    """An annotated base table."""

    def __init__(self, address: Address) -> None:
        self._address = address

    @property
    def record(self) -> BaseRecord:
        with opened(self._address) as site:
            return site.record()

    def replicate(
        self,
        url: str,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        name: str | None = None,
        method: str = "auto",
        runner: str = "auto",
    ) -> BaseCopy:
        """Makes a copy at `url` and fills it; if that was stopped, the same call goes on.

        `runner` says who reads the rows: `inline`, `spark`, or `auto` (Spark if the base is large).
        """
        if method not in METHODS:
            raise InputError(f"{method!r} is no method", doing="replicating", hint=f"Use {', '.join(METHODS)}")
        target = parse_address(url)
        with opened(self._address) as site:
            wanted = _wanted(site, target, where, columns)
            wanted = replace(wanted, name=name or target.table, method=method)
            with open_replica(target) as replica:
                # Refuses a target that holds something else, or can't hold a column, before the base knows of it.
                known = site.catalog.copy(wanted.name)
                _check_same(known, wanted)
                replica.create(definition_of(site, site.record(), wanted))
            if known is None:
                define_copy(site, wanted)
        copy = BaseCopy(self._address, wanted.name, target)
        if self._copy_record(wanted.name).taken is None:
            copy.refresh(runner=runner)
        return copy

    def copy(self, name: str, url: str | None = None) -> BaseCopy:
        """A copy by its name. `url` is needed where its address has a password that the environment does not give."""
        target = url or self._copy_record(name).target
        return BaseCopy(self._address, name, parse_address(target))

    def copies(self) -> list[BaseCopyRecord]:
        """The copies of this table, wherever they are."""
        with opened(self._address) as site:
            return site.catalog.copies(site.name)

    def fix_up(self) -> int:
        """Fixes up the annotations without refreshing any copy; gives the time."""
        with opened(self._address) as site, site.table.database.transaction():
            return fix_up_base(site)[0].time

    def release(self) -> None:
        """Removes every annotation; copies stay as they are and can't be refreshed any more."""
        with opened(self._address) as site, site.table.database.transaction():
            site.table.lock()
            site.table.release()
            for copy in site.catalog.copies(site.name):
                site.catalog.drop_copy(copy.name)
            site.catalog.drop_base(site.name)
            site.catalog.remove_if_empty()

    def _copy_record(self, name: str) -> BaseCopyRecord:
        for record in self.copies():
            if record.name == name:
                return record
        raise NotFound(f"there is no copy {name!r}", doing=f"opening a copy of {self._address.shown}")


def _annotate(site: BaseSite, algorithm: str | None) -> None:
    """Adds what is missing, in one transaction; a table that is annotated already is not touched."""
    known = site.catalog.base(site.name)
    if known is not None and algorithm not in (None, known.algorithm):
        raise InputError(
            f"the base is annotated for {known.algorithm!r}",
            doing=f"annotating {site.table.address.shown}",
            hint="Release it first, or leave the algorithm out",
        )
    record = known or _new_record(site, algorithm or MARKED)
    wanted = [*fields(record.algorithm), *([ADDRESS] if record.own_address else [])]
    whole = known is not None and set(wanted) <= site.table.present and site.table.has_trigger()
    if whole:
        return
    with site.table.database.transaction():
        site.table.lock()
        site.catalog.make()
        site.table.drop_trigger()
        site.table.annotate(wanted)
        site.table.create_trigger(record.address, fields(record.algorithm))
        if known is not None:
            record = replace(record, since=record.time + 1, rows=0)
        site.catalog.put_base(record)
        site.program(record)


def _new_record(site: BaseSite, algorithm: str) -> BaseRecord:
    taken = sorted(site.table.present & {*fields(MARKED)})
    if taken:
        raise InputError(
            f"the table already has a column {taken[0]!r}, and no record says whose it is",
            doing=f"annotating {site.table.address.shown}",
            hint=f"Columns that begin with {PREFIX} are ours: drop it",
        )
    key = site.table.integer_key()
    return BaseRecord(site.name, secrets.token_hex(8), key or ADDRESS, key is None, algorithm)


def _wanted(site: BaseSite, target: Address, where: str | None, columns: Sequence[str] | None) -> BaseCopyRecord:
    record = site.record()
    schema = site.table.schema
    chosen = tuple(schema.names if columns is None else columns)
    check_columns(schema, chosen, "choosing the columns of a copy")
    found = restriction(where, schema, site.table.database.dialect)
    check_restriction(found, where, site.table.database, site.table.sql)
    return BaseCopyRecord("", record.table, 0, target.shown, chosen, where, found.sql, found.columns)


def _check_same(known: BaseCopyRecord | None, wanted: BaseCopyRecord) -> None:
    if known is None:
        return
    if (known.base, known.where, known.columns, known.target) != (
        wanted.base,
        wanted.where,
        wanted.columns,
        wanted.target,
    ):
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
        used = {copy.bit for copy in site.catalog.copies(record.table)}
        bit = next((number for number in range(base_table.BITS) if number not in used), None)
        if bit is not None and bit < record.bits and record.algorithm != PAPER:
            unheld, mask = quoted(UNHELD), 1 << bit
            database.execute(f"UPDATE {site.table.sql} SET {unheld} = {unheld} - {mask} WHERE ({unheld} & {mask}) <> 0")
        site.catalog.put_base(replace(record, bits=max(record.bits, 0 if bit is None else bit + 1)))
        copy = replace(wanted, bit=bit)
        site.catalog.put_copy(copy)
        site.prepare(record, copy)
