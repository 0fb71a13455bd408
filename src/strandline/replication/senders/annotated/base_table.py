"""Base tables as their databases describe them: columns in Arrow's types, the address, and the annotations' DDL.

Also the "funny" names of the extra fields, and of our own tables in a base's database.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import InputError, NotFound
from strandline.relations import Address, Database
from strandline.replication.definition import PREFIX
from strandline.replication.targets import own_name
from strandline.values import quoted

ADDRESS = f"{PREFIX}address"
PREVIOUS, TIME = f"{PREFIX}previous", f"{PREFIX}time"
GAP, UNHELD = f"{PREFIX}gap", f"{PREFIX}unheld"
VALUED = f"{PREFIX}valued"
BASES, COPIES = f"{PREFIX}bases", f"{PREFIX}copies"
TOUCHED, SENT, MET, RUNS = (f"{PREFIX}{word}" for word in ("touched", "sent", "met", "runs"))
FRESH, BLOCKS, BROKEN, EVERY = (f"{PREFIX}{word}" for word in ("fresh", "blocks", "broken", "every"))

BITS = 62
"""So many copies have a bit of their own; further ones are refreshed without, as careful as the paper."""

PAPER, MARKED = "paper", "marked"
ALGORITHMS = (PAPER, MARKED)


def fields(algorithm: str) -> tuple[str, ...]:
    """The extra fields that an algorithm keeps, besides the address."""
    return (PREVIOUS, TIME) if algorithm == PAPER else (PREVIOUS, TIME, GAP, UNHELD)


@dataclass(frozen=True)
class BaseColumn:
    """A user's column: its name, its Arrow type, and how it is read: as `stored`, by `reading`, then cast."""

    name: str
    type: pa.DataType
    stored: pa.DataType
    reading: str = "{}"


class BaseTable(ABC):
    """One table of a base's database."""

    address_type: str

    def __init__(self, database: Database, address: Address) -> None:
        self.database = database
        self.address = address
        self.sql = quoted(address.schema, address.table)
        self._described = database.columns(address.table, address.schema)
        if not self._described:
            raise NotFound(
                f"there is no table {address.name!r}", doing=f"opening {address.shown}", hint="Look at its name"
            )
        self.check_ordinary()

    @property
    def columns(self) -> list[BaseColumn]:
        """The user's columns; ours are left out."""
        return [self.column(name, kind) for name, kind in self._described if not name.startswith(PREFIX)]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def present(self) -> set[str]:
        """Which of our columns the table has."""
        return {name for name, _ in self._described if name.startswith(PREFIX)}

    @property
    def trigger(self) -> str:
        return own_name("touch", self.address.table)

    def annotate(self, names: Sequence[str]) -> None:
        """Adds nullable columns without a default: no row is rewritten."""
        for name in names:
            if name not in self.present:
                self.database.execute(f"ALTER TABLE {self.sql} ADD COLUMN {quoted(name)} {self.address_type}")
        if ADDRESS in names and ADDRESS not in self.present:
            index = quoted(own_name("index", self.address.table))
            self.database.execute(f"CREATE UNIQUE INDEX {index} ON {self.sql} ({quoted(ADDRESS)})")

    def release(self) -> None:
        """Removes the trigger and every column of ours."""
        self.drop_trigger()
        index = quoted(
            self.address.schema if self.database.dialect == "postgres" else None, own_name("index", self.address.table)
        )
        self.database.execute(f"DROP INDEX IF EXISTS {index}")
        for name in (ADDRESS, PREVIOUS, TIME, GAP, UNHELD):
            if name in self.present and name != self.integer_key():
                self.database.execute(f"ALTER TABLE {self.sql} DROP COLUMN {quoted(name)}")

    @abstractmethod
    def check_ordinary(self) -> None:
        """Refuses views and whatever else can't be annotated."""

    @abstractmethod
    def column(self, name: str, kind: str) -> BaseColumn: ...

    @abstractmethod
    def integer_key(self) -> str | None:
        """The one column of an integer primary key."""

    @abstractmethod
    def bytes(self) -> int:
        """How much there is to read, about."""

    @abstractmethod
    def lock(self) -> None:
        """Keeps writers out, and lets readers on, until the transaction ends."""

    @abstractmethod
    def create_trigger(self, address: str, fields: Sequence[str]) -> None:
        """Updates of the user's columns set the time to NULL; a new address makes an entry a new one."""

    @abstractmethod
    def drop_trigger(self) -> None: ...

    @abstractmethod
    def has_trigger(self) -> bool:
        """Whether the trigger is there and enabled."""

    @abstractmethod
    def has_index(self, columns: Sequence[str]) -> bool:
        """Whether an index begins with one of these columns."""


