"""Remote views by difference tables (Chao, Diehr & Saharia 1996).

View, Copy                     a view, and a copy of it, as users hold them
create_view, open_view         by name; list_views, drop_view
copies, open_copy              the copies of a store
define, Definition             what a view is: select, project, inner joins
"""

from strandline.views.copy import Copy
from strandline.views.defining import define
from strandline.views.definition import Definition, Occurrence, Output, Shape
from strandline.views.view import Listed, View, copies, create_view, drop_view, list_views, open_copy, open_view

__all__ = [
    "Copy",
    "Definition",
    "Listed",
    "Occurrence",
    "Output",
    "Shape",
    "View",
    "copies",
    "create_view",
    "define",
    "drop_view",
    "list_views",
    "open_copy",
    "open_view",
]
