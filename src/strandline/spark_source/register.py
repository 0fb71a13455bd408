"""Pinning a state when `load()` is called, also where Spark asks a Python source for nothing then.

Over Connect a server makes a source for each action, and with `.schema(…)` a classic session makes one at the first
action. So the readers of a registered session pin the state themselves, in this process, and hand it along in an option
of their own. What this process can't open (a store that only the server sees) is left to Spark, unpinned.

`register`: the data sources in a session.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.engine import is_connect
from strandline.spark_source.leases import Holdings, Keeper
from strandline.spark_source.options import PINNED, read_request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SOURCE = "strandline"


def pin_at_load(spark: SparkSession, holdings: Holdings) -> None:
    """From now on `spark.read` pins what it reads of stores; everything else about the session stays as it is."""
    kind: Any = type(spark)
    spark.__class__ = _pinning_session(kind, holdings)


@functools.cache
def _pinning_session(kind: Any, holdings: Holdings) -> Any:
    if hasattr(kind, "strandline_reader"):
        return kind

    def read(self: Any) -> Any:
        plain: Any = type(kind.read.fget(self))
        return _pinning_reader(plain, holdings)(self)

    # It goes by its old name and module, by which sessions of both kinds are told apart.
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "read": property(read), "strandline_reader": True}
    return type(kind.__name__, (kind,), names)


@functools.cache
def _pinning_reader(kind: Any, holdings: Holdings) -> Any:
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "holdings": holdings}
    return type(kind.__name__, (_PinningReader, kind), names)


class _PinningReader:
    """Stands before Spark's own reader: notes what it is told, and pins when it loads."""

    holdings: Holdings

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)  # type: ignore[call-arg]
        self._lazy = is_connect(spark)
        self._source: str | None = None
        self._told: dict[str, str] = {}

    def format(self, source: str) -> Any:
        self._source = source
        return super().format(source)  # type: ignore[misc]

    def schema(self, schema: Any) -> Any:
        self._lazy = True
        return super().schema(schema)  # type: ignore[misc]

    def option(self, key: str, value: Any) -> Any:
        self._told[key.lower()] = str(value).lower() if isinstance(value, bool) else str(value)
        return super().option(key, value)  # type: ignore[misc]

    def options(self, **options: Any) -> Any:
        for key, value in options.items():
            self.option(key, value)
        return self

    def load(self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> Any:
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        self.options(**options)
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        if self._source == SOURCE and self._lazy and (path is None or isinstance(path, str)):
            self._pin(self._told if path is None else {**self._told, "path": path})
        return super().load(path)  # type: ignore[misc]

    def _pin(self, told: dict[str, str]) -> None:
        from strandline.spark_source.data_sources import TableSource

        request = read_request(told)
        pinned = self.holdings.pinned(request)
        if pinned is not None:
            self.option(PINNED, pinned)
            if request.since is None:
                # What is wrong with the request is said now, not at the first action.
                TableSource(told).columns(replace(request, pinned=pinned))


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession | None = None) -> SparkSession:
    """Makes `strandline` and `strandline.diff` known to a session (default: Strandline's own), and returns it.

    This process keeps readable what DataFrames of the session read, until it ends or calls `release`.
    """
    from strandline.engine import prepare, session
    from strandline.spark_source.data_sources import DiffSource, TableSource

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
