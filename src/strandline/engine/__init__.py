"""Running kernels: work items, the runners (Spark, inline), the session, progress."""

from strandline.engine.memory import duckdb_connection, machine_memory
from strandline.engine.runner import INLINE_LIMIT, InlineRunner, Runner, choose_runner
from strandline.engine.spool import Spool
from strandline.engine.work import Attempt, Kernel, Outcome, Result, WorkItem, kernel

__all__ = [
    "INLINE_LIMIT",
    "Attempt",
    "InlineRunner",
    "Kernel",
    "Outcome",
    "Result",
    "Runner",
    "Spool",
    "WorkItem",
    "choose_runner",
    "duckdb_connection",
    "kernel",
    "machine_memory",
]
