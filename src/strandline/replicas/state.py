"""What a copy remembers about itself, and whether it takes a message. Pure: every kind of copy asks here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.errors import ChangesError, Fenced, InputError, SchemaError, StateError
from strandline.replicas.definition import Definition
from strandline.replicas.message import CHANGES, LOAD, Message, Position


@dataclass(frozen=True)
class State:
    """Epoch and number of the last message taken, its checksum, and where the copy stands.

    `position` is None until the first content is complete. `loading` is the cursor of a load that has begun.
    `layout` is how the target itself describes the stored columns.
    """

    definition: Definition
    epoch: int = 0
    number: int = 0
    checksum: str = ""
    position: Position | None = None
    loading: Mapping[str, Any] | None = None
    layout: tuple[tuple[str, str], ...] = field(default=())

    def to_text(self) -> str:
        return json.dumps(
            {
                "definition": self.definition.to_json(),
                "epoch": self.epoch,
                "number": self.number,
                "checksum": self.checksum,
                "position": None if self.position is None else self.position.to_json(),
                "loading": None if self.loading is None else dict(self.loading),
                "layout": [list(pair) for pair in self.layout],
            },
            sort_keys=True,
        )

    @staticmethod
    def from_text(text: str) -> State:
        try:
            record = json.loads(text)
            return State(
                definition=Definition.from_json(record["definition"]),
                epoch=int(record["epoch"]),
                number=int(record["number"]),
                checksum=str(record["checksum"]),
                position=Position.from_json(record["position"]),
                loading=record["loading"],
                layout=tuple((str(name), str(kind)) for name, kind in record["layout"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"what the copy recorded about itself can't be read ({error!r})",
                doing="opening a copy",
                hint="Drop the copy and replicate it again",
            ) from None


def is_new(state: State, message: Message) -> bool:
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
            hint="Another process refreshes this copy now; leave it to that one, or open the copy again",
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


def after(state: State, message: Message) -> State:
    """The state once the message is applied."""
    taken = replace(state, number=message.envelope.number, checksum=message.checksum)
    if message.kind == LOAD and not message.last:
        return replace(taken, loading=dict(message.cursor))
    return replace(taken, loading=None if message.kind == LOAD else state.loading, position=message.position)


def the_same(found: State, definition: Definition, shown: str) -> State:
    """The state found at a target, if it is that of this very copy."""
    if found.definition.fingerprint != definition.fingerprint:
        raise InputError(
            "the target already holds a copy of something else, or with other columns",
            doing=f"replicating to {shown}",
            hint="Drop that copy first, or choose another name",
        )
    return found
