"""A copy whose columns change keeps its rows: from one definition to another of the same form, key and source.

Columns that go are dropped; columns that come are empty; a column of another type keeps its values where the new type
holds all of them, and is empty otherwise. Counted rows stand under other signatures then, so they are written again.
What is then wrong or missing is the sender's to find and to send, so the copy's position is no longer one that a
difference may start from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.changes.shape import COUNTED
from strandline.replicas.definition import COUNT, RANGES, Definition, signed
from strandline.replicas.state import State
from strandline.tables.record import holds


@dataclass(frozen=True)
class Evolution:
    """What becomes of a copy's columns."""

    old: Definition
    new: Definition

    @property
    def obstacle(self) -> str:
        """Why rows of the old definition can't become rows of the new one; empty if they can."""
        if self.old.form != self.new.form:
            return f"the copy was {self.old.form}, and would be {self.new.form}"
        if self.new.form == RANGES:
            return "the columns have changed, and rows at addresses are sent with all of them"
        if self.old.key != self.new.key:
            return f"the key was ({', '.join(self.old.key)}), and is ({', '.join(self.new.key)})"
        lost = [name for name in self.new.key if name in self.emptied]
        if lost:
            was, now = (one.schema.field(lost[0]).type for one in (self.old, self.new))
            return f"key column {lost[0]!r} was {was}, and is {now}"
        return ""

    @property
    def dropped(self) -> tuple[str, ...]:
        return tuple(name for name in self.old.schema.names if name not in self.new.schema.names)

    @property
    def added(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.schema.names if name not in self.old.schema.names)

    @property
    def widened(self) -> tuple[str, ...]:
        """Columns of another type, whose values stay."""
        return tuple(name for name in self._retyped if self._stays(name))

    @property
    def emptied(self) -> tuple[str, ...]:
        """Columns of another type, whose values go."""
        return tuple(name for name in self._retyped if not self._stays(name))

    def __str__(self) -> str:
        done = {"added": self.added, "dropped": self.dropped, "of another type": (*self.widened, *self.emptied)}
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in done.items() if names) or "in another order"

    def rows(self, rows: pa.Table) -> pa.Table:
        """Rows of the old definition as rows of the new one."""
        columns = [
            pa.nulls(len(rows), field.type)
            if field.name in self.added or field.name in self.emptied
            else rows.column(field.name).cast(field.type)
            for field in self.new.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.new.schema)

    def stored(self, stored: pa.Table) -> pa.Table:
        """Stored rows of the old definition as stored rows of the new one; counted ones that become equal are one."""
        rows = self.rows(stored.select(self.old.schema.names))
        if self.new.form != COUNTED:
            return rows
        counted = signed(self.new, rows.append_column(COUNT, stored.column(COUNT)))
        return counted.filter(pa.compute.greater(counted.column(COUNT), 0))

    def state(self, state: State) -> State:
        """What the copy says of itself afterwards: a load under way is given up."""
        position = None if state.position is None else replace(state.position, anchored=False)
        return replace(state, definition=self.new, position=position, loading=None)

    @property
    def _retyped(self) -> tuple[str, ...]:
        both = [name for name in self.new.schema.names if name in self.old.schema.names]
        return tuple(name for name in both if self.old.schema.field(name).type != self.new.schema.field(name).type)

    def _stays(self, name: str) -> bool:
        return holds(self.new.schema.field(name).type, self.old.schema.field(name).type)
