"""Rows on shadow pages: tables of a store.

PageCache                      decoded pages, shared by everything below
TableInstaller, TableValidator what `pages.create_store` and `open_store` want
TableTransaction               the verbs of a transaction
TableReader                    one table at one state: columns, condition, Arrow
"""

from strandline.tables.cache import PageCache
from strandline.tables.footprint import TableValidator
from strandline.tables.installer import TableInstaller
from strandline.tables.reading import TableReader
from strandline.tables.record import ROW, Record
from strandline.tables.transaction import TableTransaction

__all__ = ["ROW", "PageCache", "Record", "TableInstaller", "TableReader", "TableTransaction", "TableValidator"]
