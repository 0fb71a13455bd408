"""Base tables in SQLite and in PostgreSQL: their triggers, their locks, and how it is seen that one was altered."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Sequence

from strandline.errors import Conflict, InputError
from strandline.relations import Address, Database
from strandline.replication.senders.annotated.base_table import (
    ADDRESS,
    BASES,
    PREVIOUS,
    ROWIDS,
    TIME,
    BaseTable,
    RowKey,
    not_ordinary,
)
from strandline.replication.targets import own_name
from strandline.storage import cached_property
from strandline.values import quoted


class SqliteTable(BaseTable):
    """SQLite: writers come one after the other, so triggers need not enter rows without an entry: fix-up finds them."""

    def other_kind(self) -> str:
        rows = self.database.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", [self.address.table])
        kind, sql = rows[0] if rows else ("table", "")
        if kind != "table" or re.match(r"\s*CREATE\s+VIRTUAL", sql or "", re.IGNORECASE):
            return "a view" if kind == "view" else "no ordinary table"
        if self._without_rowid and self.integer_key() is None:
            return "a table WITHOUT ROWID and without an integer key"
        return ""

    @cached_property
    def _without_rowid(self) -> bool:
        rows = self.database.execute("SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", [self.address.table])
        return bool(rows and rows[0][0])

    def integer_key(self) -> str | None:
        """The rowid's other name; or, without a rowid, a key that is declared INTEGER."""
        keys = [row for row in self.database.execute(f"PRAGMA table_info({quoted(self.address.table)})") if row[5]]
        if len(keys) != 1 or str(keys[0][2]).upper() != "INTEGER":
            return None
        indexes = self.database.execute(f"PRAGMA index_list({quoted(self.address.table)})")
        own_index = any(row[3] == "pk" for row in indexes)  # INTEGER PRIMARY KEY DESC is no rowid, and may be null
        return str(keys[0][1]) if self._without_rowid or not own_index else None

    def other_key(self) -> RowKey:
        taken = {name.lower() for name, _ in self._described}
        free = [name for name in ROWIDS if name not in taken]
        if not free:
            raise not_ordinary(self.address, f"a table without an integer key whose columns hide {', '.join(ROWIDS)}")
        return RowKey((free[0],))

    def storage(self) -> str:
        """VACUUM may give rows other rowids; it counts the schema's version on, as every change of the schema does.

        A dump that is read in may have the same version again. It gives rowids anew, to our record of the base, too.
        """
        version = self.database.execute("PRAGMA schema_version")[0][0]
        mark = self.database.execute(f"SELECT rowid FROM {quoted(BASES)} WHERE name = ?", [self.address.table])
        return f"{self._statement}/{version}/{mark[0][0] if mark else 0}"

    def noted_storage(self) -> str:
        place = secrets.randbits(62)
        self.database.execute(f"UPDATE {quoted(BASES)} SET rowid = ? WHERE name = ?", [place, self.address.table])
        return self.storage()

    def altered(self, storage: str, key: RowKey) -> bool:
        """Rows with an integer key stay where they are. Where the statement that makes the table is the same after a
        column was dropped, another one was added: as the last, and with the same value in all rows."""
        if not super().altered(storage, key):
            return False
        return key.stored_at or not storage.startswith(f"{self._statement}/") or self._last_column_is_flat(key)

    @property
    def _statement(self) -> str:
        sql = "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?)"
        return hashlib.blake2b(
            str(self.database.execute(sql, [self.address.table])).encode(), digest_size=16
        ).hexdigest()

    def _last_column_is_flat(self, key: RowKey) -> bool:
        """Whether it holds one value in all rows that no trigger noted since the last fix-up."""
        columns = self.database.execute(f"PRAGMA table_xinfo({quoted(self.address.table)})")
        last = f"b.{quoted([row[1] for row in columns if not row[6]][-1])}"
        settled = (
            f"FROM {self.annotations} s JOIN {self.sql} b ON b.{quoted(key.columns[0])} = s.{quoted(ADDRESS)} "
            f"WHERE s.{quoted(TIME)} IS NOT NULL"
        )
        sql = f"SELECT EXISTS (SELECT 1 {settled} AND {last} IS NOT (SELECT {last} {settled} LIMIT 1))"
        return not self.database.execute(sql)[0][0]

    def bytes(self) -> int:
        """The file's size."""
        return os.path.getsize(self.address.location)

    def lock(self) -> None:
        """`BEGIN IMMEDIATE` did it."""

    def create_annotations(self, key: RowKey, names: Sequence[str]) -> None:
        columns = ", ".join(f"{quoted(name)} INTEGER" for name in names)
        self.database.execute(f"CREATE TABLE {self.annotations} ({quoted(ADDRESS)} INTEGER PRIMARY KEY, {columns})")

    def create_triggers(self, key: RowKey) -> None:
        address = quoted(key.columns[0])
        here = f"UPDATE {self.annotations} SET {quoted(TIME)} = NULL, {quoted(PREVIOUS)} = "
        there = f" WHERE {quoted(ADDRESS)} = NEW.{address}"
        stayed = f"CASE WHEN NEW.{address} IS OLD.{address} THEN {quoted(PREVIOUS)} END"
        for event, previous in (("INSERT", "NULL"), ("UPDATE", stayed)):
            self.database.execute(
                f"CREATE TRIGGER {quoted(self._triggers[event])} AFTER {event} ON {self.sql} "
                f"BEGIN {here}{previous}{there}; END"
            )

    @property
    def _triggers(self) -> dict[str, str]:
        return {"UPDATE": self.trigger, "INSERT": own_name("enter", self.address.table)}

    def drop_triggers(self) -> None:
        for name in self._triggers.values():
            self.database.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")

    def has_triggers(self) -> bool:
        sql = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name IN (?, ?) AND tbl_name = ?"
        return bool(self.database.execute(sql, [*self._triggers.values(), self.address.table])[0][0] == 2)

    def has_index(self, columns: Sequence[str]) -> bool:
        for row in self.database.execute(f"PRAGMA index_list({quoted(self.address.table)})"):
            first = self.database.execute(f"PRAGMA index_info({quoted(row[1])})")
            if first and first[0][2] in columns:
                return True
        return False


