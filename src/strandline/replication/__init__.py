"""Keeping copies elsewhere: one protocol, two senders, one file for each kind of target."""

from strandline.replication.definition import ABOVE, UPTO
from strandline.replication.message import Position
from strandline.replication.senders import (
    Base,
    BaseCopyRecord,
    BaseSite,
    BaseTable,
    Copy,
    Sending,
    base,
    bases,
    check_history,
    define_copy,
    describe,
    differential,
    fix_up_base,
    held,
    obstacle,
    offer,
    opened,
)
from strandline.replication.targets import open_replica

__all__ = [
    "ABOVE",
    "UPTO",
    "Base",
    "BaseCopyRecord",
    "BaseSite",
    "BaseTable",
    "Copy",
    "Position",
    "Sending",
    "base",
    "bases",
    "check_history",
    "define_copy",
    "describe",
    "differential",
    "fix_up_base",
    "held",
    "obstacle",
    "offer",
    "open_replica",
    "opened",
]
