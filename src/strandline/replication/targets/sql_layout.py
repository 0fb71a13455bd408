"""The tables of a copy in a database: their names, and the statements that make and fill them.

`t` is what users read: the stored table itself or, where columns of ours are needed, a view of `_strandline_data_t`. A
load under way is in `_strandline_load_t`; what all copies of a database say of themselves is in `_strandline_replicas`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.changes import COUNTED
from strandline.errors import SchemaError
from strandline.relations import HOLDERS, Address, Held, held_columns
from strandline.replication.definition import ABOVE, COUNT, PREFIX, UPTO, CopyDefinition
from strandline.storage import cached_property
from strandline.values import free_name, quoted

GONE, ROWS, KNOWN = f"{PREFIX}gone", f"{PREFIX}rows", f"{PREFIX}known"
_LONGEST = 63
"""PostgreSQL cuts longer names off."""


@dataclass(frozen=True)
class Layout:
    """One copy's names and statements in one dialect."""

    dialect: str
    address: Address
    definition: CopyDefinition

    @cached_property
    def held(self) -> Mapping[str, Held]:
        return self.check_holdable()

    def check_holdable(self) -> Mapping[str, Held]:
        """How each column is held; refuses what this database can't hold exactly, before anything is written."""
        kind = {"duckdb": "DuckDB", "sqlite": "SQLite", "postgres": "PostgreSQL"}[self.dialect]
        unnamed = [name for name in self.definition.schema.names if name.lower() in ("true", "false")]
        if unnamed and self.dialect == "sqlite" and self.hides:
            # It calls them column1 and so on, and takes their quoted names for texts.
            raise SchemaError(
                f"SQLite gives no column of a view the name {unnamed[0]!r}",
                doing=f"replicating to {self.address.shown}",
                hint="Name it otherwise in the view with AS, or take a key into the view: the copy is a table then",
            )
        return held_columns(self.definition.stored, HOLDERS[self.dialect], kind)

    @property
    def hides(self) -> bool:
        return bool(len(self.definition.ours))

    @property
    def data_name(self) -> str:
        return own_name("data", self.address.table) if self.hides else self.address.table

    @property
    def load_name(self) -> str:
        return own_name("load", self.address.table)

    @property
    def data(self) -> str:
        return quoted(self.address.schema, self.data_name)

    @property
    def load(self) -> str:
        return quoted(self.address.schema, self.load_name)

    @property
    def view(self) -> str:
        return quoted(self.address.schema, self.address.table)

    @property
    def names(self) -> str:
        return ", ".join(quoted(name) for name in self.definition.stored.names)

    def create_table(self, table: str) -> str:
        """DuckDB gets no key: its scans of one column are quicker than its index, which would slow every insert."""
        identity = self.definition.identity
        columns = [
            f"{quoted(name)} {held.sql}{' NOT NULL' if name in identity else ''}" for name, held in self.held.items()
        ]
        if self.dialect == "sqlite" and len(identity) == 1 and self.held[identity[0]].sql == "INTEGER":
            place = list(self.held).index(identity[0])
            columns[place] = f"{quoted(identity[0])} INTEGER PRIMARY KEY"
        elif self.dialect != "duckdb":
            columns.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in identity)})")
        return f"CREATE TABLE {table} ({', '.join(columns)})"

    def create_view(self) -> str:
        names = ", ".join(quoted(name) for name in self.definition.schema.names)
        if self.definition.form != COUNTED:
            return f"CREATE VIEW {self.view} AS SELECT {names} FROM {self.data}"
        count, i = quoted(COUNT), quoted(free_name("i", self.definition.schema.names))
        if self.dialect == "sqlite":
            return (
                f"CREATE VIEW {self.view} AS WITH RECURSIVE n({i}) AS (SELECT 1 UNION ALL SELECT {i} + 1 FROM n WHERE "
                f"{i} < (SELECT max({count}) FROM {self.data})) "
                f"SELECT {names} FROM {self.data} JOIN n ON n.{i} <= {count}"
            )
        series = f"generate_series(1, {count})" if self.dialect == "postgres" else f"range(1, {count} + 1)"
        lateral = (
            f"CROSS JOIN LATERAL {series} AS s({i})" if self.dialect == "postgres" else f", unnest({series}) AS s({i})"
        )
        return f"CREATE VIEW {self.view} AS SELECT {names} FROM {self.data} {lateral}"

    def insert(self, table: str, source: str, *, cast: bool) -> str:
        """From staged rows (`cast`), or from another table of the same columns."""
        chosen = self.names
        if cast and self.dialect != "sqlite":  # SQLite's columns take values as they are
            chosen = ", ".join(f"CAST({quoted(name)} AS {held.sql})" for name, held in self.held.items())
        return f"INSERT INTO {table} ({self.names}) SELECT {chosen} FROM {source}"

    def select(self) -> str:
        chosen = ", ".join(held.reading.format(quoted(name)) for name, held in self.held.items())
        return f"SELECT {chosen} FROM {self.data}"

    @property
    def stored_schema(self) -> pa.Schema:
        """The Arrow types in which `select` gives the columns."""
        return pa.schema([(name, held.stored) for name, held in self.held.items()])

    def delete_by_identity(self) -> str:
        """What `GONE` names by key or signature."""
        pairs = " AND ".join(self._equal(name) for name in self.definition.identity)
        return self._delete(f"ON {pairs}", pairs)

    def _equal(self, name: str) -> str:
        staged = f"g.{quoted(name)}"
        return (
            f"d.{quoted(name)} = {staged if self.dialect == 'sqlite' else f'CAST({staged} AS {self.held[name].sql})'}"
        )

    def delete_ranges(self) -> str:
        """Figure 4's DELETE for all ranges of `GONE` at once: each is a look-up in the key's index."""
        address = quoted(self.definition.identity[0])
        above, upto = f"g.{quoted(ABOVE)}", f"g.{quoted(UPTO)}"
        inside = f"d.{address} > {above} AND d.{address} <= coalesce({upto}, {2**63 - 1})"
        return self._delete(f"ON {inside}", inside)

    def _delete(self, on: str, where: str) -> str:
        if self.dialect == "sqlite":  # CROSS JOIN keeps the order: each staged row looks up the key's index
            chosen = f"SELECT d.rowid FROM temp.{GONE} g CROSS JOIN {self.data} d {on}"
            return f"DELETE FROM {self.data} WHERE rowid IN ({chosen})"
        if self.dialect == "postgres":
            same = " AND ".join(f"x.{quoted(n)} = y.{quoted(n)}" for n in self.definition.identity)
            chosen = ", ".join(f"d.{quoted(n)}" for n in self.definition.identity)
            return (
                f"DELETE FROM {self.data} y USING (SELECT {chosen} FROM {GONE} g CROSS JOIN LATERAL "
                f"(SELECT {chosen} FROM {self.data} d WHERE {where} OFFSET 0) d) x WHERE {same}"
            )
        return f"DELETE FROM {self.data} d USING {GONE} g WHERE {where}"

    def count_changes(self) -> Sequence[str]:
        """The statements that add the counts of `ROWS` to the stored ones, by signature; what comes to 0 goes."""
        signature, count = quoted(self.definition.identity[0]), quoted(COUNT)
        added = f"(SELECT r.{count} FROM {ROWS} r WHERE r.{signature} = d.{signature})"
        new = f"(SELECT * FROM {ROWS} WHERE {signature} NOT IN (SELECT {signature} FROM {KNOWN}))"
        staged = f"SELECT {signature} FROM {ROWS}"
        return (
            f"DROP TABLE IF EXISTS {KNOWN}",
            f"CREATE TEMP TABLE {KNOWN} AS SELECT {signature} FROM {self.data} WHERE {signature} IN ({staged})",
            f"UPDATE {self.data} AS d SET {count} = d.{count} + {added} WHERE {signature} IN ({staged})",
            self.insert(self.data, f"{new} n", cast=True),
            f"DELETE FROM {self.data} WHERE {count} = 0 AND {signature} IN ({staged})",
        )

    def impossible_counts(self) -> str:
        """Finds a count below 0 among those that `ROWS` changed."""
        signature, count = quoted(self.definition.identity[0]), quoted(COUNT)
        return (
            f"SELECT 1 FROM {self.data} WHERE {signature} IN (SELECT {signature} FROM {ROWS}) AND {count} < 0 LIMIT 1"
        )


def own_name(what: str, table: str) -> str:
    """A name of ours for something of a table, short enough for every database."""
    name = f"{PREFIX}{what}_{table}"
    if len(name.encode()) <= _LONGEST:
        return name
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    return f"{PREFIX}{what}_{digest}"
