"""What a view is: its text taken apart into relations, a condition and outputs."""

from strandline.views.definition.definition import Occurrence, Shape, ViewDefinition
from strandline.views.definition.parse import define, flattened
from strandline.views.definition.regenerated import computed, query_sql, with_views

__all__ = ["Occurrence", "Shape", "ViewDefinition", "computed", "define", "flattened", "query_sql", "with_views"]
