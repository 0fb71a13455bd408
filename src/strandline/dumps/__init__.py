"""Multi-level incremental dumps, taken while writers work (Ylönen et al., section 4.2); see docs/dumps.md.

    dump(store, "backups", level=1) → Dump
    restore("backups", "shop2", at=…) → Restored
    Dumps("backups").entries() / .verify() / .prune("7 daily, 4 weekly") / .synthesize() / .due("weekly=0, daily=1")

To read the source: `facts` (what a dump says), `plan` (what it shall hold), `writing` (how it becomes a dump),
`chain` (several dumps as one), `rebuild` (a store from them).
"""

from strandline.dumps.catalog import DumpEntry
from strandline.dumps.dump import Dump
from strandline.dumps.dumps import Dumps, dump, restore
from strandline.dumps.manifest import DumpManifest, DumpScope
from strandline.dumps.prune import SCHEDULE, Pruned
from strandline.dumps.restore import Restored
from strandline.dumps.verify import Damage, Verified

__all__ = [
    "SCHEDULE",
    "Damage",
    "Dump",
    "DumpEntry",
    "DumpManifest",
    "DumpScope",
    "Dumps",
    "Pruned",
    "Restored",
    "Verified",
    "dump",
    "restore",
]
