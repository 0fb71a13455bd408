"""Bad input gives one clear error, exit code 2, and leaves a saved state as it was, to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.detect.state import load_state
from strandline.errors import FormatError, InputError, KeysError, NotFound, SchemaError, StateError, StrandlineError

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64())])
TEXT_QTY = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.string())])
ROOT = Path(__file__).parents[2]


def write(path: Path | str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def some(first: int = 1, last: int = 5) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}", "qty": n} for n in range(first, last + 1)]


def bytes_below(folder: Path | str) -> dict[str, bytes]:
    root = Path(folder)
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("good.parquet", some())
    write("new.parquet", some(2, 6))


def duplicates() -> None:
    write("bad.parquet", [*some(), *some(2, 3)])


def many_duplicates() -> None:
    write("bad.parquet", [*some(1, 30), *some(1, 30)])


def no_key_column() -> None:
    write("bad.parquet", [{"number": 1, "qty": 1}], pa.schema([("number", pa.int64()), ("qty", pa.int64())]))


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
    "a missing key column": (no_key_column, KeysError, ("'id' is not there", "number, qty")),
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
    assert all(word in message for word in words), message
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


def exit_code(*arguments: str) -> int:
    from strandline.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


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
def test_the_same_path_on_both_sides_is_a_mistake(other: str) -> None:
    Path("link.parquet").symlink_to("good.parquet")
    with pytest.raises(InputError, match=r"both sides are good\.parquet"):
        sl.diff("good.parquet", other, key="id")


# Saved state


UNFIT: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "other columns": ({"ignore": "name"}, ("name", "saved")),
    "another key": ({"key": "name"}, ("key: id was saved, name is asked for",)),
    "another condition": ({"where": "qty > 1"}, ("condition: none was saved",)),
    "more bits": ({"bits": 128}, ("64", "128")),
    "normalised text": ({"compare": {"name": "trim"}}, ("normalisation", "trim")),
    "column signatures": ({"column_signatures": True}, ("per-column signatures",)),
    "pointers": ({"algorithm": "kbp"}, ("pointers",)),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_state_that_does_not_fit_is_refused_and_untouched(case: str) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    before = bytes_below("orders.state")
    options, words = UNFIT[case]
    with pytest.raises(StateError) as told:
        sl.diff(None, "new.parquet", **{"key": "id", "state": "orders.state", **options})
    assert all(word in str(told.value) for word in words), str(told.value)
    assert "--save-state" in str(told.value)
    assert bytes_below("orders.state") == before


@pytest.mark.parametrize(
    "options", [{"algorithm": "merge"}, {"compare": {"qty": "abs:1"}}, {"duplicates": "pair"}, {"duplicates": "count"}]
)
def test_what_signatures_can_not_answer_is_refused_and_the_state_untouched(options: dict[str, Any]) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    before = bytes_below("orders.state")
    with pytest.raises(InputError, match="only signatures are at hand"):
        sl.diff(None, "new.parquet", key="id", state="orders.state", **options)
    assert bytes_below("orders.state") == before


def test_a_column_that_went_is_told_by_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    before = bytes_below("orders.state")
    write("narrow.parquet", [{"id": 1, "qty": 1}], pa.schema([("id", pa.int64()), ("qty", pa.int64())]))
    assert exit_code("diff", "narrow.parquet", "-k", "id", "--state", "orders.state") == 2
    assert "column name was saved" in capsys.readouterr().err
    assert bytes_below("orders.state") == before


def rewrite_manifest(change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the manifest and mends its checksum, as another version of the program would."""
    from strandline.detect import state

    path = Path("orders.state/manifest.json")
    record = json.loads(path.read_text())
    record.pop("checksum")
    change(record)
    path.write_text(json.dumps({**record, "checksum": state._digest(record)}))


def test_a_state_of_another_hash_version_is_refused() -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    rewrite_manifest(lambda record: record["making"]["scheme"].update(algorithm="sl2"))
    before = bytes_below("orders.state")
    with pytest.raises((StateError, FormatError), match="sl2"):
        sl.diff(None, "new.parquet", key="id", state="orders.state")
    assert bytes_below("orders.state") == before


def test_a_state_of_a_newer_format_is_refused() -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    rewrite_manifest(lambda record: record.update(format=2))
    with pytest.raises(FormatError, match="has format 2, and this version reads up to 1"):
        sl.diff(None, "new.parquet", key="id", state="orders.state")


def test_a_state_that_names_files_outside_is_refused() -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    rewrite_manifest(lambda record: record["segments"][0].update(path="../good.parquet"))
    with pytest.raises(FormatError, match="outside"):
        sl.diff(None, "new.parquet", key="id", state="orders.state")


