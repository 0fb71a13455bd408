"""DuckDB's functions: which give the same for the same rows, and which a text calls, as DuckDB itself reads it."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from functools import cache
from typing import Any

from strandline.engine import PerThread, sandboxed_duckdb
from strandline.values.sql import parse_written

PLAIN_CLASSES = frozenset(
    ("COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "FUNCTION", "OPERATOR", "CASE", "CAST", "BETWEEN")
) | {"COLLATE", "LAMBDA", "LAMBDA_REF", "TYPE"}
"""What a plain function of one row is made of, as DuckDB's parser calls it."""
_UNSTEADY = frozenset(
    ("version", "current_localtime", "current_localtimestamp", "generate_series", "alias", "json_serialize_plan")
)
"""Functions that DuckDB calls consistent although they read the clock or the session, or make several rows."""
_UNSTEADY_CALLS = frozenset((("age", 1),))
"""The same of one number of arguments: `age(x)` is `age(current_date, x)`."""
CLOCKS = frozenset(("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"))
"""Functions that are called without parentheses: DuckDB's parser takes them for columns."""
connections = PerThread(lambda: sandboxed_duckdb(threads=1))
"""Those in which expressions run: they see nothing but the rows that they are given."""


def parsed_nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a tree as DuckDB's `json_serialize_sql` writes it."""
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str):
            yield tree
        for child in tree.values():
            yield from parsed_nodes(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from parsed_nodes(child)


def is_aggregate(name: str) -> bool:
    """Whether DuckDB has an aggregate of this name."""
    return name.lower() in steady_functions("aggregate")


def unsteady_calls(query: str) -> list[str]:
    """What in a query may give something else for the same rows: the clock, chance, a sample, what is not known."""
    from sqlglot import exp

    tree = parse_written(query)
    text = tree.sql(dialect="duckdb", identify=True, comments=False)
    record = json.loads(connections.get().execute("SELECT json_serialize_sql(?)", [text])[0][0])
    if record["error"]:
        return [str(record.get("error_message", "unknown"))]
    calls = ["a sample"] if tree.find(exp.TableSample) is not None else []
    for node in parsed_nodes(record["statements"]):
        called = unsteady_call(node, steady_functions("scalar", "aggregate", "window"))
        if called is not None:
            calls.append(f"{called}()")
        if node["class"] == "COLUMN_REF" and node["column_names"][0].lower() in CLOCKS:
            calls.append(node["column_names"][0])
    return calls


def unsteady_call(node: dict[str, Any], steady: Container[str]) -> str | None:
    """The function that a node calls, if it is none of these or, called with so many arguments, gives now this and now
    that.
    """
    if node["class"] not in ("FUNCTION", "WINDOW"):
        return None
    name = str(node["function_name"])
    given = node["arguments"] if "arguments" in node else node["children"]  # as DuckDB 2 and 1 call them
    is_steady = name.lower() in steady and (name.lower(), len(given)) not in _UNSTEADY_CALLS
    return None if is_steady else name


@cache
def steady_functions(*kinds: str) -> frozenset[str]:
    """DuckDB's functions of these kinds that give the same for the same rows, whenever and wherever they are called;
    its macros that call nothing else are among them.
    """
    listed = connections.get().execute(
        "SELECT function_name FROM duckdb_functions() WHERE list_contains(?, function_type) "
        "GROUP BY function_name HAVING bool_and(stability = 'CONSISTENT')",
        [list(kinds)],
    )
    steady = {name.lower() for (name,) in listed} - _UNSTEADY
    macros = _macros()
    while more := {name for name, nodes in macros.items() if name not in steady and _calls_only(nodes, steady)}:
        steady |= more
    return frozenset(steady)


def _macros() -> dict[str, list[dict[str, Any]]]:
    """The nodes of the definitions of each macro, those of all its forms together; parameters are left out."""
    macros: dict[str, list[dict[str, Any]]] = {}
    for name, parameters, record in connections.get().execute(
        "SELECT function_name, parameters, json_serialize_sql('SELECT ' || macro_definition) FROM duckdb_functions() "
        "WHERE function_type = 'macro'"
    ):
        nodes = parsed_nodes(json.loads(record)["statements"][0]["node"]["select_list"])
        kept = [node for node in nodes if node.get("column_names", [None])[0] not in parameters]
        macros.setdefault(name.lower(), []).extend(kept)
    return macros


def _calls_only(nodes: Iterable[dict[str, Any]], steady: Container[str]) -> bool:
    plain = PLAIN_CLASSES - {"COLUMN_REF"}
    return all(node["class"] in plain and unsteady_call(node, steady) is None for node in nodes)
