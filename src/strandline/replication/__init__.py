"""Keeping copies elsewhere: one `Copy`, two senders, one file for each kind of target."""

from strandline.replication.annotated_base import Base, base, bases
from strandline.replication.copy import Copy, dropped_on_error
from strandline.replication.definition import ABOVE, UPTO
from strandline.replication.explanation import Explanation
from strandline.replication.message import Position
from strandline.replication.senders import (
    BASE_DIALECTS,
    BaseCopyRecord,
    BaseMessages,
    BaseSite,
    BaseTable,
    Refresh,
    ViewSender,
    annotate,
    check_history,
    copy_definition,
    define_copy,
    describe,
    differential,
    fix_up_base,
    obstacle,
    offer,
    opened,
    source_of,
)
from strandline.replication.stored_view import StoredView, drop_rows, lag_of_rows, released_on_error, store_rows
from strandline.replication.targets import open_target
from strandline.replication.verification import Verification
