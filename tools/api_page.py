"""Renders docs/api.md from the docstrings: `python tools/api_page.py > docs/api.md`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import strandline as sl
from strandline import errors

HEAD = """# The Python interface

<!-- Written by tools/api_page.py from the docstrings; a test compares the two. -->

```python
import strandline as sl
```

Types are in the signatures that your editor shows; here they are left out. `at=` takes a snapshot's name, a snapshot, a
commit number or a datetime, and means now without one. `runner=` is `auto`, `spark` or `inline`; `session=` is your own
Spark session. Whatever has rows is taken where rows are: a DataFrame of Spark, pandas or Polars, an Arrow table or
anything with `__arrow_c_stream__`, the path of a file; a table of a store, which knows its types, also takes a list of
dictionaries. The [guide](guide.md) shows it all.
"""

FUNCTIONS = ("diff", "create", "open", "materialized_view", "base", "restore", "session", "register")

CLASSES = (
    ("Changes", "strandline.changes", "what `sl.diff`, `store.changes` and others give"),
    ("Store", "strandline.store", "what `sl.create`, `sl.open`, `store.branch` and `store.version` give"),
    ("TemporaryStore", "strandline.store", "what `store.branch()` without a name gives"),
    ("Table", "strandline.store", "what `store.table` gives; its verbs are transactions of one statement"),
    ("TableDescription", "strandline.store", "what `table.describe` gives"),
    ("Exported", "strandline.store", "what `table.export` gives"),
    ("StoreChanges", "strandline.store", "what `store.all_changes` gives"),
    ("TableTransaction", "strandline.tables", "what `store.transaction` gives"),
    ("Snapshot", "strandline.store", "what `store.snapshot()` without a name gives"),
    ("WhatIf", "strandline.store", "what `table.what_if` and `store.what_if` give"),
    ("Base", "strandline.replication", "what `sl.base` gives"),
    ("View", "strandline.store", "what `store.view` gives"),
    ("Copy", "strandline.replication", "what `view.replicate` and `base.replicate` give"),
    ("Refresh", "strandline.replication", "what `copy.refresh` gives"),
    ("Verification", "strandline.replication", "what `copy.verify` gives"),
    ("Explanation", "strandline.replication", "what `copy.explain` gives"),
    ("Dump", "strandline.dumps", "what `store.dump` gives"),
    ("Restored", "strandline.dumps", "what `sl.restore` gives"),
    ("Dumps", "strandline.dumps", "the dumps at a target"),
    ("Verified", "strandline.dumps", "what `Dumps.verify` gives"),
    ("Pruned", "strandline.dumps", "what `Dumps.prune` and `Dumps.sweep` give"),
)

OURS = {
    "Changes": {"of", "of_parts", "header", "arrow"},
    "Store": {"cache", "difference", "frame", "frame_of", "hold", "named", "pages", "relation", "state", "storage"},
    "TemporaryStore": {"branch", "name", "relation"},
    "Table": {"bytes", "parts", "relation", "rows"},
    "Snapshot": {"inner", "view"},
    "TableTransaction": {"create_own_copy", "create_own_table", "drop_own_table", "ended", "rename_own_table"},
    "Base": {"record"},
    "Copy": {"record"},
    "Explanation": {"to_json"},
    "View": {"definition"},
    "WhatIf": {"bytes", "parts", "relation", "rows"},
}
"""What other parts of Strandline use, and users need not know."""


def render() -> str:
    """The whole page."""
    pieces = [HEAD, "## Functions\n"]
    pieces += [_function(f"sl.{name}", getattr(sl, name)) for name in FUNCTIONS]
    for name, module, origin in CLASSES:
        pieces.append(_class(name, getattr(importlib.import_module(module), name), origin))
    pieces.append(_errors())
    return "\n".join(pieces)


def members(name: str, found: type) -> Iterator[tuple[str, Any]]:
    """The members of a class that users may use, in the order in which they are written; those of its bases first,
    unless a base has a section of its own.
    """
    described = {importlib.import_module(module).__dict__[name] for name, module, _ in CLASSES} - {found}
    bases = [one for one in reversed(found.__mro__) if one.__module__.startswith("strandline")]
    own = [one for one in bases if not any(issubclass(other, one) for other in described & set(bases))]
    for member, value in {member: value for one in own for member, value in vars(one).items()}.items():
        shown = callable(value) or isinstance(value, (property, staticmethod, classmethod))
        if shown and not member.startswith("_") and member not in OURS.get(name, set()):
            yield member, value


def words(documented: Any) -> str:
    """A docstring."""
    return inspect.cleandoc(getattr(documented, "__doc__", None) or "")


def _function(name: str, function: Callable[..., Any]) -> str:
    return f"### `{name}{signature(function)}`\n\n{words(function)}\n"


def _class(name: str, found: type, origin: str) -> str:
    lines = [f"## {name}\n", f"{origin[0].upper()}{origin[1:]}.\n", f"{words(found)}\n"]
    values = [field for field in getattr(found, "__dataclass_fields__", {}) if not field.startswith("_")]
    if values:
        lines.append(f"Fields: {', '.join(f'`{field}`' for field in values)}.\n")
    for member, value in members(name, found):
        if isinstance(value, property):
            lines.append(f"**`{member}`** · {words(value)}\n")
            continue
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        mark = f"{name}." if isinstance(value, (staticmethod, classmethod)) else ""
        lines.append(f"**`{mark}{member}{signature(function)}`** · {words(function)}\n")
    return "\n".join(lines)


def signature(function: Callable[..., Any]) -> str:
    """The parameters with their defaults, without types and without `self`."""
    shown, star = [], False
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        mark = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        star = star or mark == "*"
        shown.append(f"{mark}{one.name}" if one.default is one.empty else f"{one.name}={one.default!r}")
    return f"({', '.join(shown)})"


def _errors() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")
    return f"## Errors\n\n```text\n{inspect.cleandoc(tree[1])}\n```\n\n{tree[2]}\n"


if __name__ == "__main__":
    print(render(), end="")
