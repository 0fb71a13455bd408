"""Names that views and what-ifs keep in a store for themselves: tables and snapshots that users are not shown.

They are known here, below both, so that listing tables and snapshots, or naming a table, loads nothing of theirs.
"""

from __future__ import annotations

VIEWS, COPIES, PREFIX = "_views", "_view_copies", "_view."
SEGMENTS = f"{PREFIX}segments"
DIFFERENCE = f"{PREFIX}difference."

WHAT_IFS = "_what_ifs"
NAMED = {WHAT_IFS: "what-if", VIEWS: "view"}
"""Tables that list what is named like a table by its `name`, which is their key; and what they list."""


def is_of_views(name: str) -> bool:
    """Whether a table or a snapshot belongs to views and their copies."""
    return name in (VIEWS, COPIES) or name.startswith(PREFIX)
