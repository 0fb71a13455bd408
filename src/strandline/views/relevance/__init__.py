"""Whether a changed row can matter to a view (the relevance check of Chao, Diehr and Saharia).

relevance.py           the test of a row: where irrelevance is proved
disjuncts.py           the condition as a disjunction of conjunctions
comparison_types.py    in which type DuckDB compares, for the comparisons that are understood
terms.py               a term of a conjunction as inequalities x ≤ y + c
inequality_graph.py    the inequalities of a conjunction as a graph, with the row's values in it
negative_cycles.py     the Rosenkrantz-Hunt test of that graph
ordered_values.py      which types can stand in inequalities, and their values as integers
explanation.py         `view.why`: the verdict and its proof, for a person
"""

from strandline.views.relevance.explanation import Why, why
from strandline.views.relevance.relevance import mask
