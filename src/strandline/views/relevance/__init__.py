"""Whether a changed row can matter to a view (the relevance check of Chao, Diehr and Saharia).

relevance.py           the test of a row: where irrelevance is proved; `view.why` tells the proof to a person
terms.py               the condition as a disjunction of conjunctions, and their terms as inequalities x ≤ y + c
comparison_types.py    which comparisons are understood, and their values as integers
inequality_graph.py    the inequalities of a conjunction as a graph, and the Rosenkrantz-Hunt test of it
"""

from strandline.views.relevance.relevance import Why, mask, why
