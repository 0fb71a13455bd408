"""Hypothetical relations: what-if tables over a live base (Woodfill & Stonebraker 1983).

WhatIf                         a what-if as users hold it
create_what_if, open_what_if   on a table or another what-if; listed
is_what_if, what_if_at         whether a state has a what-if of a name; that what-if, as a relation at that state
relation_of, commit_of         the same on a state that others hold; the scan time that a date means
definitions, what_if_readers   all what-ifs of a state, by name; how to read them as it has them
changes_between, rows_between  what changed in a what-if from one state to another; the rows that can have
DatingInstaller                what a store wraps its tables' installer in: it gives tuples their dates
is_hidden                      whether a table of the store is one of ours
"""

from strandline.whatif.catalog import definitions, is_hidden, is_what_if
from strandline.whatif.changes import changes_between, rows_between
from strandline.whatif.lifecycle import WhatIfListing, listed
from strandline.whatif.scan import WhatIfRelation, relation_of
from strandline.whatif.transaction import DatingInstaller, commit_of

__all__ = [
    "DatingInstaller",
    "WhatIfListing",
    "WhatIfRelation",
    "changes_between",
    "commit_of",
    "definitions",
    "is_hidden",
    "is_what_if",
    "listed",
    "relation_of",
    "rows_between",
]
