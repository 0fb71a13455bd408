"""Rows on shadow pages: tables of a store.

PageCache                      decoded pages, shared by everything below
TableInstaller, TableValidator what `pages.create_store` and `open_store` want
TableTransaction               the verbs of a transaction
TableReader                    one table at one state: columns, condition, Arrow
"""

from strandline.tables.cache import PageCache
from strandline.tables.differences import table_changes
from strandline.tables.footprint import TableValidator
from strandline.tables.installer import TableInstaller
from strandline.tables.reading import TableReader
from strandline.tables.record import ROW, Record
from strandline.tables.relation import TableRelation, table_relation
from strandline.tables.revising import SMALL_WRITES, Limits
from strandline.tables.transaction import TableTransaction

__all__ = [
    "ROW",
    "SMALL_WRITES",
    "Limits",
    "PageCache",
    "Record",
    "TableInstaller",
    "TableReader",
    "TableRelation",
    "TableTransaction",
    "TableValidator",
    "table_changes",
    "table_relation",
]
