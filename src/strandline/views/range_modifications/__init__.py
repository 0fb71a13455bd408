"""Range modifications (the conclusions of Chao, Diehr and Saharia): an update of many rows is sent as the statement."""

from strandline.views.range_modifications.range_modification import (
    LEAST_ROWS,
    RangeStatement,
    audience,
    statements_of_commit,
)
