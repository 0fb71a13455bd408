"""What DuckDB's own parser makes of a text, so that what is taken apart here is what DuckDB would compute.

sqlglot translates between dialects, so it reads meaning into functions: the key of a JSON value becomes a path, a
column that is named as a unit of time becomes that unit, arguments that it does not know are dropped. To DuckDB these
are other expressions. In `StrandlineDuckDB` such functions stay calls by their names, and keys stay texts.

sqlglot and DuckDB also group some operators differently, and know other words. A text whose tree, written again, DuckDB
reads otherwise than the text itself is read from DuckDB's own writing of it, which has all its parentheses. Where even
that is read otherwise, it is refused, and so is what is a mistake to DuckDB: sqlglot also reads other dialects, and
passes over words that it doesn't expect. So no text of a user ever means something else here than to DuckDB.

Statements that are no SELECT to DuckDB's parser, as is one with a PIVOT whose columns follow from the rows, it can't
tell: they are read as sqlglot reads them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import TokenType, exp, parse, tokenize
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from strandline.values.duckdb_functions import CLOCKS, connections
from strandline.values.sql import quoted

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


@dataclass(frozen=True)
class TextToParse:
    """The text itself, or DuckDB's own writing of it where only that is read here as there; none if neither is, or if
    it is a `mistake` to DuckDB.
    """

    text: str | None
    mistake: str = ""


@lru_cache(maxsize=1024)
def text_to_parse(sql: str) -> TextToParse:
    """What of a text is to be parsed here."""
    tree = _one_tree(sql)
    if tree is None:
        return TextToParse(sql)
    is_query, theirs = isinstance(tree, exp.Query), _with_dollars(sql, tree)
    record = _parsed(theirs, query=is_query)
    if record["error"]:
        theirs = _with_dollars(_with_names_quoted(sql, tree), tree)
        record = _parsed(theirs, query=is_query) | {"error_message": record["error_message"]}
    if record["error"]:
        statement = _parsed(theirs)
        is_mistake = statement["error"] and statement["error_type"] != _NO_SELECT
        return TextToParse(None, str(record["error_message"])) if is_mistake else TextToParse(sql)
    expected = _plain(record["statements"])
    if _meaning_of(tree) == expected:
        return TextToParse(sql)
    again = _written_by_duckdb(theirs, query=is_query)
    tree = _one_tree(again)
    return TextToParse(again if tree is not None and _meaning_of(tree) == expected else None)


_NO_SELECT = "not implemented"
_QUOTE = '"'


def meaning(sql: str, *, query: bool = True) -> Any:
    """What DuckDB's parser makes of a query or an expression; None where that is a mistake to it."""
    record = _parsed(sql, query=query)
    return None if record["error"] else _plain(record["statements"])


def _meaning_of(tree: exp.Expr) -> Any:
    dollars = tree.transform(_with_dollar)
    return meaning(dollars.sql(dialect="duckdb", identify=True, comments=False), query=isinstance(tree, exp.Query))


def _with_dollar(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Placeholder) and node.this:
        return exp.Parameter(this=exp.Var(this=node.name))
    return node


def _one_tree(sql: str) -> exp.Expr | None:
    try:
        trees = statements(sql)
    except SqlglotError:
        return None
    return trees[0] if len(trees) == 1 else None


def _with_names_quoted(sql: str, tree: exp.Expr) -> str:
    """The text with quotes around its names: columns may be called by words that DuckDB has other uses for, as `at`."""
    names = [node.meta for node in tree.find_all(exp.Identifier) if "start" in node.meta]
    for start, end in sorted({(one["start"], one["end"] + 1) for one in names}, reverse=True):
        name = sql[start:end]
        sql = f"{sql[:start]}{name if name[0] == _QUOTE else quoted(name)}{sql[end:]}"
    return sql


def _with_dollars(sql: str, tree: exp.Expr) -> str:
    """The text with `$name` for each `:name` that is a parameter, which is how DuckDB writes them."""
    names = {place.name for place in tree.find_all(exp.Placeholder) if place.this}
    if not names:
        return sql
    tokens, text, at = tokenize(sql, dialect=StrandlineDuckDB), "", 0
    for before, token in pairwise(tokens):
        if before.token_type == TokenType.COLON and before.end + 1 == token.start and token.text in names:
            text, at = f"{text}{sql[at : before.start]}$", token.start
    return text + sql[at:]


