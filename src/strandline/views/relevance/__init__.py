"""Whether a changed row can matter to a view (section 3 of Chao, Diehr and Saharia): proofs by satisfiability."""

from strandline.views.relevance.relevance import mask
from strandline.views.relevance.verdict import Why, why

__all__ = ["Why", "mask", "why"]
