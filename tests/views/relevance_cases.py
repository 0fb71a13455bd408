"""Random views for the relevance test, and what brute force says of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from hypothesis import strategies as st

from strandline.views.definition.definition import Occurrence, ViewDefinition

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


def definition_of(condition: str | None, **relations: str) -> ViewDefinition:
    """A view over aliases and their relations; what it shows plays no part in relevance."""
    tree = None if condition is None else sqlglot.parse_one(condition, dialect="duckdb")
    occurrences = tuple(Occurrence(alias, relation) for alias, relation in relations.items())
    return ViewDefinition("v", "select …", occurrences, tree, (), (), pa.schema([]))


@dataclass(frozen=True)
class Term:
    """`left op right + constant`; columns as (alias, name), None for nothing but the constant."""

    left: tuple[str, str]
    operator: str
    right: tuple[str, str] | None
    constant: Decimal

    def sql(self) -> str:
        left = ".".join(self.left)
        if self.right is None:
            return f"{left} {self.operator} {self.constant}"
        # Half of the terms are written as a difference.
        if self.constant % 2:
            return f"{left} - {'.'.join(self.right)} {self.operator} {self.constant}"
        return f"{left} {self.operator} {'.'.join(self.right)} + {self.constant}"

    def holds(self, value: Callable[[tuple[str, str]], Any], scale: int) -> Any:
        right = int(self.constant * scale) + (0 if self.right is None else value(self.right))
        return OPERATORS[self.operator](value(self.left), right)


def terms(columns: Sequence[tuple[str, str]], constants: Sequence[Decimal]) -> st.SearchStrategy[list[Term]]:
    one = st.builds(
        Term,
        st.sampled_from(columns),
        st.sampled_from(list(OPERATORS)),
        st.one_of(st.none(), st.sampled_from(columns)),
        st.sampled_from(constants),
    )
    return st.lists(one.filter(lambda term: term.left != term.right), min_size=1, max_size=6)


def satisfiable(conjunction: Sequence[Term], row: Mapping[str, int], others: Mapping[tuple[str, str], Any]) -> bool:
    """Brute force: whether values of the other occurrences make all terms true, the changed one being `a`.

    Everything is counted in tenths; `others` gives each column the values to try.
    """
    names = list(others)
    grids = dict(zip(names, np.meshgrid(*others.values(), indexing="ij", sparse=True), strict=True))
    found: Any = np.array(True)
    for term in conjunction:
        found = found & term.holds(lambda name: row[name[1]] if name[0] == "a" else grids[name], 10)
    return bool(np.any(found))
