"""The window algorithm (section 4 of Labio and Garcia-Molina): each snapshot is read exactly once."""

from strandline.differential.window.algorithm import Window
from strandline.differential.window.options import (
    Messages,
    WindowOptions,
    WindowReport,
    displacement,
    distance,
    with_positions,
)
