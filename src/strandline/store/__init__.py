"""A store of tables, as users hold it: `Store`, `Table`, `Snapshot`. They only delegate.

Taking snapshots, branching, listing, dropping never start Spark; reading many rows may.
"""

from strandline.store.declared_views import materialized_view, order_of_views
from strandline.store.dependents import Dropped, standing_on
from strandline.store.export import Exported
from strandline.store.freshness import copies_together, due_copies, first_of
from strandline.store.history import StoreChanges, TableDescription
from strandline.store.open_store import create, create_on, open, open_on
from strandline.store.snapshot import Snapshot, table_sizes
from strandline.store.store import ATTEMPTS, Store, TemporaryStore
from strandline.store.table import Table
from strandline.store.view import View, ViewListing
from strandline.store.what_if import WhatIf