class SqliteTable(BaseTable):
    """SQLite: types by declaration, as its affinities read them; dates and decimals are what they are there, text."""

    address_type = "INTEGER"

    def check_ordinary(self) -> None:
        found = self.database.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", [self.address.table])
        kind, sql = found[0] if found else ("table", "")
        if re.search(r"WITHOUT\s+ROWID[\s,\w]*$", sql or "", re.IGNORECASE) and self.integer_key() is None:
            raise _not_ordinary(self.address, "a table WITHOUT ROWID and without an integer key")
        if kind != "table" or re.match(r"\s*CREATE\s+VIRTUAL", sql or "", re.IGNORECASE):
            raise _not_ordinary(self.address, "a view" if kind == "view" else "no ordinary table")

    def column(self, name: str, kind: str) -> BaseColumn:
        declared = kind.lower()
        if "bool" in declared:
            return BaseColumn(name, pa.bool_(), pa.bool_())
        if "int" in declared:
            return BaseColumn(name, pa.int64(), pa.int64())
        if any(word in declared for word in ("char", "clob", "text")):
            return BaseColumn(name, pa.string(), pa.string())
        if "blob" in declared:
            return BaseColumn(name, pa.binary(), pa.binary())
        if any(word in declared for word in ("real", "floa", "doub")):
            return BaseColumn(name, pa.float64(), pa.float64())
        return BaseColumn(name, pa.string(), pa.string(), "CAST({} AS TEXT)")

    def integer_key(self) -> str | None:
        keys = [row for row in self.database.execute(f"PRAGMA table_info({quoted(self.address.table)})") if row[5]]
        return str(keys[0][1]) if len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER" else None

    def bytes(self) -> int:
        """The file's size."""
        return os.path.getsize(self.address.location)

    def lock(self) -> None:
        """`BEGIN IMMEDIATE` did it."""

    def _fires(self, address: str, fields: Sequence[str]) -> tuple[str, str]:
        """When the trigger fires, and whether the entry moved. Fix-up always changes an annotation; users never do.

        No column of the user's is named: they may drop, rename and add theirs, and added ones are watched at once.
        """
        moved = f"NOT (NEW.{quoted(address)} IS OLD.{quoted(address)})" if address != ADDRESS else "(1 = 0)"
        untouched = " AND ".join(f"NEW.{quoted(name)} IS OLD.{quoted(name)}" for name in fields)
        return f"(NEW.{quoted(TIME)} IS NOT NULL AND {untouched}) OR {moved}", moved

    def create_trigger(self, address: str, fields: Sequence[str]) -> None:
        fires, moved = self._fires(address, fields)
        sets = [f"{quoted(TIME)} = NULL"]
        sets += [f"{quoted(n)} = CASE WHEN {moved} THEN NULL ELSE {quoted(n)} END" for n in fields if n != TIME]
        key = self.integer_key()
        here = f"{quoted(key)} = NEW.{quoted(key)}" if key else "rowid = NEW.rowid"
        self.database.execute(
            f"CREATE TRIGGER {quoted(self.trigger)} AFTER UPDATE ON {self.sql} WHEN {fires} "
            f"BEGIN UPDATE {quoted(self.address.table)} SET {', '.join(sets)} WHERE {here}; END"
        )

    def drop_trigger(self) -> None:
        self.database.execute(f"DROP TRIGGER IF EXISTS {quoted(self.trigger)}")

    def has_trigger(self) -> bool:
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = ? AND tbl_name = ?"
        return bool(self.database.execute(sql, [self.trigger, self.address.table]))

    def has_index(self, columns: Sequence[str]) -> bool:
        for row in self.database.execute(f"PRAGMA index_list({quoted(self.address.table)})"):
            first = self.database.execute(f"PRAGMA index_info({quoted(row[1])})")
            if first and first[0][2] in columns:
                return True
        return False


_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_NATIVE = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time without time zone": pa.time64("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}


_SETTINGS = {
    "work_mem": "128MB",
    "jit": "off",
    "random_page_cost": "1.1",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0.001",
}


