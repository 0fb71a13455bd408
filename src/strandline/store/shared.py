"""What the versions of one open store have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.pages import PageStore
from strandline.tables import PageCache, TableRelation
from strandline.whatif import WhatIfRelation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Shared:
    """Held once for each `open`, whichever versions are then looked at."""

    pages: PageStore
    cache: PageCache
    session: SparkSession | None = None
    frames: list[TableRelation | WhatIfRelation] = field(default_factory=list)
    """What DataFrames read. Spark reads late, and may read again: it is kept until the store is closed."""
