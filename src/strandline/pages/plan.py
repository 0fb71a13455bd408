"""What a swap of a pointer starts from, and what it shall put in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strandline.pages.locks import Resource
from strandline.pages.objects import Output
from strandline.pages.pointer import Freed, Pointer
from strandline.pages.view import View
from strandline.storage import Token


@dataclass(frozen=True, slots=True)
class Current:
    """A pointer as stored, and the view of its state."""

    pointer: Pointer
    token: Token
    view: View


@dataclass(slots=True)
class Plan:
    """What a swap shall put in place. The books (log, freed objects, swap id) are added by `Version.swap`."""

    pointer: Pointer
    kind: str
    message: str = ""
    freed: Sequence[Freed] = ()
    moves: Sequence[tuple[Resource, Resource]] = ()
    done: Callable[[], None] = field(default=lambda: None)
    """Called when the swap is in place, before anybody sees the new state."""
    attempted: bool = False
    """Whether this may be in place: then nothing that it names may be deleted, whatever error was raised."""


Build = Callable[[Current, Output], Plan | None]