class PostgresTable(BaseTable):
    """PostgreSQL: what Arrow has is itself, `numeric(p,s)` a decimal, everything else its text."""

    address_type = "bigint"

    def check_ordinary(self) -> None:
        found = self.database.execute("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(?)", [self.sql])
        if found[0][0] != "r":
            raise _not_ordinary(self.address, "a view" if found[0][0] in ("v", "m") else "no ordinary table")

    def column(self, name: str, kind: str) -> BaseColumn:
        base = re.sub(r"\(\d+\)", "", kind) if kind.startswith(("time", "timestamp")) else kind
        if base in _NATIVE:
            return BaseColumn(name, _NATIVE[base], _NATIVE[base])
        found = _NUMERIC.fullmatch(kind)
        if found and int(found[1]) <= 38 and 0 <= int(found[2]) <= int(found[1]):
            return BaseColumn(name, pa.decimal128(int(found[1]), int(found[2])), pa.string(), "{}::text")
        return BaseColumn(name, pa.string(), pa.string(), "{}::text")

    def integer_key(self) -> str | None:
        rows = self.database.execute(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
            "WHERE i.indisprimary AND i.indrelid = to_regclass(?)",
            [self.sql],
        )
        return str(rows[0][0]) if len(rows) == 1 and rows[0][1] in ("smallint", "integer", "bigint") else None

    def bytes(self) -> int:
        return int(self.database.execute("SELECT pg_table_size(to_regclass(?))", [self.sql])[0][0])

    def lock(self) -> None:
        self.database.execute(f"LOCK TABLE {self.sql} IN SHARE ROW EXCLUSIVE MODE")
        # For this transaction alone: windows and hashes stay in memory, short statements are not compiled, look-ups
        # that the statements ask for are not taken for as many visits to a disk, and workers share large scans.
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items())
        self.database.execute(f"SELECT {settings}")

    def create_trigger(self, address: str, fields: Sequence[str]) -> None:
        # No WHEN: PostgreSQL reads a condition anew for each statement, which costs several times what the call does.
        cleared = " ".join(f"NEW.{quoted(name)} := NULL;" for name in fields)
        same = " AND ".join(
            f"NEW.{quoted(name)} = OLD.{quoted(name)}"
            if name in (TIME, PREVIOUS)
            else f"NEW.{quoted(name)} IS NOT DISTINCT FROM OLD.{quoted(name)}"
            for name in sorted(fields, key=lambda name: name != TIME)
        )
        touched = f"IF {same} THEN NEW.{quoted(TIME)} := NULL; END IF;"
        if address != ADDRESS:
            touched = f"IF NEW.{quoted(address)} <> OLD.{quoted(address)} THEN {cleared} ELS{touched}"
        self.database.execute(
            f"CREATE OR REPLACE FUNCTION {self._function}() RETURNS trigger LANGUAGE plpgsql AS $strandline$ BEGIN "
            f"{touched} RETURN NEW; END $strandline$"
        )
        self.database.execute(
            f"CREATE TRIGGER {quoted(self.trigger)} BEFORE UPDATE ON {self.sql} "
            f"FOR EACH ROW EXECUTE FUNCTION {self._function}()"
        )

    def drop_trigger(self) -> None:
        self.database.execute(f"DROP TRIGGER IF EXISTS {quoted(self.trigger)} ON {self.sql}")
        self.database.execute(f"DROP FUNCTION IF EXISTS {self._function}()")

    def has_trigger(self) -> bool:
        sql = "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(?) AND tgname = ? AND tgenabled <> 'D'"
        return bool(self.database.execute(sql, [self.sql, self.trigger]))

    def has_index(self, columns: Sequence[str]) -> bool:
        rows = self.database.execute(
            "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = i.indkey[0] WHERE i.indisvalid AND i.indrelid = to_regclass(?)",
            [self.sql],
        )
        return any(name in columns for (name,) in rows)

    @property
    def _function(self) -> str:
        return quoted(self.address.schema, self.trigger)


def describe(database: Database, address: Address) -> BaseTable:
    """The table at an address."""
    kinds: dict[str, type[BaseTable]] = {"sqlite": SqliteTable, "postgres": PostgresTable}
    if database.dialect not in kinds:
        raise InputError(
            f"tables of {database.dialect} can't be annotated",
            doing=f"opening {address.shown}",
            hint="A base is a table of PostgreSQL or SQLite",
        )
    return kinds[database.dialect](database, address)


def _not_ordinary(address: Address, what: str) -> InputError:
    return InputError(
        f"{address.name!r} is {what}", doing=f"opening {address.shown}", hint="Only an ordinary table can be annotated"
    )
