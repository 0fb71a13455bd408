"""Annotated base tables: copies kept fresh by differential refresh (Lindsay et al. 1986)."""

from strandline.replication.senders.annotated.annotated_base import Base, base, bases, define_copy
from strandline.replication.senders.annotated.base_table import BaseTable, describe
from strandline.replication.senders.annotated.catalog import BaseCopyRecord
from strandline.replication.senders.annotated.copy import Refresh, opened
from strandline.replication.senders.annotated.delivery import check_history, obstacle
from strandline.replication.senders.annotated.fix_up import BaseSite, Sending, differential, fix_up_base, offer

__all__ = [
    "Base",
    "BaseCopyRecord",
    "BaseSite",
    "BaseTable",
    "Refresh",
    "Sending",
    "base",
    "bases",
    "check_history",
    "define_copy",
    "describe",
    "differential",
    "fix_up_base",
    "obstacle",
    "offer",
    "opened",
]