_NO_BASES = {"v": "a view", "m": "a view", "p": "a partitioned table", "f": "a foreign table"}


LOCK_SECONDS = 30
"""How long a refresh waits for those who write to a base."""

_SETTINGS = {
    "work_mem": "128MB",
    "jit": "off",
    "random_page_cost": "1.1",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0.001",
}


_STORAGE = """
WITH RECURSIVE base AS (SELECT oid, pg_relation_filenode(oid) AS file FROM pg_class WHERE oid = to_regclass(?)),
used(type) AS (
  SELECT a.atttypid FROM pg_attribute a JOIN base ON a.attrelid = base.oid WHERE a.attnum > 0
  UNION
  SELECT i.type FROM used JOIN pg_type t ON t.oid = used.type CROSS JOIN LATERAL (
    SELECT t.typelem UNION ALL SELECT t.typbasetype
    UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0
    UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid::text IN (r.rngtypid::text, to_json(r)->>'rngmultitypid')
  ) i(type)
),
described AS (
  SELECT a.attrelid, a.attnum, to_json(array[a.attname::text, a.atttypid::text, a.atttypmod::text, a.attcollation::text,
      a.attisdropped::text, a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid)]) AS facts
  FROM pg_attribute a LEFT JOIN pg_attrdef d ON a.attgenerated <> '' AND (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
  WHERE a.attnum > 0 AND a.attrelid IN (SELECT oid FROM base UNION SELECT typrelid FROM pg_type JOIN used ON type = oid)
)
SELECT md5(concat(
  (SELECT concat(oid, '/', file) FROM base),
  (SELECT json_agg(facts ORDER BY attrelid, attnum) FROM described),
  (SELECT json_agg(json_build_array(e.oid, e.enumlabel) ORDER BY e.oid) FROM pg_enum e JOIN used ON e.enumtypid = type)
))
"""
"""A digest of the table's file, of its columns, and of all types that they are made of: labels and attributes."""