@pytest.mark.parametrize("content", ["", "[]", "3", "null", '{"checksum": 1, "format": "one"}', "{}", "\\xff"])
def test_a_manifest_that_is_something_else_is_refused(content: str) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    Path("orders.state/manifest.json").write_text(content)
    with pytest.raises(FormatError, match=r"orders\.state"):
        sl.diff(None, "new.parquet", key="id", state="orders.state")


def flipped(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x20
    path.write_bytes(content)


def test_every_changed_byte_of_a_manifest_is_found() -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    path = Path("orders.state/manifest.json")
    whole = path.read_bytes()
    record = json.loads(whole)
    for place in range(len(whole)):
        flipped(path, place)
        try:
            same = json.loads(path.read_bytes()) == record
        except ValueError:
            same = False
        if not same:
            with pytest.raises(FormatError):
                load_state("orders.state")
        path.write_bytes(whole)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_a_changed_byte_of_a_segment_is_found_and_the_state_untouched(share: float) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    (segment,) = Path("orders.state").rglob("*.arrow")
    flipped(segment, int(share * segment.stat().st_size))
    before = bytes_below("orders.state")
    with pytest.raises(FormatError, match=r"checksum|can't be read"):
        sl.diff(None, "new.parquet", key="id", state="orders.state")
    assert bytes_below("orders.state") == before


def test_a_missing_segment_is_told() -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    (segment,) = Path("orders.state").rglob("*.arrow")
    segment.unlink()
    with pytest.raises(FormatError, match=r"can't be read"):
        sl.diff(None, "new.parquet", key="id", state="orders.state")


def test_a_folder_of_something_else_is_not_overwritten_by_a_state() -> None:
    Path("photos").mkdir()
    Path("photos/cat.jpg").write_text("meow")
    with pytest.raises(InputError, match="not a folder of saved signatures"):
        sl.diff("good.parquet", "new.parquet", key="id", save_state="photos")
    assert bytes_below("photos") == {"cat.jpg": b"meow"}


def test_an_old_side_beside_a_state_is_refused() -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    with pytest.raises(InputError, match="leave the old side out"):
        sl.diff("good.parquet", "new.parquet", key="id", state="orders.state")


@pytest.mark.parametrize(
    "options",
    [
        ("--out", "changes.xls"),
        ("--out", "no/such/folder/changes.csv"),
        ("--html", "no/such/folder/report.html"),
        ("--out", "changes.csv", "--layout", "left"),
        ("--fail-over", "1%"),
    ],
)
def test_a_state_stays_when_its_changes_reach_nobody(options: tuple[str, ...]) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    before = bytes_below("orders.state")
    assert exit_code("diff", "new.parquet", "-k", "id", "--state", "orders.state", *options) == 2
    assert bytes_below("orders.state") == before


# Saved change sets


def test_a_changed_byte_of_a_saved_set_is_found() -> None:
    sl.diff("good.parquet", "new.parquet", key="id").save("t.changes")
    for file in Path("t.changes").iterdir():
        whole = file.read_bytes()
        flipped(file, len(whole) // 2)
        with pytest.raises(FormatError):
            sl.Changes.load("t.changes")
        file.write_bytes(whole)
    sl.Changes.load("t.changes")


# Spark and Java, each in a process that has no session yet


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strandline.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )


def on_spark(environment: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    arguments = ("diff", "good.parquet", "new.parquet", "-k", "id", "--runner", "spark", "--json", *more)
    return run(environment, *arguments)


def test_an_unknown_master_is_told() -> None:
    ran = on_spark({}, "--master", "mars://7077")
    assert (ran.returncode, json.loads(ran.stdout)["error"]) == (2, "InputError")
    assert "'mars://7077' is no Spark master" in ran.stderr


def test_without_java_the_error_says_how_to_get_it() -> None:
    os.mkdir("bin")
    ran = on_spark({"PATH": os.path.abspath("bin"), "JAVA_HOME": ""})
    assert (ran.returncode, json.loads(ran.stdout)["error"]) == (2, "EngineError")
    assert "no Java was found" in ran.stderr
    assert "--runner inline" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_java_11_is_too_old() -> None:
    os.mkdir("bin")
    java = Path("bin/java")
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    ran = on_spark({"PATH": f"{os.path.abspath('bin')}:{os.environ['PATH']}", "JAVA_HOME": ""})
    assert (ran.returncode, json.loads(ran.stdout)["error"]) == (2, "EngineError")
    assert "is Java 11, and Spark needs 17 or newer" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_small_work_needs_no_java() -> None:
    os.mkdir("bin")
    environment = {"PATH": os.path.abspath("bin"), "JAVA_HOME": ""}
    ran = run(environment, "diff", "good.parquet", "new.parquet", "-k", "id", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["inserted"]) == (1, 1)
