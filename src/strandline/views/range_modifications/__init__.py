"""Range modifications: an update by expression that is sent as the statement itself."""

from strandline.views.range_modifications.range_modification import WORTH, reader, statements
from strandline.views.range_modifications.range_statement import RangeStatement

__all__ = ["WORTH", "RangeStatement", "reader", "statements"]