def _wrapped(sql: str, *, query: bool) -> str:
    return sql if query else f"SELECT ({sql}\n)"


def _parsed(sql: str, *, query: bool = True) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(
        connections.get().execute("SELECT json_serialize_sql(?::VARCHAR)", [_wrapped(sql, query=query)])[0][0]
    )
    return record


def _written_by_duckdb(sql: str, *, query: bool) -> str:
    written = connections.get().execute(
        "SELECT json_deserialize_sql(json_serialize_sql(?::VARCHAR))", [_wrapped(sql, query=query)]
    )[0][0]
    text = _as_people_write(str(written))
    return text if query else text.removeprefix("SELECT ")


def _as_people_write(text: str) -> str:
    """DuckDB's writing without the forms that only DuckDB knows: whether it still means the same is looked at after."""
    text = text.replace("count_star()", "count(*)")
    tree = _one_tree(text) if f"AS {_ROWS}" in text else None
    if tree is None:
        return text
    for values in list(tree.find_all(exp.Values)):
        around = values.find_ancestor(exp.Subquery)
        if values.alias == _ROWS and around is not None and around.alias:
            values.set("alias", around.args["alias"].copy())
            around.replace(values.copy())
    return tree.sql(dialect=StrandlineDuckDB)


_ROWS = "valueslist"
"""What DuckDB calls the rows of a VALUES around which it writes a query."""


_PLACES = frozenset(("query_location", "query_location_length", "qualified_name", "syntax_type", "is_operator"))
_NO_ALIAS = ("alias", "")
_SAME_FUNCTIONS = {
    **dict.fromkeys(("**", "^", "pow"), "power"),
    "array_append": "list_append",
    "array_prepend": "list_prepend",
    "datetrunc": "date_trunc",
}
_WITHOUT_PARENTHESES = {
    "today": "current_date",
    "get_current_time": "current_time",
    "current_localtimestamp": "localtimestamp",
    **{name: name for name in ("current_catalog", "session_user")},
    **{name: name for name in CLOCKS},
}
"""Functions that are written like columns."""
_NEGATED = {
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
    "COMPARE_NOT_IN": "COMPARE_IN",
    "COMPARE_NOT_BETWEEN": "COMPARE_BETWEEN",
}
_TRUE = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": "BOOLEAN", "text": "true"}}
_NUMBER = re.compile(r"-?[\d_]*\d[\d_]*(\.\d*)?(e[-+]?\d+)?|-?\.\d+(e[-+]?\d+)?", re.IGNORECASE)
_UNITS = re.compile(r"\s*([-+]?\d+)\s*([a-z]+?)s?\s*", re.IGNORECASE)


