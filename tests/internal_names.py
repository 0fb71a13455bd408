"""The names that our own code gives columns, aliases and tables, taken from the source: none may meet a user's."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "strandline"
PACKAGES = (
    "changes",
    "differential",
    "relations",
    "replication",
    "spark_source",
    "tables",
    "values",
    "views",
    "whatif",
)
_WORD = re.compile(r"[A-Za-z_][\w ]{0,30}")
_ALIAS = re.compile(r"\b(?:AS|as) \"?([A-Za-z_]\w*)")
_COLUMN_CALLS = re.compile(
    "add_column|append|append_column|column|drop_columns|field|free_name|from_arrays|get_field_index|rename_columns|"
    "schema|select|set_column|struct|table"
)


def internal_names() -> list[str]:
    """Every name that could be a column of ours, once whatever its case, in order."""
    files = [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
    names = {name for path in files for name in _names(ast.parse(path.read_text()))}
    return list({name.lower(): name for name in sorted({*names, *string.ascii_lowercase})}.values())


def _names(tree: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Call) and _COLUMN_CALLS.fullmatch(_called(node)):
            yield from (name for argument in node.args[:2] for name in _words(argument))
        elif isinstance(node, ast.Assign) and _is_constant(node.targets[0]):
            yield from _words(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from _ALIAS.findall(node.value)
            if node.value.startswith("_"):
                yield from _words(node)
        elif isinstance(node, ast.JoinedStr) and len(node.values) == 2:
            prefix = str(getattr(node.values[0], "value", ""))
            if re.fullmatch(r"[a-z_]{1,6}", prefix):
                yield from (f"{prefix}{number}" for number in range(2))


def _words(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and _WORD.fullmatch(inner.value):
            yield inner.value


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_constant(target: ast.expr) -> bool:
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(name, ast.Name) and name.id.isupper() for name in targets)
