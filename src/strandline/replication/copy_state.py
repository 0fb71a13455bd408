"""What a copy remembers about itself, and whether it takes a message. Pure: every kind of copy asks here.

`Evolution` leads from one definition to another of the same form, key and source. A copy whose columns change keeps its
rows: columns that go are dropped; columns that come are empty; a column of another type keeps its values where the new
type holds all of them, and is empty otherwise. Counted rows stand under other signatures then, so they are written
again. What is then wrong or missing is the sender's to find and to send, so the copy's position is no longer one that a
difference may start from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from strandline.changes import COUNTED
from strandline.errors import ChangesError, Fenced, InputError, SchemaError, StateError
from strandline.replication.definition import COUNT, RANGES, CopyDefinition, signed
from strandline.replication.message import CHANGES, LOAD, Message, Position
from strandline.storage import JsonRecord
from strandline.tables import holds


@dataclass(frozen=True)
class CopyState(JsonRecord):
    """Epoch and number of the last message taken, its checksum, and where the copy stands.

    `position` is None until the first content is complete. `loading` is the cursor of a load that has begun.
    `layout` is how the target itself describes the stored columns.
    """

    definition: CopyDefinition
    epoch: int = 0
    number: int = 0
    checksum: str = ""
    position: Position | None = None
    loading: Mapping[str, Any] | None = None
    layout: tuple[tuple[str, str], ...] = field(default=())

    def to_text(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=64)  # one refresh reads it several times
    def from_text(text: str) -> CopyState:
        try:
            return CopyState.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"what the copy recorded about itself can't be read ({error!r})",
                doing="opening a copy",
                hint="Drop the copy and replicate it again",
            ) from None


def is_new(state: CopyState, message: Message) -> bool:
    """Whether the message is the next one; False if it was taken already. Anything else is refused."""
    envelope = message.envelope
    doing = f"taking message {envelope.number}"
    if envelope.fingerprint != state.definition.fingerprint:
        raise SchemaError(
            f"the message is for a copy of fingerprint {envelope.fingerprint[:8]}, and this one has "
            f"{state.definition.fingerprint[:8]}: columns, types, key or source differ",
            doing=doing,
            hint="Drop the copy and replicate it again",
        )
    if envelope.epoch != state.epoch:
        raise Fenced(
            f"the sender has epoch {envelope.epoch}, and the copy listens to epoch {state.epoch}",
            doing=doing,
            hint="Another one refreshes this copy now; leave it to that one, or open the copy again",
        )
    if envelope.number == state.number and message.checksum == state.checksum:
        return False
    if envelope.number <= state.number:
        raise ChangesError(
            f"message {state.number} was taken already, and this one is another of that number or an older one",
            doing=doing,
            hint="Open the copy again: it says which number comes next",
        )
    if envelope.number != state.number + 1:
        raise ChangesError(
            f"messages {state.number + 1} to {envelope.number - 1} are missing",
            doing=doing,
            hint="Open the copy again: it says which number comes next",
        )
    if message.kind == LOAD and not message.first and state.loading is None:
        raise ChangesError("it goes on with a load that never began", doing=doing, hint="Load from the beginning")
    if message.kind == CHANGES and state.position is None:
        raise ChangesError("the first content is not complete yet", doing=doing, hint="Finish loading first")
    return True


def after(state: CopyState, message: Message) -> CopyState:
    """The state once the message is applied."""
    taken = replace(state, number=message.envelope.number, checksum=message.checksum)
    if message.kind == LOAD and not message.last:
        return replace(taken, loading=dict(message.cursor))
    return replace(taken, loading=None if message.kind == LOAD else state.loading, position=message.position)


def the_same(state: CopyState, definition: CopyDefinition, shown: str) -> CopyState:
    """The state found at a target, if it is that of this very copy."""
    if state.definition.fingerprint != definition.fingerprint:
        raise InputError(
            "the target already holds a copy of something else, or with other columns",
            doing=f"replicating to {shown}",
            hint="Drop that copy where it was made, or choose another name",
        )
    return state


@dataclass(frozen=True)
class Evolution:
    """What becomes of a copy's columns."""

    old: CopyDefinition
    new: CopyDefinition

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

    def state(self, state: CopyState) -> CopyState:
        """What the copy says of itself afterwards: a load under way is given up."""
        position = None if state.position is None else replace(state.position, anchored=False)
        return replace(state, definition=self.new, position=position, loading=None)

    @property
    def _retyped(self) -> tuple[str, ...]:
        both = [name for name in self.new.schema.names if name in self.old.schema.names]
        return tuple(name for name in both if self.old.schema.field(name).type != self.new.schema.field(name).type)

    def _stays(self, name: str) -> bool:
        return holds(self.new.schema.field(name).type, self.old.schema.field(name).type)
