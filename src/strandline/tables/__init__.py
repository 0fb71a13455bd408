"""Rows on shadow pages: tables of a store.

PageCache                      decoded pages, shared by everything below
TableInstaller, TableValidator what `pages.create_store` and `open_store` want
TableTransaction               the verbs of a transaction
TableReader                    one table at one state: columns, condition, Arrow
"""

from strandline.tables.page_cache import PageCache
from strandline.tables.page_update import SMALL_WRITES, Limits, TableInstaller
from strandline.tables.scan import TableReader, TableRelation, table_relation
from strandline.tables.schema import ROW, TableSchema
from strandline.tables.table_changes import table_changes
from strandline.tables.transaction import TableTransaction
from strandline.tables.validation import TableValidator

__all__ = [
    "ROW",
    "SMALL_WRITES",
    "Limits",
    "PageCache",
    "TableInstaller",
    "TableReader",
    "TableRelation",
    "TableSchema",
    "TableTransaction",
    "TableValidator",
    "table_changes",
    "table_relation",
]
