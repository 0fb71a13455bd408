"""How the schema changed between the two sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.changes.shape import Header


@dataclass(frozen=True)
class Retyped:
    """A column whose type changed; `compared` says whether values of both types could still be compared."""

    name: str
    before: str
    after: str
    compared: bool


@dataclass(frozen=True)
class Drift:
    """Columns added and removed (name and type), retyped ones, and pairs that look like renames (old to new)."""

    added: tuple[tuple[str, str], ...] = ()
    removed: tuple[tuple[str, str], ...] = ()
    retyped: tuple[Retyped, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.retyped)


def schema_drift(header: Header, renames: Mapping[str, str] | None = None) -> Drift:
    """The drift between the header's two schemas; `renames` are the caller's suggestions, old name to new."""
    old, new = header.old_schema, header.new_schema
    both = [name for name in new.names if name in old.names]
    retyped = [
        Retyped(name, str(old.field(name).type), str(new.field(name).type), name not in header.retyped)
        for name in both
        if old.field(name).type != new.field(name).type
    ]
    return Drift(
        added=tuple((name, str(new.field(name).type)) for name in header.added),
        removed=tuple((name, str(old.field(name).type)) for name in header.removed),
        retyped=tuple(retyped),
        renames=tuple((before, after) for before, after in (renames or {}).items()),
    )


def drift_told(drift: Drift) -> list[str]:
    """The drift in sentences, one for each kind."""
    told = []
    if drift.added:
        told.append(f"Added: {', '.join(f'{name} ({type_})' for name, type_ in drift.added)}.")
    if drift.removed:
        told.append(f"Removed: {', '.join(f'{name} ({type_})' for name, type_ in drift.removed)}.")
    for each in drift.retyped:
        verdict = "" if each.compared else ", which can't be compared"
        told.append(f"Retyped: {each.name} from {each.before} to {each.after}{verdict}.")
    if drift.renames:
        told.append(f"Perhaps renamed: {', '.join(f'{old} → {new}' for old, new in drift.renames)}.")
    return told
