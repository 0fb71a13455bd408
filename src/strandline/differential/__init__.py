"""What changed between two relations (Labio and Garcia-Molina 1996): the plan, its cost, five algorithms."""

from strandline.differential.differential import Differential, DiffRun, diff, find_changes, window_raw
from strandline.differential.options import DiffKeywords, share
from strandline.differential.signatures import is_state
