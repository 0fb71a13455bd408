"""Sheets of workbooks: types by their cells, and what is wrong with them told."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xlsxwriter
from tests.cli.command import Command
from tests.storage import s3

import strandline as sl
from strandline.errors import FormatError, InputError, NotFound, SchemaError
from strandline.relations import ReadOptions, open_relation, read_relation
from strandline.storage.object_file import put_object


def write(path: Path, **sheets: list[list[Any]]) -> Path:
    with xlsxwriter.Workbook(path, {"default_date_format": "yyyy-mm-dd hh:mm:ss"}) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    return path


def cells(path: Path, *column: Any, **options: Any) -> pa.ChunkedArray:
    """The column `a` of a sheet whose only other column is a number."""
    book = write(path / "b.xlsx", S=[["n", "a"], *([place, cell] for place, cell in enumerate(column))])
    return read_relation(open_relation(book, options=ReadOptions(**options))).column("a")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1, None, 2], pa.array([1, None, 2])),
        ([1, 2.5], pa.array([1.0, 2.5])),
        ([2.0**60, 1], pa.array([2.0**60, 1.0])),
        ([True, None], pa.array([True, None])),
        ([dt.date(2024, 1, 31)], pa.array([dt.date(2024, 1, 31)])),
        (
            [dt.datetime(2024, 1, 31), dt.datetime(2024, 1, 31, 10)],
            pa.array([dt.datetime(2024, 1, 31), dt.datetime(2024, 1, 31, 10)], pa.timestamp("us")),
        ),
        ([1, "00123", True, 2.5], pa.array(["1", "00123", "true", "2.5"])),
        (["1", "2"], pa.array(["1", "2"])),
        ([None], pa.array([None], pa.string())),
    ],
)
def test_a_column_has_the_type_of_its_cells(tmp_path: Path, column: list[Any], expected: pa.Array) -> None:
    assert cells(tmp_path, *column).combine_chunks().equals(expected)


def test_a_type_that_is_given_is_read_from_the_text_of_the_cells(tmp_path: Path) -> None:
    assert cells(tmp_path, 0.1, 2, types={"a": "decimal(10,2)"}).to_pylist() == [Decimal("0.10"), Decimal("2.00")]
    assert cells(tmp_path, "NA", 2, nulls=("NA",)).to_pylist() == [None, 2]
    with pytest.raises(SchemaError, match="'a'"):
        cells(tmp_path, 1, "many", types={"a": "int64"})


def test_rows_without_a_cell_are_none_and_a_column_without_a_title_has_a_number(tmp_path: Path) -> None:
    book = write(tmp_path / "b.xlsx", S=[["id", None, None], [1, "x"], [], [2]])
    assert read_relation(open_relation(book)).to_pylist() == [{"id": 1, "column2": "x"}, {"id": 2, "column2": None}]
    bare = read_relation(open_relation(book, options=ReadOptions(header=False, names=("k", "v"))))
    assert bare.to_pylist()[0] == {"k": "id", "v": None}


def test_books_of_one_glob_are_one_relation(tmp_path: Path) -> None:
    write(tmp_path / "a.xlsx", May=[["id", "v"], [1, 1]], June=[["x"]])
    write(tmp_path / "b.xlsx", May=[["id", "v"], [2, 2.5]])
    relation = open_relation(f"{tmp_path}/*.xlsx#May")
    assert read_relation(relation).to_pylist() == [{"id": 1, "v": 1.0}, {"id": 2, "v": 2.5}]


def test_a_sheet_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path: Path, command: Command) -> None:
    book = write(tmp_path / "b.xlsx", May=[["id"], [1]], June=[["id"], [2]], Empty=[])
    with pytest.raises(NotFound, match=r"there is no sheet 'july'. Its sheets are May, June, Empty"):
        open_relation(f"{book}#july")
    with pytest.raises(InputError, match=r"3 sheets, and none is named.*behind a #"):
        open_relation(book)
    with pytest.raises(FormatError, match="the sheet is empty"):
        open_relation(f"{book}#Empty")
    with pytest.raises(NotFound, match="no such file"):
        open_relation(f"{tmp_path}/c.xlsx#May")
    ran = command("diff", f"{book}#May", f"{book}#June", "--key", "id", "--json")
    assert (ran.code, ran.json["inserted"], ran.json["deleted"]) == (1, 1, 1)
    assert command("diff", f"{book}#May", f"{book}#May", "--key", "id").code == 0


def test_a_sheet_at_a_url_is_a_side_of_the_command_and_no_table_of_a_store(tmp_path: Path, command: Command) -> None:
    book = write(tmp_path / "b.xlsx", May=[["id"], [1]], June=[["id"], [2]])
    with s3.bucket() as name:
        put_object(f"s3://{name}/b.xlsx", book.read_bytes())
        ran = command("diff", f"s3://{name}/b.xlsx#May", f"{book}#June", "--key", "id", "--json")
        assert (ran.code, ran.json["inserted"], ran.json["deleted"]) == (1, 1, 1)


def test_what_is_no_workbook_is_told(tmp_path: Path) -> None:
    (tmp_path / "b.xlsx").write_bytes(b"PK\x03\x04 not a book")
    with pytest.raises(FormatError, match="readable Excel file"):
        open_relation(tmp_path / "b.xlsx")
    (tmp_path / "a#b.csv").write_text("id\n1\n")
    assert open_relation(tmp_path / "a#b.csv").rows == 1


def test_a_sheet_is_loaded_into_a_store(tmp_path: Path) -> None:
    book = write(tmp_path / "b.xlsx", May=[["id", "v"], [1, "a"]], June=[["id", "v"], [1, "b"], [2, "c"]])
    store = sl.create(tmp_path / "shop")
    store.create_table("t", f"{book}#May", key="id")
    store.table("t").apply(sl.diff(store.table("t"), f"{book}#June", key="id"))
    assert store.table("t").to_arrow().to_pylist() == [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]
