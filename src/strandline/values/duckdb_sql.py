"""DuckDB's SQL as users write it: what is parsed is written back in the same words, where sqlglot has other ones.

sqlglot translates between dialects, so it reads meaning into functions: the key of a JSON value becomes a path, a
column that is named as a unit of time becomes that unit, arguments that it does not know are dropped. To DuckDB these
are other expressions. Here such functions stay calls by their names, and keys stay texts. Operators group as sqlglot
groups them: a user's text is compared with what DuckDB makes of it (`duckdb_meaning`), and read from DuckDB's own
writing, with all its parentheses, where that differs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, parse
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

_REWRITTEN = frozenset(
    (
        *("ARRAY_HAS_ALL", "LIST_HAS_ALL", "LIST_HAS_ANY", "REDUCE", "DECODE", "TIME_BUCKET"),
        *("DATEDIFF", "DATE_DIFF", "DATE_ADD", "LOG10", "LOG2", "MOD"),
        *("JAROWINKLER_SIMILARITY", "JARO_WINKLER_SIMILARITY", "LPAD", "RPAD"),
        *("JSON_EXTRACT", "JSON_EXTRACT_ARRAY", "JSON_EXTRACT_PATH", "JSON_EXTRACT_PATH_TEXT"),
        *("JSON_EXTRACT_SCALAR", "JSON_EXTRACT_STRING"),
        *("REGEXP_EXTRACT", "REGEXP_EXTRACT_ALL", "REGEXP_REPLACE"),
        *("ARRAY_REVERSE_SORT", "ARRAY_SORT", "LIST_REVERSE_SORT", "LIST_SORT"),
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


def _unary_plus(parser: Any) -> exp.Expr | None:
    """To DuckDB it is a function, which not all types have: a list without rows for NULL, for one."""
    operand: exp.Expr | None = parser._parse_unary()
    is_plain = operand is None or (isinstance(operand, exp.Literal) and not operand.is_string)
    return operand if is_plain else exp.Anonymous(this="+", expressions=[operand])


class StrandlineDuckDB(DuckDB):
    """The dialect in which texts of users are parsed."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path

    class Parser(DuckDB.Parser):  # type: ignore[valid-type, misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **{name: build for name, build in DuckDB.Parser.FUNCTIONS.items() if name not in _REWRITTEN},
            **{name: _truncation(name) for name in _TRUNCATIONS},
            "COUNT": lambda given: DuckDB.Parser.FUNCTIONS["COUNT"](given or [exp.Star()]),
        }
        UNARY_PARSERS: ClassVar[dict[TokenType, Any]] = {**DuckDB.Parser.UNARY_PARSERS, TokenType.PLUS: _unary_plus}


def statements(sql: str) -> list[exp.Expr]:
    """The statements of a text."""
    return [tree for tree in parse(sql, dialect=StrandlineDuckDB) if tree is not None]
