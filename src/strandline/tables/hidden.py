"""Names that views keep in a store for themselves: tables and snapshots that users are not shown.

They are known here, below the views, so that listing tables and snapshots loads nothing of theirs.
"""

from __future__ import annotations

VIEWS, COPIES, PREFIX = "_views", "_view_copies", "_view."
SEGMENTS = f"{PREFIX}segments"
DIFFERENCE = f"{PREFIX}difference."


def is_of_views(name: str) -> bool:
    """Whether a table or a snapshot belongs to views and their copies."""
    return name in (VIEWS, COPIES) or name.startswith(PREFIX)
