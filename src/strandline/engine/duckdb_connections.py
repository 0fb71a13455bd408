"""DuckDB in this process: one connection for kernels, which read files, and one for what users write, which can't.

Both know only the extensions that DuckDB carries with it. A kernel's connection stays inside its share of the
machine's memory and spills into the attempt's own folder. A sandboxed connection sees the tables that it is given
and nothing else: no files, no network, no variables of Python; and no statement can change that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

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
    tables: Mapping[str, pa.Table] | None = None, *, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection that sees these tables and nothing outside; instants are shown in UTC."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "python_enable_replacements": False,
        "enable_external_access": False,
        **_OWN_EXTENSIONS,
    }
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    for name, table in (tables or {}).items():
        connection.register(name, table)
    return connection
