"""Bad input gives one clear error, exit code 2, and leaves a saved state as it was, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.differential.bad_input import TEXT_QTY, bytes_below, exit_code, some, two_extracts, write

import strandline as sl
from strandline.errors import FormatError, InputError, KeysError, NotFound, SchemaError, StrandlineError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_extracts(tmp_path, monkeypatch)


def duplicates() -> None:
    write("bad.parquet", [*some(), *some(2, 3)])


def many_duplicates() -> None:
    write("bad.parquet", [*some(1, 30), *some(1, 30)])


def no_key_column() -> None:
    write("bad.parquet", [{"number": 1, "qty": 1}], pa.schema([("number", pa.int64()), ("qty", pa.int64())]))


def key_in_another_case() -> None:
    write("bad.parquet", [{"ID": 1, "qty": 1}], pa.schema([("ID", pa.int64()), ("qty", pa.int64())]))


def null_keys() -> None:
    write("bad.parquet", [{"id": None, "name": "a", "qty": 1}, {"id": None, "name": "b", "qty": 2}])


def text_keys() -> None:
    rows = [{"id": "one", "name": "a", "qty": 1}]
    write("bad.parquet", rows, pa.schema([("id", pa.string()), ("name", pa.string()), ("qty", pa.int64())]))


def different_parts() -> None:
    write("bad.parquet/0.parquet", some(1, 2))
    write("bad.parquet/1.parquet", [{"id": 3, "name": "c", "qty": "three"}], TEXT_QTY)


def truncated() -> None:
    whole = Path("good.parquet").read_bytes()
    Path("bad.parquet").write_bytes(whole[: len(whole) * 2 // 3])


def cut_to_nothing() -> None:
    Path("bad.parquet").write_bytes(b"")


def damaged_page() -> None:
    whole = bytearray(Path("good.parquet").read_bytes())
    whole[8:40] = b"\xff" * 32
    Path("bad.parquet").write_bytes(whole)


def absent() -> None:
    return


def empty_folder() -> None:
    Path("bad.parquet").mkdir()


def folder_without_parquet() -> None:
    Path("bad.parquet").mkdir()
    Path("bad.parquet/notes.txt").write_text("nothing here\n")


Case = tuple[Callable[[], None], type[StrandlineError], tuple[str, ...]]

BAD: dict[str, Case] = {
    "duplicate keys": (duplicates, KeysError, ("id=2", "id=3", "'count'", "'pair'")),
    "many duplicate keys": (many_duplicates, KeysError, ("id=1", "20 more")),
    "a missing key column": (no_key_column, KeysError, ("'id' is not on the {side} side", "number, qty")),
    "a key column in another case": (key_in_another_case, KeysError, ("'id' is 'ID' on the {side} side", "any_case")),
    "a key of nulls": (null_keys, KeysError, ("nothing but nulls",)),
    "incomparable keys": (text_keys, KeysError, ("int64", "string")),
    "part files with different schemas": (different_parts, SchemaError, ("1.parquet", "'qty'", "union_by_name")),
    "a truncated Parquet file": (truncated, FormatError, ("bad.parquet", "not a whole, readable Parquet file")),
    "an empty file": (cut_to_nothing, FormatError, ("bad.parquet",)),
    "a damaged page": (damaged_page, FormatError, ("bad.parquet", "not a whole, readable Parquet file")),
    "a missing file": (absent, NotFound, ("bad.parquet", "no such file or folder")),
    "an empty folder": (empty_folder, NotFound, ("bad.parquet", "empty")),
    "a folder without Parquet": (folder_without_parquet, FormatError, ("notes.txt", "format")),
}


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_side_is_a_clear_error(case: str, side: str) -> None:
    make, kind, words = BAD[case]
    make()
    sides = ("bad.parquet", "new.parquet") if side == "old" else ("good.parquet", "bad.parquet")
    with pytest.raises(StrandlineError) as told:
        sl.diff(*sides, key="id")
    message = str(told.value)
    assert isinstance(told.value, kind), f"{type(told.value).__name__}: {message}"
    assert all(word.format(side=side) in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("algorithm", ["merge", "hash", "kb", "kbp"])
def test_duplicate_keys_are_refused_and_shown(algorithm: str) -> None:
    """The window is not among them: it forgets what it has matched (docs/differentials.md)."""
    duplicates()
    for sides in (("bad.parquet", "new.parquet"), ("good.parquet", "bad.parquet")):
        with pytest.raises(KeysError, match=r"\(2,\)|id=2"):
            sl.diff(*sides, key="id", algorithm=algorithm)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_new_side_leaves_the_state_as_it_was(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    before = bytes_below("orders.state")
    BAD[case][0]()
    assert exit_code("diff", "bad.parquet", "--key", "id", "--state", "orders.state") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("strandline: ")
    assert "Traceback" not in told.err
    assert bytes_below("orders.state") == before
    assert not Path("orders.state").with_suffix(".tmp").exists()


def test_a_ragged_row_is_told_with_its_line() -> None:
    Path("a.csv").write_text("id,name\n1,a\n2,b\n")
    Path("b.csv").write_text("id,name\n1,a\n2,b,too many\n")
    with pytest.raises(FormatError, match=r"b\.csv: line 3 has 3 fields, 2 were expected"):
        sl.diff("a.csv", "b.csv", key="id")


def test_values_that_can_not_be_compared_are_reported_and_the_rest_compares() -> None:
    write("text.parquet", [{**row, "qty": str(row["qty"])} for row in some(2, 6)], TEXT_QTY)
    found = sl.diff("good.parquet", "text.parquet", key="id")
    assert list(found.header.retyped) == ["qty"]
    assert (found.summary().inserted, found.summary().updated, found.summary().deleted) == (1, 0, 1)


@pytest.mark.parametrize("algorithm", ["auto", "merge", "hash", "kb", "kbp", "window"])
def test_an_empty_side_is_no_mistake(algorithm: str) -> None:
    write("empty.parquet", [])
    write("also.parquet", [])
    came = sl.diff("empty.parquet", "good.parquet", key="id", algorithm=algorithm).summary()
    assert (came.inserted, came.updated, came.deleted) == (5, 0, 0)
    went = sl.diff("good.parquet", "empty.parquet", key="id", algorithm=algorithm).summary()
    assert (went.inserted, went.updated, went.deleted) == (0, 0, 5)
    assert len(sl.diff("empty.parquet", "also.parquet", key="id", algorithm=algorithm)) == 0


@pytest.mark.parametrize("other", ["good.parquet", "./good.parquet", "link.parquet"])
def test_the_same_path_on_both_sides_is_told(other: str) -> None:
    Path("link.parquet").symlink_to("good.parquet")
    found = sl.diff("good.parquet", other, key="id")
    assert (len(found), found.summary().unchanged) == (0, 5)
    assert found.run.warnings == ("both sides are good.parquet",)


@pytest.mark.parametrize("memory", [0, 1, -5, True, "0", "1", "64KB", "63MB"])
def test_too_little_memory_to_plan_with_is_refused(memory: int | str) -> None:
    with pytest.raises(InputError, match="Give 64 MB or more, with the unit"):
        sl.diff("good.parquet", "new.parquet", key="id", memory=memory)
    assert len(sl.diff("good.parquet", "new.parquet", key="id", memory="64MB")) == 2
