"""Proofs of irrelevance in words: terms and values as a person writes them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.values import quoted_text

if TYPE_CHECKING:
    from sqlglot import exp

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 60


def readable(tree: exp.Expr) -> str:
    """A term without needless quotes, with ≤, ≥ and ≠."""
    from sqlglot import exp

    tree = tree.unnest()
    signs: dict[type[exp.Expr], str] = {exp.LTE: "≤", exp.GTE: "≥", exp.NEQ: "≠"}
    if type(tree) in signs:
        return f"{_text(tree.this)} {signs[type(tree)]} {_text(tree.expression)}"
    return _text(tree)


def row_facts(trees: Iterable[exp.Expr], alias: str, row: Mapping[str, Any]) -> str:
    """What the changed row holds in the columns that these terms read."""
    from sqlglot import exp

    columns = (column for tree in trees for column in tree.find_all(exp.Column) if column.table == alias)
    values = [f"{_text(column)} {_value(row.get(column.name))}" for column in columns]
    return " and ".join(dict.fromkeys(values))


def contradiction_text(terms: Sequence[str], facts: str) -> str:
    """That terms can't all hold, given what the row holds (`facts`; empty: whatever it holds)."""
    conjunction = " and ".join(terms)
    if facts:
        return f"{conjunction} {'contradicts' if len(terms) == 1 else 'contradict'} {facts}"
    return f"{conjunction} can't {'hold' if len(terms) == 1 else 'both hold' if len(terms) == 2 else 'all hold'}"


def _text(tree: exp.Expr) -> str:
    from sqlglot import exp

    shown = tree.copy()
    for name in shown.find_all(exp.Identifier):
        name.set("quoted", _PLAIN.fullmatch(name.name) is None)
    return shown.sql(dialect="duckdb", comments=False)


def _value(value: Any) -> str:
    if value is None:
        return "is NULL"
    if isinstance(value, bool):
        return f"is {str(value).lower()}"
    if isinstance(value, str):
        text = quoted_text(value)
    else:
        text = value.isoformat(" ") if isinstance(value, dt.datetime) else str(value)
    return f"= {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}"