class PostgresTable(BaseTable):
    """PostgreSQL: its trigger is called for each row, so that what a subscription applies, and rows that come through a
    partitioned table, are noted. It is enabled `ALWAYS`: one that is disabled and enabled again is left at `ORIGIN`.

    Under `REPEATABLE READ` a mere update would overlook entries of a later fix-up, and the row with them: there it
    enters rows that have no entry, which ends with the usual "could not serialize access" if there is one.
    """

    def other_kind(self) -> str:
        rows = self.database.execute("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(?)", [self.sql])
        kind = rows[0][0] if rows else ""
        return "" if kind == "r" else _NO_BASES.get(kind, "no ordinary table")

    def check_annotatable(self) -> None:
        if self.database.execute("SELECT 1 FROM pg_inherits WHERE inhparent = to_regclass(?) LIMIT 1", [self.sql]):
            raise not_ordinary(self.address, "a table that others inherit from, whose rows it shows")

    @cached_property
    def home(self) -> str | None:
        rows = self.database.execute(
            "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = coalesce(to_regclass(?), to_regclass(?))",
            [self.sql, quoted(self.address.schema, self.annotations_name)],
        )
        return str(rows[0][0]) if rows else self.address.schema

    def integer_key(self) -> str | None:
        key = self._primary_key
        return key[0][0] if len(key) == 1 and key[0][1] in ("smallint", "integer", "bigint") else None

    def other_key(self) -> RowKey:
        return RowKey(tuple(name for name, _ in self._primary_key) or ("ctid",), given=True)

    @cached_property
    def _primary_key(self) -> list[tuple[str, str]]:
        kinds = dict(self._described)
        return [(name, kinds[name]) for name in self.database.primary_key(self.address.table, self.address.schema)]

    def storage(self) -> str:
        """Whatever writes a table anew puts it into another file: changed types and expressions, VACUUM FULL, CLUSTER.

        What does not is in the catalog: columns that come, go and swap names, and what their types are made of.
        """
        return str(self.database.execute(_STORAGE, [self.sql])[0][0])

    def bytes(self) -> int:
        return int(self.database.execute("SELECT pg_table_size(to_regclass(?))", [self.sql])[0][0])

    def lock(self) -> None:
        """In short tries: writers queue behind a session that waits for the lock."""
        deadline, patience = time.monotonic() + LOCK_SECONDS, 100
        while not self._locked(patience):
            if time.monotonic() > deadline:
                raise Conflict(
                    f"others have written to it for {LOCK_SECONDS} s without an end: {self._writers()}",
                    doing=f"locking {self.address.shown}",
                    hint="End that transaction, or try again later",
                )
            time.sleep(patience / 1000)
            patience = min(2 * patience, 2000)
        # For this transaction alone: windows and hashes stay in memory, short statements are not compiled, look-ups
        # that the statements ask for are not taken for as many visits to a disk, and workers share large scans.
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items())
        self.database.execute(f"SELECT {settings}")

    def _locked(self, milliseconds: int) -> bool:
        self.database.execute("SAVEPOINT locking")
        self.database.execute(f"SET LOCAL lock_timeout = {milliseconds}")
        try:
            self.database.execute(f"LOCK TABLE {self.sql} IN SHARE ROW EXCLUSIVE MODE")
        except Conflict:
            self.database.execute("ROLLBACK TO SAVEPOINT locking")
            self.database.execute("RELEASE SAVEPOINT locking")
            return False
        self.database.execute("RELEASE SAVEPOINT locking")
        self.database.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        return True

    def _writers(self) -> str:
        """The sessions, and transactions prepared for two-phase commit, that hold a lock which ours has to wait for."""
        rows = self.database.execute(
            "SELECT DISTINCT CASE WHEN p.gid IS NULL THEN format('process %s of %s (%s, %s)', a.pid, a.usename, "
            "coalesce(nullif(a.application_name, ''), 'no name'), a.state) ELSE "
            "format('the prepared transaction %L of %s, until COMMIT or ROLLBACK PREPARED', p.gid, p.owner) END "
            "FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
            "LEFT JOIN pg_locks x ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction AND x.pid IS NULL "
            "AND x.locktype = 'transactionid' LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid "
            "WHERE l.relation = to_regclass(?) AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() "
            "AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') LIMIT 5",
            [self.sql],
        )
        return ", ".join(str(row[0]) for row in rows) or "nobody now"

    def create_annotations(self, key: RowKey, names: Sequence[str]) -> None:
        columns = [f"{quoted(name)} bigint" for name in names]
        if not key.given:
            columns.insert(0, f"{quoted(ADDRESS)} bigint PRIMARY KEY")
            self.database.execute(f"CREATE TABLE {self.annotations} ({', '.join(columns)}) WITH (fillfactor = 80)")
            return
        keys = ", ".join(f"{quoted(name)} AS {quoted(noted)}" for noted, name in key.noted.items())
        unique = f"UNIQUE ({', '.join(quoted(name) for name in key.noted)})"
        columns = [f"{quoted(ADDRESS)} bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", *columns]
        self.database.execute(
            f"CREATE TABLE {self.annotations} WITH (fillfactor = 80) AS SELECT {keys} FROM {self.sql} WITH NO DATA"
        )
        added = ", ".join(f"ADD COLUMN {column}" for column in columns)
        self.database.execute(f"ALTER TABLE {self.annotations} {added}, ADD {unique}")

    def create_triggers(self, key: RowKey) -> None:
        names = ", ".join(quoted(name) for name in key.noted)
        values = ", ".join(f"NEW.{quoted(name)}" for name in key.columns)
        moved = " OR ".join(f"NEW.{quoted(name)} IS DISTINCT FROM OLD.{quoted(name)}" for name in key.columns)
        enter = f"INSERT INTO {self.annotations} AS s ({names}) VALUES ({values}) ON CONFLICT ({names}) DO UPDATE SET "
        here = " AND ".join(f"s.{quoted(noted)} = NEW.{quoted(name)}" for noted, name in key.noted.items())
        time, previous = quoted(TIME), quoted(PREVIOUS)
        touch = f"UPDATE {self.annotations} AS s SET {time} = NULL WHERE {here} AND s.{time} IS NOT NULL;"
        anew = f"UPDATE {self.annotations} AS s SET {time} = NULL, {previous} = NULL WHERE {here};"
        if key.given:
            touch, anew = f"{enter}{time} = NULL;", f"{enter}{time} = NULL, {previous} = NULL;"
        # A user who may write to the base need not be allowed to write here: names are looked up in safe places only.
        self.database.execute(
            f"CREATE OR REPLACE FUNCTION {self._function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path = pg_catalog, pg_temp AS $strandline$ BEGIN "
            f"IF current_setting('transaction_isolation') <> 'read committed' THEN {enter}{time} = NULL; END IF; "
            f"IF TG_OP = 'INSERT' THEN {anew} ELSIF {moved} THEN {anew} ELSE {touch} END IF; "
            f"RETURN NULL; END $strandline$"
        )
        self.database.execute(
            f"CREATE TRIGGER {quoted(self.trigger)} AFTER INSERT OR UPDATE ON {self.sql} "
            f"FOR EACH ROW EXECUTE FUNCTION {self._function}()"
        )
        self.database.execute(f"ALTER TABLE {self.sql} ENABLE ALWAYS TRIGGER {quoted(self.trigger)}")

    def drop_triggers(self) -> None:
        self.database.execute(f"DROP TRIGGER IF EXISTS {quoted(self.trigger)} ON {self.sql}")
        # Another table may have had this name when it was annotated, and still have the trigger: it goes, too.
        self.database.execute(f"DROP FUNCTION IF EXISTS {self._function}() CASCADE")

    def has_triggers(self) -> bool:
        sql = "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(?) AND tgname = ? AND tgenabled = 'A'"
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
        return quoted(self.home, self.trigger)


_TABLES: dict[str, type[BaseTable]] = {"sqlite": SqliteTable, "postgres": PostgresTable}
BASE_DIALECTS = tuple(_TABLES)
"""The databases whose tables can be bases."""


def describe(database: Database, address: Address, *, leaving: bool = False) -> BaseTable:
    """The table at an address; anything, or nothing, may be there if what is ours is only to be removed."""
    if database.dialect not in _TABLES:
        raise InputError(
            f"tables of {database.dialect} can't be annotated",
            doing=f"opening {address.shown}",
            hint="A base is a table of PostgreSQL or SQLite",
        )
    table = _TABLES[database.dialect](database, address)
    if not leaving:
        table.check_ordinary()
    return table
