"""Annotated base tables: copies kept fresh by differential refresh (Lindsay et al. 1986)."""

from strandline.replication.senders.annotated.annotation import (
    annotate,
    check_algorithm,
    check_same,
    define_copy,
    move_copy,
    release_base,
    wanted_copy,
)
from strandline.replication.senders.annotated.base_dialects import BASE_DIALECTS, describe
from strandline.replication.senders.annotated.base_table import BaseTable
from strandline.replication.senders.annotated.catalog import BaseCatalog, BaseCopyRecord, BaseRecord
from strandline.replication.senders.annotated.delivery import check_history, definition_of, obstacle
from strandline.replication.senders.annotated.fix_up import (
    BaseMessages,
    BaseSite,
    differential,
    fill,
    fix_up_base,
    offer,
    opened,
)
from strandline.replication.senders.annotated.sender import AnnotatedSender
