"""Hypothetical relations: what-if tables over a live base (Woodfill & Stonebraker 1983).

WhatIf                         a what-if as users hold it
create_what_if, open_what_if   on a table or another what-if; listed
DatingInstaller                what a store wraps its tables' installer in: it gives tuples their dates
is_hidden                      whether a table of the store is one of ours
"""

from strandline.whatif.catalogue import is_hidden
from strandline.whatif.installing import DatingInstaller
from strandline.whatif.keeping import Listed, listed
from strandline.whatif.what_if import WhatIf, create_what_if, open_what_if

__all__ = ["DatingInstaller", "Listed", "WhatIf", "create_what_if", "is_hidden", "listed", "open_what_if"]
