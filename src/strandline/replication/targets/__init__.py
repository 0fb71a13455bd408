"""Where copies are kept: one file for each kind of place, one conformance suite over all."""

from strandline.replication.targets.range_checksums import DIGITS, RangeChecksums
from strandline.replication.targets.sql_layout import own_name
from strandline.replication.targets.target import CopyTarget, open_target
