"""What verbs ask of a change set before they start."""

from __future__ import annotations

from strandline.changes.shape import COUNTED, Header
from strandline.errors import ChangesError, NoBeforeImages


def require_before(header: Header, doing: str) -> None:
    """Refuses a keyed set without before images."""
    if header.form != COUNTED and not header.knows_before:
        raise NoBeforeImages(
            "the change set has no before images",
            doing=doing,
            hint="Make it with a differential that has the old rows at hand, as `diff` of two files does",
        )


def require_whole(header: Header, doing: str) -> None:
    """Refuses a partial set, naming the columns whose values it does not hold."""
    if not header.partial:
        return
    parts = [("added", header.added), ("removed", header.removed), ("retyped", header.retyped)]
    told = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    wanted = ", ".join(f"{name!r}: …" for name in (*header.added, *header.retyped))
    raise ChangesError(
        f"the change set is partial: it does not hold the columns that were {told}",
        doing=doing,
        hint=f"Say what new columns hold with fill={{{wanted}}}",
    )
