"""Base tables as their databases describe them: columns in Arrow's types, what tells rows apart, and the annotations.

The annotations stand in a table of ours beside the base, one entry for each of its rows. The base gets triggers alone,
which note inserted and updated rows there. So nothing of ours is in a user's row, and no statement of ours changes one:
no staging table carries annotations along, and no trigger of a user's fires for them. A delete notes nothing, as in the
paper: fix-up finds entries whose rows are gone, however they went.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import Conflict, InputError
from strandline.relations import Address, Database, TableColumn, no_table, table_column
from strandline.replication.definition import PREFIX
from strandline.replication.targets import own_name
from strandline.storage import JsonRecord, cached_property
from strandline.values import quoted

ADDRESS = f"{PREFIX}address"
PREVIOUS, TIME = f"{PREFIX}previous", f"{PREFIX}time"
GAP, UNHELD = f"{PREFIX}gap", f"{PREFIX}unheld"
BASES, COPIES = f"{PREFIX}bases", f"{PREFIX}copies"

BITS = 62
"""So many copies have a bit of their own; further ones are refreshed without, as careful as the paper."""

PAPER, MARKED = "paper", "marked"
ALGORITHMS = (PAPER, MARKED)


def fields(algorithm: str) -> tuple[str, ...]:
    """The extra fields that an algorithm keeps, besides the address."""
    return (PREVIOUS, TIME) if algorithm == PAPER else (PREVIOUS, TIME, GAP, UNHELD)


@dataclass(frozen=True)
class RowKey(JsonRecord):
    """What tells the rows of a base apart: columns of the user's, or where a row is stored.

    `address` is the integer column whose values are the addresses, `ADDRESS` where no column is. Addresses are `given`
    by a sequence of the annotations where no single integer tells rows apart.
    """

    columns: tuple[str, ...]
    address: str = ADDRESS
    given: bool = False

    @property
    def noted(self) -> dict[str, str]:
        """The columns of the annotations that name a row, and what of the row they hold."""
        if not self.given:
            return {ADDRESS: self.columns[0]}
        return {f"{PREFIX}key_{place}": name for place, name in enumerate(self.columns, 1)}

    @property
    def stored_at(self) -> bool:
        """Whether rows are known by where they are stored, which some statements change for all rows at once."""
        return self.address == ADDRESS and self.columns in (("ctid",), *((name,) for name in ROWIDS))


ROWIDS = ("rowid", "_rowid_", "oid")
"""The names under which SQLite shows where a row is, unless a column has them."""


class BaseTable(ABC):
    """One table of a base's database."""

    def __init__(self, database: Database, address: Address) -> None:
        self.database = database
        self.address = address
        self.sql = quoted(address.schema, address.table)
        self._described = database.columns(address.table, address.schema)

    @property
    def columns(self) -> list[TableColumn]:
        """The user's columns; ours are left out."""
        dialect = self.database.dialect
        return [table_column(dialect, name, kind) for name, kind in self._described if not name.startswith(PREFIX)]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def annotated_inside(self) -> bool:
        """Whether the table has annotations among its own columns, as the first version made them."""
        return not {PREVIOUS, TIME}.isdisjoint(name for name, _ in self._described)

    @property
    def home(self) -> str | None:
        """The schema that the table is in."""
        return self.address.schema

    @property
    def annotations_name(self) -> str:
        return own_name("annotations", self.address.table)

    @property
    def annotations(self) -> str:
        """The table of the annotations."""
        return quoted(self.home, self.annotations_name)

    @property
    def trigger(self) -> str:
        return own_name("touch", self.address.table)

    @cached_property
    def row_key(self) -> RowKey:
        key = self.integer_key()
        return self.other_key() if key is None else RowKey((key,), key)

    def missing_annotations(self, key: RowKey, names: Sequence[str]) -> list[str]:
        """Which columns the annotations should have and have not; all of them if there is no such table."""
        there = {name for name, _ in self.database.columns(self.annotations_name, self.home)}
        return [name for name in (ADDRESS, *key.noted, *names) if name not in there]

    def remove_annotations(self) -> None:
        """Removes the triggers, the annotations, and what the first version left in the table itself."""
        self.drop_triggers()
        self.database.execute(f"DROP TABLE IF EXISTS {self.annotations}")
        if not self.annotated_inside:
            return
        index = quoted(self.home, own_name("index", self.address.table))
        self.database.execute(f"DROP INDEX IF EXISTS {index}")
        there = {name for name, _ in self._described}
        for name in (ADDRESS, PREVIOUS, TIME, GAP, UNHELD):
            if name in there and name != self.integer_key():
                self.database.execute(f"ALTER TABLE {self.sql} DROP COLUMN {quoted(name)}")

    def check_ordinary(self) -> None:
        """Refuses views and whatever else is no table."""
        if not self._described:
            raise no_table(self.database, f"opening {self.address.shown}")
        other = self.other_kind()
        if other:
            raise not_ordinary(self.address, other)

    @abstractmethod
    def other_kind(self) -> str:
        """What it is, if it is no ordinary table, or no table at all; empty if it is one."""

    def check_annotatable(self) -> None:  # noqa: B027
        """Refuses tables whose rows triggers can't watch."""

    @abstractmethod
    def integer_key(self) -> str | None:
        """The one column of an integer primary key."""

    @abstractmethod
    def other_key(self) -> RowKey:
        """What tells rows apart where there is no such column."""

    @abstractmethod
    def storage(self) -> str:
        """Of how values and rows are stored: changes whenever either may have changed without a trigger."""

    def altered(self, storage: str, key: RowKey) -> bool:
        """Whether that may have happened since `storage` was noted."""
        return self.storage() != storage

    def noted_storage(self) -> str:
        """The same as `storage`, to be noted with the annotations; no copy of the database has it by chance."""
        return self.storage()

    def check_unaltered(self) -> None:
        """Refuses a table that got other columns since it was described; asked once it is locked."""
        if self.database.columns(self.address.table, self.address.schema) != self._described:
            raise Conflict("the table was altered meanwhile", doing=f"reading {self.address.shown}", hint="Try again")

    @abstractmethod
    def bytes(self) -> int:
        """How much there is to read, about."""

    @abstractmethod
    def lock(self) -> None:
        """Keeps writers out, and lets readers on, until the transaction ends."""

    @abstractmethod
    def create_annotations(self, key: RowKey, names: Sequence[str]) -> None:
        """The table, empty."""

    @abstractmethod
    def create_triggers(self, key: RowKey) -> None:
        """An updated row's entry gets no time, and that of a new or moved row neither a time nor a previous one."""

    @abstractmethod
    def drop_triggers(self) -> None: ...

    @abstractmethod
    def has_triggers(self) -> bool:
        """Whether the triggers are there, and were never disabled, as far as the database can tell."""

    @abstractmethod
    def has_index(self, columns: Sequence[str]) -> bool:
        """Whether an index begins with one of these columns."""


def not_ordinary(address: Address, what: str) -> InputError:
    """The refusal of what is no ordinary table."""
    return InputError(
        f"{address.name!r} is {what}", doing=f"opening {address.shown}", hint="Only an ordinary table can be annotated"
    )
