"""Running kernels: work items, the runners (Spark, inline), the session, progress."""

from strandline.engine.duckdb_connections import (
    DuckdbConnection,
    PerThread,
    kernel_duckdb,
    machine_memory,
    sandboxed_duckdb,
    task_memory,
    thread_sandbox,
)
from strandline.engine.progress import ByteProgress, Progress, byte_count, is_quiet, set_quiet
from strandline.engine.runner import (
    INLINE_LIMIT,
    InlineRunner,
    Runner,
    check_runner,
    choose_runner,
    parallel,
    runs_on_spark,
)
from strandline.engine.spark_action import SparkAction, is_connect
from strandline.engine.spark_runner import SparkRunner, cluster_runner
from strandline.engine.spark_session import MASTER_VARIABLE, prepare, session, spark_at_hand, spark_error
from strandline.engine.spool import Spool, scratch_folder, speaks_of_spools
from strandline.engine.work import Attempt, Kernel, Outcome, Result, WorkItem, cut_by_bytes, cut_evenly, encode, kernel
