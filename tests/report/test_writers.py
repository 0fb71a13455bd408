"""Rows into files: what each format holds, and that a file is written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.samples import counted, empty, orders

import strandline as sl
from strandline.changes import Changes
from strandline.errors import FormatError, InputError, NotFound, StrandlineError
from strandline.report import Out, format_of, write_out, write_rows, write_text
from strandline.report.layouts import lay_out

AWKWARD = pa.table(
    {
        "text": ["a,\"b'\n", "", None],
        "real": [1.5, float("nan"), None],
        "money": pa.array([Decimal("1.10"), None, None], pa.decimal128(8, 2)),
        "when": pa.array([0, 1, None], pa.timestamp("ns", "UTC")),
        "bytes": [b"\x00\xff", b"", None],
        "nested": pa.array([{"x": [1, None]}, {"x": []}, None], pa.struct([("x", pa.list_(pa.int64()))])),
        "map": pa.array([[("k", 1.0)], [], None], pa.map_(pa.string(), pa.float64())),
        "flag": [True, False, None],
    }
)


def test_parquet_holds_the_rows_as_they_are(tmp_path: Path) -> None:
    changes = orders()
    written = write_rows([changes.rows.slice(0, 2), changes.rows.slice(2)], tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").equals(changes.rows)
    assert (written.rows, written.bytes) == (6, (tmp_path / "x.parquet").stat().st_size)


def test_csv_holds_nested_values_as_json_and_tells_null_from_empty(tmp_path: Path) -> None:
    write_rows(AWKWARD, tmp_path / "x.csv")
    raw = (tmp_path / "x.csv").read_text()
    header, first, second, third = csv.reader(raw.splitlines(keepends=True))
    assert header == AWKWARD.column_names
    assert first == [
        "a,\"b'\n",
        "1.5",
        "1.10",
        "1970-01-01 00:00:00+00:00",
        "AP8=",
        '{"x": [1, null]}',
        '{"k": 1.0}',
        "true",
    ]
    assert second[1:6] == ["nan", "", "1970-01-01 00:00:00.000000001+00:00", "", '{"x": []}']
    assert second[6] == "{}"
    assert third == [""] * 8
    assert raw.splitlines()[-2].startswith('"",')
    assert raw.splitlines()[-1] == "," * 7


def test_json_lines_are_valid_json_each(tmp_path: Path) -> None:
    write_rows(AWKWARD, tmp_path / "x.ndjson")
    first, second, third = (json.loads(line) for line in (tmp_path / "x.ndjson").read_text().splitlines())
    assert first["text"] == "a,\"b'\n"
    assert first["nested"] == {"x": [1, None]}
    assert (second["real"], second["map"], first["money"]) == ("NaN", {}, "1.10")
    assert set(third.values()) == {None}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("layout", ["changes", "column-by-column", "side-by-side", "sparse", "left", "right"])
def test_every_layout_of_every_set_can_be_written(tmp_path: Path, suffix: str, layout: str) -> None:
    for sample in (orders, counted, empty):
        changes = sample()
        out = Out(str(tmp_path / f"{sample.__name__}.{suffix}"), layout=layout)
        written = write_out(changes.header, [changes.rows], out)
        assert written.rows == sum(len(table) for table in lay_out(changes.header, [changes.rows], layout))
        assert write_out(changes.header, [], out).rows == 0


def test_an_existing_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "link.csv").symlink_to(target)
    write_rows(pa.table({"a": [1]}), tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert target.read_text() == '"a"\n1\n'
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.Table]:
        yield pa.table({"a": [1]})
        raise ValueError("the source broke")

    for name in ("x.parquet", "x.csv", "x.jsonl"):
        (tmp_path / name).write_text("old")
        with pytest.raises(ValueError, match="the source broke"):
            write_rows(failing(), tmp_path / name)
        assert (tmp_path / name).read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["x.csv", "x.jsonl", "x.parquet"]


def test_folders_and_unknown_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="folder of that name"):
        write_rows(AWKWARD, tmp_path / "folder.csv")
    with pytest.raises(NotFound, match=r"there is no folder .*absent"):
        write_rows(AWKWARD, tmp_path / "absent" / "x.csv")
    with pytest.raises(InputError, match=r"'.xlsx' names no format.*\.parquet"):
        write_rows(AWKWARD, tmp_path / "x.xlsx")
    with pytest.raises(InputError, match="no suffix"):
        format_of("changes")
    with pytest.raises(InputError, match="not written as 'sql'"):
        write_rows(AWKWARD, tmp_path / "x.sql")
    assert os.listdir(tmp_path) == ["folder.csv"]


def test_a_format_can_be_said_whatever_the_name(tmp_path: Path) -> None:
    write_rows(pa.table({"a": [1]}), tmp_path / "noname", "jsonl")
    assert (tmp_path / "noname").read_text() == '{"a": 1}\n'


def test_a_pipe_is_written_straight_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen([sys.executable, "-c", f"print(open({str(pipe)!r}).read(), end='')"], stdout=-1)
    write_rows(pa.table({"a": [1, 2]}), pipe, "jsonl")
    assert reader.communicate(timeout=30)[0] == b'{"a": 1}\n{"a": 2}\n'
    assert pipe.is_fifo()


def test_a_saved_change_set_loads_again_and_never_replaces_another_folder(tmp_path: Path) -> None:
    changes = orders()
    for _ in range(2):
        written = write_out(changes.header, [changes.rows], Out(str(tmp_path / "x.changes")))
    assert written.rows == 6
    loaded = Changes.load(tmp_path / "x.changes")
    assert loaded.to_arrow().equals(changes.rows)
    assert loaded.header.counts == changes.header.counts
    (tmp_path / "photos.changes").mkdir()
    (tmp_path / "photos.changes" / "holiday.jpg").write_text("sea")
    with pytest.raises(StrandlineError):
        write_out(changes.header, [changes.rows], Out(str(tmp_path / "photos.changes")))
    assert (tmp_path / "photos.changes" / "holiday.jpg").read_text() == "sea"


def test_text_is_written_as_utf_8(tmp_path: Path) -> None:
    write_text(["æ", "→"], tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text("utf-8") == "æ→"


def test_importing_the_reports_loads_neither_spark_nor_duckdb_nor_sqlglot() -> None:
    heavy = ("pyspark", "duckdb", "sqlglot", "numba")
    program = f"import sys, strandline.report; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path.cwd() / "src"
    )
    assert run.stdout.strip() == "[]"


def test_text_that_is_not_utf_8_is_told_where_text_is_written(tmp_path: Path) -> None:
    held = pa.array([b"\xff\xfe"]).view(pa.string())
    changes = sl.diff(pa.table({"id": [1], "v": ["a"]}), pa.table({"id": [1], "v": held}), key="id", runner="inline")
    for suffix in ("jsonl", "md", "html", "sql"):
        with pytest.raises(FormatError, match="a text of the changes is not UTF-8"):
            changes.write(tmp_path / f"t.{suffix}", table="t")
    changes.write(tmp_path / "t.parquet")
    assert os.listdir(tmp_path) == ["t.parquet"]


@pytest.mark.parametrize("day", [2**31 - 1, -(2**31)])
def test_days_that_csv_has_no_form_for_are_refused(tmp_path: Path, day: int) -> None:
    days = pa.array([0, day, None], pa.int32()).cast(pa.date32())
    changes = sl.diff(pa.table({"d": days}).slice(0, 1), pa.table({"d": days}), runner="inline")
    with pytest.raises(InputError, match="beyond the year 32767"):
        changes.write(tmp_path / "t.csv")
    changes.write(tmp_path / "t.jsonl")
    assert str(day) in (tmp_path / "t.jsonl").read_text()
