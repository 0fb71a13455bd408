"""The window algorithm (section 4 of Labio and Garcia-Molina): each snapshot is read exactly once."""

from strandline.differential.window.algorithm import window
from strandline.differential.window.options import (
    POSITION,
    Messages,
    WindowOptions,
    WindowReport,
    displacement,
    distance,
)

__all__ = ["POSITION", "Messages", "WindowOptions", "WindowReport", "displacement", "distance", "window"]
