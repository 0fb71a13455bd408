"""`sl.base`: an annotated base table in a database, as users hold it, and the copies of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strandline.errors import InputError, NotFound
from strandline.relations import Address, connect, parse_address
from strandline.replication.copy import Copy, dropped_on_error
from strandline.replication.senders import (
    AnnotatedSender,
    BaseCatalog,
    BaseCopyRecord,
    BaseRecord,
    annotate,
    check_algorithm,
    check_same,
    define_copy,
    definition_of,
    fill,
    fix_up_base,
    move_copy,
    opened,
    release_base,
    wanted_copy,
)
from strandline.replication.targets import open_target


def base(url: str, table: str | None = None, *, algorithm: str | None = None) -> Base:
    """The table as a base of copies, annotated if it is not yet.

    `url` is `postgresql://…/db` or `sqlite:///file.db`; `table` may stand behind `#` instead. `algorithm` is `marked`
    (fewer messages, two more extra fields) or `paper`. What was dropped of the annotations is made again.
    """
    check_algorithm(algorithm)
    address = parse_address(url, table)
    with opened(address) as site:
        annotate(site, algorithm)
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
    ) -> Copy:
        """Makes a copy at `url` and fills it; if that was stopped, the same call goes on.

        `runner` says who reads the rows: `inline`, `spark`, or `auto` (Spark if the base is large).
        """
        methods = AnnotatedSender.methods
        if method not in methods:
            raise InputError(f"{method!r} is no method", doing="replicating", hint=f"Use {', '.join(methods)}")
        target = parse_address(url)
        with opened(self._address) as site:
            wanted = wanted_copy(site, target, where, columns)
            wanted = replace(wanted, name=name or target.table, method=method)
            with open_target(target) as replica:
                # Refuses a target that holds something else, or can't hold a column, before the base knows of it.
                known = site.catalog.copy(wanted.name)
                check_same(known, wanted, target)
                if known is None:
                    replica.create(definition_of(site, site.record(), wanted))
            if known is None:
                define_copy(site, wanted)
            elif known.target != wanted.target:
                move_copy(site, wanted)
        copy = Copy(AnnotatedSender(self._address), wanted.name, target)
        if self._copy_record(wanted.name).taken is None:
            with dropped_on_error(copy, fresh=known is None):
                copy.refresh(runner=runner)
        return copy

    def copy(self, name: str, url: str | None = None) -> Copy:
        """A copy by its name. `url` is needed where its address has a password that the environment does not give."""
        target = url or self._copy_record(name).target
        return Copy(AnnotatedSender(self._address), name, parse_address(target))

    def copies(self) -> list[BaseCopyRecord]:
        """The copies of this table, wherever they are."""
        with opened(self._address, leaving=True) as site:
            return site.catalog.copies(site.name)

    def fix_up(self) -> int:
        """Fixes up the annotations without refreshing any copy; gives the time."""
        with opened(self._address) as site:
            fill(site)
            with site.table.database.transaction():
                return fix_up_base(site)[0].time

    def release(self) -> None:
        """Removes every annotation; copies stay as they are and can't be refreshed any more. The table may be gone."""
        with opened(self._address, leaving=True) as site:
            release_base(site)

    def _copy_record(self, name: str) -> BaseCopyRecord:
        records = self.copies()
        for record in records:
            if record.name == name:
                return record
        known = ", ".join(record.name for record in records[:20])
        hint = f"The copies are {known}" if known else "Replicate the base first"
        raise NotFound(f"there is no copy {name!r}", doing=f"opening a copy of {self._address.shown}", hint=hint)
