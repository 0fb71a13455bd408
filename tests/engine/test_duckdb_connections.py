"""What a sandboxed connection can see, and what a kernel's connection is limited to."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.engine import kernel_duckdb, sandboxed_duckdb

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
