"""DuckDB in this process: one connection for kernels, which read files, and one for what users write, which can't.

Both know only the extensions that DuckDB carries with it. A kernel's connection stays inside its share of the
machine's memory and spills into the attempt's own folder. A sandboxed connection sees the tables that it is given
and nothing else: no files, no network, no variables of Python; and no statement can change that.

A Ctrl-C during DuckDB's work is caught there, and comes out as one of several errors that don't tell handlers of
interrupts; one that computes on a single thread does not even notice. So all work goes through
`DuckdbConnection`: queries of the main thread run on another one, and are told to stop; of errors in statements, which
are short, `KeyboardInterrupt` is made again.

What a thread keeps for itself (`PerThread`) survives a fork of the process in another thread: CPython clears the
`threading.local` values of all other threads in the forked child, and DuckDB's destructor ends the child there, since
the threads that it waits for are not in it. Spark's launcher is such a fork.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from strandline.storage import Closeable, handed_over, import_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.engine.work import Attempt

T = TypeVar("T")

MIB = 1 << 20
_OWN_EXTENSIONS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def machine_memory() -> int:
    """Bytes of memory that this process may count on: the machine's, or its control group's if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(total, int(text))
    return total


def task_memory() -> int:
    """What one task may use on the machine that this is called on: its share of half the memory.

    Less where the process has a limit of its own, as Spark's `spark.executor.pyspark.memory` gives it.
    """
    share = machine_memory() // 2 // (os.cpu_count() or 1)
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return share
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return share if limit == resource.RLIM_INFINITY else min(share, limit // 2)


class DuckdbConnection(Closeable):
    """A connection of one thread. Errors are DuckDB's own; a Ctrl-C is a `KeyboardInterrupt`, as anywhere else."""

    def __init__(self, place: str, config: Mapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        import_whole("duckdb")
        with _interrupts():
            self._inner = self._opened(place, config or {}, read_only=read_only)

    def _opened(self, place: str, config: Mapping[str, Any], *, read_only: bool) -> Any:
        import duckdb

        return duckdb.connect(place, read_only=read_only, config=dict(config))

    def _cursor(self) -> Any:
        """Another connection to the same."""
        return self._inner.cursor()

    def query(self, sql: str, tables: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """The result of one query, which sees these tables beside what the connection has."""
        if threading.current_thread() is not threading.main_thread():
            return self._query(sql, tables or {})
        return handed_over(partial(self._query, sql, tables or {}), stop=self._inner.interrupt)

    def _query(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        with self.seeing(tables):
            relation = self._inner.sql(sql)
            return _with_uuids(relation.to_arrow_table(), [str(type_) for type_ in relation.types])

    def execute(
        self, sql: str, params: Sequence[Any] = (), tables: Mapping[str, pa.Table] | None = None
    ) -> list[tuple[Any, ...]]:
        """Runs one statement and gives all its rows: a connection with rows left to fetch refuses other work."""
        with self.seeing(tables or {}):
            result = self._inner.execute(sql, list(params))
            return result.fetchall() if result.description else []

    def asked_apart(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        """The rows of a query over what is committed; None where that has none of its names. A transaction that has
        begun here goes on in either case: an error of its own would end it.
        """
        import duckdb

        with self._cursor() as cursor:
            try:
                return list(cursor.execute(sql, list(params)).fetchall())
            except duckdb.CatalogException:
                return None

    @contextmanager
    def seeing(self, tables: Mapping[str, pa.Table]) -> Iterator[None]:
        """Lets queries inside the block see these tables."""
        begun: list[str] = []
        with _interrupts():
            try:
                for name, table in tables.items():
                    begun.append(name)
                    self._inner.register(name, table)
                yield
            finally:
                for name in begun:
                    self._inner.unregister(name)

    def give_files(self, name: str, paths: Sequence[str], *, named: bool) -> None:
        """Let every query from now on see Parquet files as a view; `named` adds their paths as `filename`."""
        with _interrupts():
            self._inner.read_parquet(list(paths), filename=named).create_view(name)

    def batches(self, sql: str, params: Sequence[Any], rows: int) -> Iterator[pa.RecordBatch]:
        """The result of one query, so many rows at a time."""
        with _interrupts():
            yield from self._inner.sql(sql, params=list(params) or None).to_arrow_reader(rows)

    def close(self) -> None:
        with _interrupts():
            self._end()

    def _end(self) -> None:
        self._inner.close()


def _with_uuids(table: pa.Table, types: Sequence[str]) -> pa.Table:
    """The result with its UUIDs as such: DuckDB gives them as text, which is equal to no UUID."""
    import pyarrow as pa

    for place, type_ in enumerate(types):
        if type_ == "UUID":
            chunks = [_uuids(chunk) for chunk in table.column(place).chunks]
            table = table.set_column(place, table.field(place).name, pa.chunked_array(chunks, pa.uuid()))
    return table


def _uuids(texts: pa.Array) -> pa.Array:
    """UUIDs of their texts of 36 characters."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    digits = pc.replace_substring(pc.fill_null(texts, str(uuid.UUID(int=0))), "-", "")
    values = np.frombuffer(bytes.fromhex("".join(digits.to_pylist())), dtype="S16")
    mask = texts.is_null().to_numpy(zero_copy_only=False)
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16), mask=mask))


@contextmanager
def _interrupts() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        raise


def _is_interrupt(error: Exception) -> bool:
    """Whether an error is what DuckDB made of a Ctrl-C: while it computed, or while it looked at a table of ours."""
    import duckdb

    text = str(error).rstrip()
    if isinstance(error, duckdb.InterruptException) or (
        isinstance(error, RuntimeError) and text == "Query interrupted"
    ):
        return True
    return isinstance(error, duckdb.Error) and text.endswith("failed: KeyboardInterrupt:")


def kernel_duckdb(memory: int, spill: str) -> DuckdbConnection:
    """The connection of one attempt of a kernel: one thread, `memory` bytes, spilling into the folder `spill`."""
    return DuckdbConnection(
        ":memory:",
        {**_share_of(memory, spill), "preserve_insertion_order": False, **_OWN_EXTENSIONS},
    )


def _share_of(memory: int, spill: str) -> dict[str, Any]:
    return {"threads": 1, "memory_limit": f"{max(memory // MIB, 64)}MiB", "temp_directory": spill}


def sandboxed_duckdb(
    *, threads: int | None = None, folder: str | None = None, attempt: Attempt | None = None
) -> DuckdbConnection:
    """A connection that sees the tables of each query, can read files below a folder and nothing else; instants are in
    UTC.

    One of an attempt of a kernel keeps to its memory, and to one thread.
    """
    config: dict[str, Any] = {
        "python_enable_replacements": False,
        "enable_external_file_cache": False,
        **_OWN_EXTENSIONS,
    }
    if threads is not None:
        config["threads"] = threads
    if attempt is not None:
        config |= _share_of(attempt.memory, attempt.spool)
    connection = DuckdbConnection(":memory:", config)
    connection.execute("SET TimeZone = 'UTC'")
    if folder is not None:
        connection.execute("SET allowed_directories = ?", [[folder]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


class PerThread(Generic[T]):
    """One value for each thread, made when it is first asked for. In a forked child no value of the parent is used or
    destroyed. Meant for module level: what it holds is never given back as a whole.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._mutex = threading.Lock()
        self._values: dict[int, T] = {}
        os.register_at_fork(after_in_child=self._begin_anew)
        # What is alive when the interpreter ends is a leak to DuckDB's binding, which tells users so at length.
        atexit.register(lambda: self._values.clear())

    def get(self) -> T:
        """This thread's value."""
        own = threading.get_ident()
        value = self._values.get(own)
        if value is None:
            value = self._make()
            with self._mutex:
                living = sys._current_frames().keys()
                gone = [self._values.pop(thread) for thread in list(self._values) if thread not in living]
                self._values[own] = value
            del gone  # outside the mutex: a destructor may take its time
        return value

    def _begin_anew(self) -> None:
        # One reference that is never given up: the child neither uses nor destroys the parent's values.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._values))
        self._values, self._mutex = {}, threading.Lock()


_sandboxes: PerThread[dict[str | None, DuckdbConnection]] = PerThread(dict)
_KEPT = 4
"""How many sandboxed connections a thread keeps."""


def thread_sandbox(folder: str | None = None) -> DuckdbConnection:
    """This thread's own sandboxed connection, which can read files below a folder. It is kept, since opening one takes
    longer than most queries: a caller that registers something takes it back.
    """
    kept = _sandboxes.get()
    if folder not in kept:
        if len(kept) == _KEPT:
            kept.pop(next(iter(kept))).close()
        kept[folder] = sandboxed_duckdb(folder=folder)
    return kept[folder]
