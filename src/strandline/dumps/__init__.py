"""Multi-level incremental dumps, taken while writers work; verifying, pruning, restoring them."""

from strandline.dumps.copying import Means
from strandline.dumps.dump import Dump, Request, make_dump
from strandline.dumps.facts import Scope
from strandline.dumps.restore import Restored, Wish, restore_store
from strandline.dumps.target import Target
from strandline.dumps.verify import Verified, verify

__all__ = [
    "Dump",
    "Means",
    "Request",
    "Restored",
    "Scope",
    "Target",
    "Verified",
    "Wish",
    "make_dump",
    "restore_store",
    "verify",
]
