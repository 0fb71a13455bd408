"""DuckDB's SQL as users write it: what is parsed is written back in the same words, where sqlglot has other ones.

sqlglot translates between dialects, so it reads meaning into functions: the key of a JSON value becomes a path, a
column that is named as a unit of time becomes that unit, arguments that it does not know are dropped. To DuckDB these
are other expressions. Here such functions stay calls by their names, keys stay texts, and NOT keeps its parentheses.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

_REWRITTEN = frozenset(
    (
        *("ARRAY_HAS_ALL", "LIST_HAS_ALL", "LIST_HAS_ANY", "REDUCE", "DECODE", "TIME_BUCKET"),
        *("DATEDIFF", "DATE_DIFF", "DATE_ADD", "LOG10", "LOG2", "MOD"),
        *("JAROWINKLER_SIMILARITY", "JARO_WINKLER_SIMILARITY", "LPAD", "RPAD"),
        *("JSON_EXTRACT", "JSON_EXTRACT_ARRAY", "JSON_EXTRACT_PATH", "JSON_EXTRACT_PATH_TEXT"),
        *("JSON_EXTRACT_SCALAR", "JSON_EXTRACT_STRING"),
        *("REGEXP_EXTRACT", "REGEXP_EXTRACT_ALL", "REGEXP_REPLACE"),
    )
)
_TRUNCATIONS = ("DATE_TRUNC", "DATETRUNC")


def _truncation(name: str) -> Any:
    """Of a constant unit a truncation, which keeps the order of instants; otherwise a call like any other."""

    def build(arguments: list[exp.Expr]) -> exp.Expr:
        if arguments and isinstance(arguments[0], exp.Literal):
            truncation: exp.Expr = DuckDB.Parser.FUNCTIONS[name](arguments)
            return truncation
        return exp.Anonymous(this=name, expressions=arguments)

    return build


class StrandlineDuckDB(DuckDB):
    """The dialect in which texts of users are parsed."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path

    class Parser(DuckDB.Parser):  # type: ignore[valid-type, misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **{name: build for name, build in DuckDB.Parser.FUNCTIONS.items() if name not in _REWRITTEN},
            **{name: _truncation(name) for name in _TRUNCATIONS},
        }


def statements(sql: str) -> list[exp.Expr]:
    """The statements of a text."""
    return [_with_parentheses(tree) for tree in sqlglot.parse(sql, dialect=StrandlineDuckDB) if tree is not None]


def _with_parentheses(tree: exp.Expr) -> exp.Expr:
    """The tree with parentheses around each NOT inside a comparison or an operation, which binds more than it."""
    for node in list(tree.find_all(exp.Not)):
        if isinstance(node.parent, exp.Binary) and not isinstance(node.parent, exp.Connector):
            node.replace(exp.Paren(this=node.copy()))
    return tree
