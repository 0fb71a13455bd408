"""What a sandboxed connection can see, and what a kernel's connection is limited to."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.engine import PerThread, kernel_duckdb, sandboxed_duckdb

ROWS = pa.table({"id": [1, 2]})


def test_a_sandbox_reads_the_tables_that_it_is_given() -> None:
    with sandboxed_duckdb({"orders": ROWS}) as connection:
        assert connection.sql("SELECT sum(id) FROM orders").fetchall() == [(3,)]
        assert connection.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        connection.register("later", ROWS)
        assert connection.sql("SELECT count(*) FROM later").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "COPY (SELECT 1) TO '{file}'",
        "ATTACH '{file}' AS other",
        "SELECT * FROM ROWS",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET threads = 2",
    ],
)
def test_a_sandbox_reaches_nothing_outside(sql: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    with sandboxed_duckdb({"orders": ROWS}) as connection, pytest.raises(duckdb.Error):
        connection.execute(sql.format(file=file)).fetchall()
    assert file.read_text() == "a\n1\n"


def test_a_kernel_keeps_to_its_memory_and_reads_files(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with kernel_duckdb(256 << 20, str(tmp_path / "spill")) as connection:
        settings = "SELECT current_setting('threads'), current_setting('memory_limit')"
        assert connection.sql(settings).fetchall() == [(1, "256.0 MiB")]
        assert connection.sql(f"SELECT a FROM read_csv('{tmp_path}/rows.csv')").fetchall() == [(1,)]


def test_a_process_forked_beside_threads_that_compute_reaches_its_exec() -> None:
    """Spark's launcher forks in this way; it must not matter what other threads have in hand."""
    code = """
    import os, signal, subprocess, threading
    import pyarrow as pa
    from strandline.values import expressions
    from strandline.views.join import thread_engine

    stop, begun = threading.Event(), threading.Barrier(3)

    def compute():
        expressions._connections.get().execute("SELECT 1").fetchall()
        thread_engine().query("SELECT 1 AS one", {})
        begun.wait()
        while not stop.wait(0.001):
            thread_engine().query("SELECT sum(i) AS s FROM range(1000) t(i)", {})

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    quiet = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    codes = [subprocess.Popen(["true"], preexec_fn=quiet).wait() for _ in range(20)]
    child = os.fork()
    if not child:
        own = thread_engine().query("SELECT 7 AS seven", {}).column("seven").to_pylist()
        os._exit(0 if own == [7] else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    print(codes)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[0] * 21}\n"


def test_what_a_thread_kept_goes_after_it_when_another_one_comes() -> None:
    kept = PerThread(lambda: [threading.get_ident()])
    first = kept.get()
    assert kept.get() is first
    for _ in range(3):
        thread = threading.Thread(target=kept.get)
        thread.start()
        thread.join()
    assert len(kept._values) == 2
