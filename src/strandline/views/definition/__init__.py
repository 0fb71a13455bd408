"""What a view is: its text taken apart into relations, a condition and outputs."""

from strandline.views.definition.accumulators import Accumulators
from strandline.views.definition.clock import (
    CLOCK_SHAPE,
    GREATEST,
    LEAST,
    ClockPassage,
    at_instants,
    clock_rows,
    instant_at,
    passage,
)
from strandline.views.definition.core import equalities_of, equated_columns, flattened
from strandline.views.definition.definition import (
    CLOCK,
    Occurrence,
    Operator,
    QualifiedColumn,
    Shape,
    ViewDefinition,
    sql_text,
    unqualified,
)
from strandline.views.definition.operator_outline import DeltaWork, computed_whole, outline
from strandline.views.definition.parse import define
from strandline.views.definition.regenerated import (
    computed,
    operator_over_relations,
    operator_rows,
    query_sql,
    with_views,
)
from strandline.views.definition.set_operations import UNION_ALL
