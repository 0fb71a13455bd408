"""Remote views by difference tables (Chao, Diehr & Saharia 1996).

View, Copy                     a view, and a copy of it, as users hold them
create_view, open_view         by name; list_views, drop_view
copies, open_copy              the copies of a store
define, Definition             what a view is: select, project, inner joins
"""

from strandline.views.definition.define import define
from strandline.views.definition.definition import Occurrence, OutputColumn, Shape, ViewDefinition

__all__ = [
    "Occurrence",
    "OutputColumn",
    "Shape",
    "ViewDefinition",
    "define",
]
