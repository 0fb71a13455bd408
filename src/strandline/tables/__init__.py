"""Rows on shadow pages: tables of a store.

PageCache                      decoded pages, shared by everything below
TableInstaller, TableValidator what `pages.create_store` and `open_store` want
TableTransaction               the verbs of a transaction
TableReader                    one table at one state: columns, condition, Arrow
"""

from strandline.tables.changes import (
    RowShape,
    changed_rows,
    changes_of_shapes,
    common_shape,
    in_shape,
    net_rows,
    rows_of_pairs,
    same_table,
    table_changes,
    under_names_of,
)
from strandline.tables.incoming_rows import check_distinct, check_not_null, fitted, repeatable, taken_keys
from strandline.tables.keys import (
    IntegerKeys,
    after_prefix,
    check_key_types,
    decode_first,
    encode_key,
    encode_keys,
    encode_prefixes,
    encode_rows,
    number_array,
    repeats,
    row_of,
    show_keys,
    sort_order,
)
from strandline.tables.page import Columns, OpenedPage, check_storable
from strandline.tables.page_cache import KEPT_ROWS, PageCache, Remembered
from strandline.tables.page_files import PageFiles, files_of_table, query_over
from strandline.tables.page_update import TableInstaller
from strandline.tables.page_writer import SMALL_WRITES, Limits
from strandline.tables.predicates import ALL, MOST_POINTS, KeyBounds, TableExpression, condition_of, key_bounds
from strandline.tables.query import Query, is_defined_here, names_meant, own_names, relations_called, spark_query
from strandline.tables.routing import DELETE
from strandline.tables.row_changes import FRESH, NONE, Delta, Expected, UpdateStatement, ordered_delta
from strandline.tables.row_layout import (
    COUNT,
    NUMBER,
    SIGNATURE,
    RowLayout,
    added,
    keyed_changes,
    numbers_held,
    put_and_gone,
    removed,
    signed_rows,
)
from strandline.tables.scan import (
    TableReader,
    TableRelation,
    find_table,
    key_column_bounds,
    objects_of,
    page_frame,
    reached,
    release_with,
    table_relation,
    tables_hint,
)
from strandline.tables.schema import (
    COPIES,
    DIFFERENCE,
    PREFIX,
    ROW,
    SEGMENTS,
    STORED,
    VIEWS,
    WHAT_IFS,
    Column,
    TableSchema,
    holds,
    is_of_views,
    widened,
)
from strandline.tables.transaction import NOT_USERS, TableTransaction, entered_transaction
from strandline.tables.update import Assignments, assignments, refuse_absent, settle_counts
from strandline.tables.validation import Footprint, TableValidator
