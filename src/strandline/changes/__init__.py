"""The change set: its shape, its algebra, its files."""

from strandline.changes.applied import Applied
from strandline.changes.changes import Changes
from strandline.changes.shape import ChangeSet, Counts, Header
from strandline.changes.summary import Summary

__all__ = ["Applied", "ChangeSet", "Changes", "Counts", "Header", "Summary"]
