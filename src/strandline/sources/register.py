"""`register`: the data sources in a session."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from strandline.sources.holding import Keeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession | None = None) -> SparkSession:
    """Makes `strandline` and `strandline.diff` known to a session (default: Strandline's own), and returns it.

    This process keeps readable what DataFrames of the session read, until it ends or calls `release`.
    """
    from strandline.engine.session import prepare, session
    from strandline.sources.diff_source import DiffSource
    from strandline.sources.pinning import pin_at_load
    from strandline.sources.table_source import TableSource

    spark = session() if spark is None else prepare(spark)
    keeper = _keeper()
    keeper.holdings.session = spark
    spark.conf.set(PUSHDOWN, "true")
    for source in (TableSource, DiffSource):
        # A class of this very registration: it travels by value, and with it where the keeper listens.
        bound = type(source.__name__, (source,), {"keeper": keeper.address, "__module__": "strandline_registered"})
        spark.dataSource.register(bound)
    pin_at_load(spark, keeper.holdings)
    return spark


def release() -> None:
    """Let go of every state that DataFrames of this process keep readable; reading one of them may then fail."""
    _keeper().holdings.release()


@functools.cache
def _keeper() -> Keeper:
    return Keeper()
