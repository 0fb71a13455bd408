"""Running kernels: work items, the runners (Spark, inline), the session, progress."""

from strandline.engine.memory import duckdb_connection, machine_memory
from strandline.engine.runner import INLINE_LIMIT, InlineRunner, Runner, check_runner, choose_runner
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
    "check_runner",
    "choose_runner",
    "duckdb_connection",
    "kernel",
    "machine_memory",
]
