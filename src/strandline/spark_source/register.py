"""`register`: the data sources in a session, and a `spark.read` that pins the state of a store when `load()` is called.

Spark calls a Python data source at `load()` only on a classic session and without `.schema(…)`. Elsewhere it makes the
source at the first action, or anew for each. So a registered session gets a reader that pins in this process and passes
the pinned state on in an option of its own. A store that only the server can open is left to Spark, unpinned.
docs/decisions/0005-pinning-at-load.md says why it is done this way. `release` undoes it.
"""

from __future__ import annotations

import functools
import os
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.engine import is_connect
from strandline.errors import extra
from strandline.spark_source.leases import Leases, LeaseServer
from strandline.spark_source.options import PINNED, read_request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "strandline"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_registered: weakref.WeakSet[Any] = weakref.WeakSet()
"""The sessions whose `read` pins."""


def register(spark: SparkSession | None = None) -> SparkSession:
    """Makes `strandline` and `strandline.diff` known to a session (default: Strandline's own), and returns it.

    This process keeps readable what DataFrames of the session read, until it ends or calls `release`.
    """
    from strandline.engine import prepare, session

    with extra("spark", "registering Strandline's data sources"):
        from strandline.spark_source.data_sources import DiffSource, TableSource

    spark = session() if spark is None else prepare(spark)
    server = _lease_server()
    server.leases.session = spark
    spark.conf.set(PUSHDOWN, "true")
    for source in (TableSource, DiffSource):
        # A class made for this registration: it is pickled by value, and with it the lease server's address.
        members = {"lease_server": server.address, "__module__": "strandline_registered"}
        bound = type(source.__name__, (source,), members)
        spark.dataSource.register(bound)
    pin_at_load(spark, server.leases)
    return spark


def release() -> None:
    """Give up every state that DataFrames of this process keep readable; reading one of them may then fail.

    Registered sessions get their own `read` back, which pins no more where Spark itself does not, until `register`.
    """
    for spark in list(_registered):
        spark.__class__ = type(spark).strandline_session_class
    _registered.clear()
    _lease_server().leases.release()


@functools.cache
def _lease_server() -> LeaseServer:
    return LeaseServer()


def pin_at_load(spark: SparkSession, leases: Leases) -> None:
    """From now on `spark.read` pins what it reads of stores; everything else about the session stays as it is."""
    # `read` is a property, so an attribute of this one session can't replace it: the session's class has to change.
    session_class: Any = type(spark)
    spark.__class__ = _pinning_session(session_class, leases)
    _registered.add(spark)


@functools.cache
def _pinning_session(session_class: Any, leases: Leases) -> Any:
    if hasattr(session_class, "strandline_session_class"):
        return session_class

    def read(self: Any) -> Any:
        reader_class: Any = type(session_class.read.fget(self))
        return _pinning_reader(reader_class, leases)(self)

    # It keeps its name and module, by which classic and Connect sessions are told apart.
    members = {
        "__module__": session_class.__module__,
        "__doc__": session_class.__doc__,
        "read": property(read),
        "strandline_session_class": session_class,
    }
    return type(session_class.__name__, (session_class,), members)


@functools.cache
def _pinning_reader(reader_class: Any, leases: Leases) -> Any:
    members = {"__module__": reader_class.__module__, "__doc__": reader_class.__doc__, "leases": leases}
    return type(reader_class.__name__, (_PinningReader, reader_class), members)


class _PinningReader:
    """Stands before Spark's own reader: remembers format and options, and pins at `load()`."""

    leases: Leases

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)  # type: ignore[call-arg]
        self._lazy = is_connect(spark)
        self._source: str | None = None
        self._given: dict[str, str] = {}

    def format(self, source: str) -> Any:
        self._source = source
        return super().format(source)  # type: ignore[misc]

    def schema(self, schema: Any) -> Any:
        self._lazy = True
        return super().schema(schema)  # type: ignore[misc]

    def option(self, key: str, value: Any) -> Any:
        self._given[key.lower()] = str(value).lower() if isinstance(value, bool) else str(value)
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
            self._pin(self._given if path is None else {**self._given, "path": path})
        return super().load(path)  # type: ignore[misc]

    def _pin(self, options: dict[str, str]) -> None:
        from strandline.spark_source.data_sources import TableSource

        request = read_request(options)
        pinned = self.leases.pin_as_text(request)
        if pinned is not None:
            self.option(PINNED, pinned)
            if request.since is None:
                # A mistake in the request is an error now, not at the first action.
                TableSource(options).columns(replace(request, pinned=pinned))
