"""Remote views by difference tables (Chao, Diehr & Saharia 1996).

define, Definition             what a view is: select, project, inner joins
"""

from strandline.views.defining import define
from strandline.views.definition import Definition, Occurrence, Output, Shape

__all__ = ["Definition", "Occurrence", "Output", "Shape", "define"]
