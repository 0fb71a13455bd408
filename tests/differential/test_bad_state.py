"""A state or a saved set that does not fit, or is damaged, is refused, and stays as it was, to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.differential.bad_input import bytes_below, exit_code, two_extracts, write

import strandline as sl
from strandline.differential.signatures.state import load_state
from strandline.errors import FormatError, InputError, StateError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_extracts(tmp_path, monkeypatch)


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
    ("options", "why"),
    [
        ({"algorithm": "merge"}, "only signatures are at hand"),
        ({"compare": {"qty": "abs:1"}}, "only signatures are at hand"),
        ({"duplicates": "pair"}, "Signatures need a key that is unique"),
        ({"duplicates": "count"}, "only signatures are at hand"),
    ],
)
def test_what_signatures_can_not_answer_is_refused_and_the_state_untouched(options: dict[str, Any], why: str) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    before = bytes_below("orders.state")
    with pytest.raises(InputError, match=why):
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
    from strandline.differential.signatures import state

    path = Path("orders.state/manifest.json")
    record = json.loads(path.read_text())
    record.pop("checksum")
    change(record)
    path.write_text(json.dumps({**record, "checksum": state._digest(record)}))


@pytest.mark.parametrize("version", ["sl2", "sl4"])
def test_a_state_of_another_hash_version_is_refused(version: str) -> None:
    sl.diff(None, "good.parquet", key="id", state="orders.state")
    rewrite_manifest(lambda record: record["making"]["scheme"].update(algorithm=version))
    before = bytes_below("orders.state")
    with pytest.raises((StateError, FormatError), match=version):
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


def test_a_changed_byte_of_a_saved_set_is_found() -> None:
    sl.diff("good.parquet", "new.parquet", key="id").save("t.changes")
    for file in Path("t.changes").iterdir():
        whole = file.read_bytes()
        flipped(file, len(whole) // 2)
        with pytest.raises(FormatError):
            sl.Changes.load("t.changes")
        file.write_bytes(whole)
    sl.Changes.load("t.changes")
