"""DuckDB in this process: one connection for kernels, which read files, and one for what users write, which can't.

Both know only the extensions that DuckDB carries with it. A kernel's connection stays inside its share of the
machine's memory and spills into the attempt's own folder. A sandboxed connection sees the tables that it is given
and nothing else: no files, no network, no variables of Python; and no statement can change that.

What a thread keeps for itself (`PerThread`) survives a fork of the process in another thread: CPython clears the
`threading.local` values of all other threads in the forked child, and DuckDB's destructor ends the child there, since
the threads that it waits for are not in it. Spark's launcher is such a fork.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

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


def kernel_duckdb(memory: int, spill: str) -> duckdb.DuckDBPyConnection:
    """The connection of one attempt of a kernel: one thread, `memory` bytes, spilling into the folder `spill`."""
    import duckdb

    return duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": f"{max(memory // MIB, 64)}MiB",
            "temp_directory": spill,
            "preserve_insertion_order": False,
            **_OWN_EXTENSIONS,
        },
    )


def sandboxed_duckdb(
    tables: Mapping[str, pa.Table] | None = None, *, threads: int | None = None, files: Sequence[str] = ()
) -> duckdb.DuckDBPyConnection:
    """A connection that sees these tables, can read these files and nothing else outside; instants are shown in UTC."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "python_enable_replacements": False,
        **_OWN_EXTENSIONS,
    }
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    if files:
        connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for name, table in (tables or {}).items():
        connection.register(name, table)
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
