"""What sends to copies: views of a store, and annotated base tables."""

from strandline.replication.senders.annotated import (
    BASE_DIALECTS,
    AnnotatedSender,
    BaseCatalog,
    BaseCopyRecord,
    BaseMessages,
    BaseRecord,
    BaseSite,
    BaseTable,
    annotate,
    check_algorithm,
    check_history,
    check_same,
    define_copy,
    definition_of,
    describe,
    differential,
    fill,
    fix_up_base,
    move_copy,
    obstacle,
    offer,
    opened,
    release_base,
    wanted_copy,
)
from strandline.replication.senders.sender import AUTO, FIRST, FULL, NOTHING, REPAIR, Refresh, Sender, Source
from strandline.replication.senders.view import DIFFERENCE, NO_START, ViewSender, copy_definition, source_of
