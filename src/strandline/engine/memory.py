"""How much memory this machine has, and a DuckDB connection that stays inside a share of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MIB = 1 << 20


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


def duckdb_connection(memory: int, spill: str, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB of one attempt: few threads, a memory limit, spilling into the attempt's own folder."""
    import duckdb

    return duckdb.connect(
        ":memory:",
        config={
            "threads": threads,
            "memory_limit": f"{max(memory // MIB, 64)}MiB",
            "temp_directory": spill,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
