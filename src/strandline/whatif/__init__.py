"""Hypothetical relations: what-if tables over a live base (Woodfill & Stonebraker 1983).

new_what_if, purge, drop, …     what-ifs on a table or another what-if, and their list
WhatIfReader, WhatIfRelation    a what-if at a state: its rows, and the same as a relation
insert, upsert, update, …       the verbs, each inside `run_transaction`
compare, merge_what_if, rebase  a what-if beside the relation below it, conflicts, merging
changes_between, rows_between   what changed in a what-if from one state to another; the rows that can have
definitions, chain_of           the catalog: all what-ifs of a state; one with all that it stands on
is_what_if, is_of_what_ifs      whether a name is a what-if's; whether a table of the store is one of ours
"""

from strandline.whatif.catalog import CATALOG, IDS, WhatIfChain, chain_of, definitions, is_of_what_ifs, is_what_if
from strandline.whatif.changes import changes_between, rows_between
from strandline.whatif.conflicts import Resolve, compare, conflict_table, what_if_changes
from strandline.whatif.lifecycle import WhatIfListing, drop, listed, new_what_if, purge
from strandline.whatif.merge import merge_what_if, rebase
from strandline.whatif.scan import WhatIfReader, WhatIfRelation, relation_of, what_if_relation
from strandline.whatif.transaction import WhatIfHost, commit_of, run_transaction
from strandline.whatif.tuples import INFINITY, LEVEL, MAXDATE, MINDATE, STORED, TUPNUM, TYPE, Type, stored_name
from strandline.whatif.writes import apply, delete, insert, update, upsert
