"""Strandline: tables through time.

The public names, each loaded when it is first used: importing this package imports no Spark, no DuckDB and no SQL
parser.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from strandline._version import __version__
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.changes import Changes
    from strandline.differential import diff
    from strandline.dumps import restore
    from strandline.engine import session
    from strandline.replication import base
    from strandline.spark_source import register
    from strandline.store import Store, create, materialized_view, open

_HOMES = {
    "Changes": "strandline.changes",
    "Store": "strandline.store",
    "base": "strandline.replication",
    "create": "strandline.store",
    "diff": "strandline.differential",
    "materialized_view": "strandline.store",
    "open": "strandline.store",
    "register": "strandline.spark_source",
    "restore": "strandline.dumps",
    "session": "strandline.engine",
}

__all__ = [
    "Changes",
    "Store",
    "StrandlineError",
    "__version__",
    "base",
    "create",
    "diff",
    "materialized_view",
    "open",
    "register",
    "restore",
    "session",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'strandline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
