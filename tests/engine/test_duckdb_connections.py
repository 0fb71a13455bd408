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
from tests.interrupts import press_after
from tests.storage.test_threads import Interrupt

from strandline.engine import PerThread, kernel_duckdb, sandboxed_duckdb, thread_sandbox
from strandline.storage import handed_over

ROWS = pa.table({"id": [1, 2]})


def test_a_sandbox_reads_the_tables_that_it_is_given() -> None:
    with sandboxed_duckdb() as connection:
        assert connection.execute("SELECT sum(id) FROM orders", tables={"orders": ROWS}) == [(3,)]
        assert connection.execute("SELECT current_setting('TimeZone')") == [("UTC",)]
        with pytest.raises(duckdb.Error, match="orders"):
            connection.query("SELECT * FROM orders")
        assert connection.query("SELECT count(*) AS n FROM later", {"later": ROWS})["n"].to_pylist() == [2]


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
    with sandboxed_duckdb() as connection, pytest.raises(duckdb.Error):
        connection.execute(sql.format(file=file), tables={"orders": ROWS})
    assert file.read_text() == "a\n1\n"


def test_a_thread_keeps_its_sandboxes_which_read_one_folder_each(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "rows.csv").write_text("a\n1\n")
        connection = thread_sandbox(f"{tmp_path}/{number}")
        assert connection is thread_sandbox(f"{tmp_path}/{number}")
        assert connection.execute(f"SELECT a FROM read_csv('{tmp_path}/{number}/rows.csv')") == [(1,)]
        for other in (f"{tmp_path}/{number - 1}", f"{tmp_path}/{number}/../{number - 1}", f"{tmp_path}/{number}0"):
            with pytest.raises(duckdb.Error, match="disabled by configuration"):
                connection.execute(f"SELECT a FROM read_csv('{other}/rows.csv')")
    assert thread_sandbox() is thread_sandbox()
    assert handed_over(thread_sandbox) is not thread_sandbox()


def test_a_kernel_keeps_to_its_memory_and_reads_files(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with kernel_duckdb(256 << 20, str(tmp_path / "spill")) as connection:
        settings = "SELECT current_setting('threads'), current_setting('memory_limit')"
        assert connection.execute(settings) == [(1, "256.0 MiB")]
        assert connection.execute(f"SELECT a FROM read_csv('{tmp_path}/rows.csv')") == [(1,)]


def test_a_process_forked_beside_threads_that_compute_reaches_its_exec() -> None:
    """Spark's launcher forks in this way; it must not matter what other threads have in hand."""
    code = """
    import os, signal, subprocess, threading
    import pyarrow as pa
    from strandline.values import duckdb_functions
    from strandline.views.join import thread_engine

    stop, begun = threading.Event(), threading.Barrier(3)

    def compute():
        duckdb_functions.connections.get().execute("SELECT 1")
        thread_engine().query("SELECT 1 AS one", {})
        begun.wait(60)
        while not stop.wait(0.001):
            thread_engine().query("SELECT sum(i) AS s FROM range(1000) t(i)", {})

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(60)
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
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=300
    )
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


def test_an_interrupt_is_one_wherever_it_falls() -> None:
    """DuckDB makes errors of its own of most of them."""
    with sandboxed_duckdb(threads=1) as connection:
        for number in range(40):
            with pytest.raises(KeyboardInterrupt):
                press_after(
                    0.005 + number * 0.0007, lambda: connection.query("SELECT sum(id) AS s FROM rows", {"rows": ROWS})
                )
        endless = "SELECT count(*) AS n FROM range(1000000) a(i), range(1000000) b(j) WHERE i * j = -1"
        with pytest.raises(KeyboardInterrupt):
            press_after(0.2, lambda: connection.query(endless))
        assert connection.query("SELECT sum(id) AS s FROM rows", {"rows": ROWS})["s"].to_pylist() == [3]


def test_an_interrupt_at_any_line_leaves_the_connection_to_the_next_query() -> None:
    slow = "SELECT count(*) AS n FROM range(3000) a(i), range(3000) b(j) WHERE i * j = -1"

    with sandboxed_duckdb(threads=1) as connection:

        def ends(at: int) -> bool:
            try:
                with Interrupt(at):
                    connection.query(slow)
            except KeyboardInterrupt:
                return False
            return True

        at = 0
        while not ends(at):
            assert connection.query("SELECT sum(id) AS s FROM rows", {"rows": ROWS})["s"].to_pylist() == [3], at
            at += 1
        assert at > 10


def test_what_a_user_writes_is_no_interrupt() -> None:
    with sandboxed_duckdb() as connection, pytest.raises(duckdb.Error):
        connection.query("SELECT CAST('it failed: KeyboardInterrupt:' AS INTEGER)")


def test_a_process_that_closes_nothing_ends_quietly(tmp_path: Path) -> None:
    code = """
    import strandline as sl
    store = sl.create("store")
    table = store.create_table("t", [{"id": 1, "x": 1}], key="id")
    table.update(where="id = 1", set={"x": "x + 1"})
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
