"""What sends to copies: views of a store, and annotated base tables."""

from strandline.replication.senders.annotated import (
    Base,
    BaseCopyRecord,
    BaseSite,
    BaseTable,
    Sending,
    base,
    bases,
    check_history,
    define_copy,
    describe,
    differential,
    fix_up_base,
    obstacle,
    offer,
    opened,
)
from strandline.replication.senders.view import Copy, held

__all__ = [
    "Base",
    "BaseCopyRecord",
    "BaseSite",
    "BaseTable",
    "Copy",
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
    "opened",
]
