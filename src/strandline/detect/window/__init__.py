"""The window algorithm (section 4 of Labio and Garcia-Molina): each snapshot is read exactly once."""

from strandline.detect.window.algorithm import window
from strandline.detect.window.options import POSITION, Messages, WindowOptions, WindowReport
from strandline.detect.window.settle import Settlement, settle

__all__ = ["POSITION", "Messages", "Settlement", "WindowOptions", "WindowReport", "settle", "window"]
