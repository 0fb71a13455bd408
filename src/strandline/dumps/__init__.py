"""Multi-level incremental dumps, taken while writers work (Ylönen et al., section 4.2); see docs/dumps.md.

    dump(store, "backups", level=1) → Dump
    restore("backups", "shop2", at=…) → Restored
    Dumps("backups").entries() / .verify() / .prune("7 daily, 4 weekly") / .synthesize() / .due("weekly=0, daily=1")

To read the source: `take_dump` (a dump from top to bottom), `plan` (which pages it copies), `write_dump` (how it
becomes a dump), `chain` (several dumps as one), `rebuild` (a store from them).
"""

from strandline.dumps.catalog import DumpEntry
from strandline.dumps.dumps import Dumps, draw, dump, restore
from strandline.dumps.prune import PERIODS, SCHEDULE, Pruned, kept_by, parse_rule, parse_schedule
from strandline.dumps.restore_store import Restored
from strandline.dumps.take_dump import Dump
from strandline.dumps.verify import Verified
