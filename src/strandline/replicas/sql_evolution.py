"""A copy in a database gets other columns: `ALTER TABLE`, so that indexes, rights and annotations of the table stay."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.replicas.databases import quoted
from strandline.replicas.evolution import Evolution
from strandline.replicas.holding import CANONICAL
from strandline.replicas.sql_layout import Layout


@dataclass(frozen=True)
class SqlEvolution:
    """From one layout of a keyed copy to another."""

    old: Layout
    new: Layout

    @property
    def obstacle(self) -> str:
        """Why the table can't be altered so; empty if it can."""
        for name in self.new.definition.key:
            if name in self._replaced:
                return f"key column {name!r} was held as {self.old.held[name].sql}, and would be in another way"
        return ""

    def statements(self) -> list[str]:
        """What goes goes first: a name that comes again in other letters is then free."""
        table, found = self.new.data, [f"DROP TABLE IF EXISTS {self.old.load}"]
        for name in (*self._evolution.dropped, *self._replaced):
            found.append(f"ALTER TABLE {table} DROP COLUMN {quoted(name)}")
        for name in (*self._evolution.added, *self._replaced):
            found.append(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {self.new.held[name].sql}")
        for name in self._evolution.widened:
            sql = self.new.held[name].sql
            if name not in self._replaced and sql != self.old.held[name].sql:
                column = quoted(name)
                found.append(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {sql} USING CAST({column} AS {sql})")
        return found

    @property
    def _evolution(self) -> Evolution:
        return Evolution(self.old.definition, self.new.definition)

    @property
    def _replaced(self) -> tuple[str, ...]:
        """Columns that are dropped and come again, empty: canonical texts of two types differ for one value."""
        widened = [name for name in self._evolution.widened if not self._alters(name)]
        return (*self._evolution.emptied, *widened)

    def _alters(self, name: str) -> bool:
        old, new = self.old.held[name], self.new.held[name]
        if CANONICAL in (old.how, new.how):
            return False
        return old.sql == new.sql or self.new.dialect != "sqlite"  # SQLite has no other type for a column