def _plain(node: Any) -> Any:
    """A tree of DuckDB's parser without places in the text, and with one form for what is the same to it."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    plain = {name: _plain(value) for name, value in node.items() if name not in _PLACES and (name, value) != _NO_ALIAS}
    alias = plain.pop("alias", None)
    found = _one_form(plain)
    return found if alias is None else (alias, found)


def _one_form(plain: dict[str, Any]) -> Any:
    kind = str(plain.get("type"))
    if kind in _NEGATED:
        inner = {**plain, "type": _NEGATED[kind], "class": "OPERATOR"}
        return {"class": "OPERATOR", "type": "OPERATOR_NOT", "children": [inner]}
    if "function_name" in plain:
        return _plain_call(plain)
    if plain.get("class") == "CAST":
        return _plain_cast(plain)
    if "type_name" in plain:
        plain["type_name"] = _types().get(plain["type_name"].lower(), plain["type_name"].lower())
        if plain["type_name"] == "varchar":
            plain["children"] = []  # DuckDB ignores lengths of texts
    if kind == "JOIN" and _is_cross(plain):
        return {**plain, "ref_type": "CROSS", "condition": None, "is_implicit": False}
    if "null_order" in plain:
        plain["null_order"] = plain["null_order"].replace("ORDER_DEFAULT", "NULLS LAST")
        plain["type"] = kind.replace("ORDER_DEFAULT", "ASCENDING")
    if (
        kind == "VALUE_CONSTANT"
        and plain["literal"]["kind"] != "STRING"
        and _NUMBER.fullmatch(str(plain["literal"].get("text")))
    ):
        plain["literal"]["text"] = str(Decimal(plain["literal"]["text"].replace("_", "")))
    if kind == "COLUMN_REF" and plain["column_names"][0].lower() in _WITHOUT_PARENTHESES:
        return (_WITHOUT_PARENTHESES[plain["column_names"][0].lower()],)
    return plain


def _is_cross(join: dict[str, Any]) -> bool:
    """Whether a join is one of all rows with all, however that is said."""
    every = join["ref_type"] == "CROSS" or (join["ref_type"] == "REGULAR" and join["condition"] == _TRUE)
    return bool(every and join["join_type"] == "INNER")


def _plain_call(node: dict[str, Any]) -> Any:
    name = str(node["function_name"]).lower()
    name = _aliases().get(name, name)
    node["function_name"] = name = _SAME_FUNCTIONS.get(name, name)
    arguments = [one["expression"] for one in node.get("arguments", ())]
    if name in _WITHOUT_PARENTHESES and not arguments:
        return (_WITHOUT_PARENTHESES[name],)
    if name == "+" and len(arguments) == 1 and _is_number(arguments[0]):
        return arguments[0]
    if name in ("bool_and", "bool_or") and _type_of_cast(arguments[0]) == "boolean":
        node["arguments"] = [{"name": "", "expression": arguments[0]["child"]}]
    if name == "string_agg" and len(arguments) == 1:
        node["arguments"] = [*node["arguments"], {"name": "", "expression": _literal("STRING", ",")}]
    if name == "list_value":
        return {"class": "OPERATOR", "type": "ARRAY_CONSTRUCTOR", "children": arguments}
    if name in ("ifnull", "nvl"):
        return {"class": "OPERATOR", "type": "OPERATOR_COALESCE", "children": arguments}
    if name == "if" and len(arguments) == 3:
        check = {"when_expr": arguments[0], "then_expr": arguments[1]}
        return {"class": "CASE", "type": "CASE_EXPR", "case_checks": [check], "else_expr": arguments[2]}
    if name in ("date_trunc", "date_part") and isinstance(arguments[0], dict) and (unit := arguments[0].get("literal")):
        unit["text"] = str(unit["text"]).lower()
    if name in ("range", "generate_series") and len(arguments) == 1:
        node["arguments"] = [{"name": "", "expression": _literal("INTEGER", "0")}, *node["arguments"]]
    if name.startswith("to_") and len(arguments) == 1:
        length = _constant(arguments[0])
        if length is not None and length.isdecimal():
            return ("interval", str(int(length)), name.removeprefix("to_").removesuffix("s"))
    return node


def _plain_cast(node: dict[str, Any]) -> Any:
    if _type_of_cast(node) == "interval":
        text = _constant(node["child"])
        length = None if text is None else _UNITS.fullmatch(text)
        if length is not None:
            return ("interval", str(int(length[1])), length[2].lower())
    return node


def _type_of_cast(node: dict[str, Any]) -> str | None:
    kind: str | None = node["type_expr"]["type_name"] if node.get("class") == "CAST" else None
    return kind


def _is_number(node: Any) -> bool:
    return isinstance(node, dict) and "literal" in node and node["literal"]["kind"] != "STRING"


def _literal(kind: str, text: str) -> dict[str, Any]:
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": kind, "text": text}}


def _constant(node: Any) -> str | None:
    """The text of a constant, under the casts that make a number of it."""
    while isinstance(node, dict):
        if "literal" in node:
            return str(node["literal"].get("text"))
        inner = node.get("child") if node.get("class") == "CAST" else None
        if node.get("function_name") == "trunc":
            inner = node["arguments"][0]["expression"]
        node = inner
    return None


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    rows = connections.get().execute(
        "SELECT DISTINCT function_name, alias_of FROM duckdb_functions() WHERE alias_of IS NOT NULL"
    )
    return {name: original for name, original in rows}  # noqa: C416


@lru_cache(maxsize=1)
def _types() -> dict[str, str]:
    rows = connections.get().execute("SELECT DISTINCT type_name, logical_type FROM duckdb_types()")
    return {name.lower(): kind.lower() for name, kind in rows if name.lower() != "json"}
