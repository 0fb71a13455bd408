"""Where changes come from: two relations, saved signatures, page timestamps."""

from strandline.detect.diff import Differential, Run, diff, find_changes, window_raw
from strandline.detect.options import DiffOptions

__all__ = ["DiffOptions", "Differential", "Run", "diff", "find_changes", "window_raw"]
