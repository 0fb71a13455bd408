"""What a view is: its text taken apart into relations, a condition and outputs."""

from strandline.views.definition.definition import (
    Occurrence,
    QualifiedColumn,
    Shape,
    ViewDefinition,
    conjuncts,
    sql_text,
    unqualified,
)
from strandline.views.definition.parse import define, equalities_of, flattened
from strandline.views.definition.regenerated import computed, query_sql, with_views

__all__ = [
    "Occurrence",
    "QualifiedColumn",
    "Shape",
    "ViewDefinition",
    "computed",
    "conjuncts",
    "define",
    "equalities_of",
    "flattened",
    "query_sql",
    "sql_text",
    "unqualified",
    "with_views",
]
