"""Saved change sets: they come back whole, and nothing damaged or foreign is taken for one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.examples import LAWS, examples
from tests.random_tables import Case, bags, cases

from strandline.changes import Changes, files
from strandline.changes.fill import fill
from strandline.changes.table_difference import difference
from strandline.errors import FormatError, InputError, NotFound

OLD = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
NEW = pa.table({"id": [2, 3, 4], "name": ["b", "C", "d"]})


def saved(folder: Path) -> Path:
    path = folder / "tuesday.changes"
    Changes.of(difference(OLD, NEW, ["id"])).save(path)
    return path


@settings(LAWS, max_examples=examples(25))
@given(case=cases())
def test_a_keyed_set_comes_back_as_it_was_saved(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    path = tmp_path_factory.mktemp("saved") / "x.changes"
    changes = Changes.of(difference(case.states[0], case.states[1], case.key))
    changes.save(path)
    again = Changes.load(path)
    assert again.header == changes.header
    assert again.to_arrow().schema == changes.to_arrow().schema
    assert again.to_arrow().to_pylist().__repr__() == changes.to_arrow().to_pylist().__repr__()


@settings(LAWS, max_examples=examples(15))
@given(case=bags())
def test_a_counted_set_comes_back_as_it_was_saved(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    path = tmp_path_factory.mktemp("saved") / "x.changes"
    changes = Changes.of(difference(case.states[0], case.states[1]))
    changes.save(path)
    assert Changes.load(path).header == changes.header
    assert len(Changes.load(path)) == len(changes)


def test_a_filled_set_keeps_what_its_added_columns_hold(tmp_path: Path) -> None:
    wider = NEW.append_column("note", pa.array(["x", None, "y"]))
    whole = fill(difference(OLD, wider, ["id"]), {"note": "none"})
    Changes.of(whole).save(tmp_path / "x")
    again = Changes.load(tmp_path / "x")
    assert again.header.fill == whole.header.fill
    assert again.apply(OLD).to_arrow().column("note").to_pylist() == ["none"] * 3


def test_an_empty_set_can_be_saved(tmp_path: Path) -> None:
    Changes.of(difference(OLD, OLD, ["id"])).save(tmp_path / "none")
    assert len(Changes.load(tmp_path / "none")) == 0


def test_saving_replaces_a_change_set_and_leaves_no_old_parts(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (path / "notes.txt").write_text("mine")
    Changes.of(difference(OLD, OLD.slice(1), ["id"])).save(path)
    assert Changes.load(path).summary().deleted == 1
    assert len(list(path.glob("part-*"))) == 1
    assert (path / "notes.txt").exists()
    Changes.load(path).save(path)
    assert Changes.load(path).summary().deleted == 1
    assert os.listdir(tmp_path) == ["tuesday.changes"]


@pytest.mark.parametrize("kind", ["file", "folder", "manifest of another kind", "dangling link"])
def test_saving_over_anything_else_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "file":
        target.write_text("precious")
    elif kind == "dangling link":
        target.symlink_to(tmp_path / "nowhere")
    else:
        target.mkdir()
        (target / ("data.parquet" if kind == "folder" else "manifest.json")).write_text("{}")
    changes = Changes.of(difference(OLD, NEW, ["id"]))
    with pytest.raises(InputError, match="not a change set"):
        changes.save(target)


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError("disk full")

    monkeypatch.setattr(files, "_manifest", broken)
    with pytest.raises(OSError, match="disk full"):
        saved(tmp_path)
    assert os.listdir(tmp_path) == []


def test_any_byte_changed_in_the_manifest_is_seen(tmp_path: Path) -> None:
    path = saved(tmp_path)
    manifest = path / "manifest.json"
    whole = manifest.read_bytes()
    for place in range(len(whole)):
        for flip in (0x01, 0x20):
            manifest.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            with pytest.raises(FormatError):
                Changes.load(path)
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        manifest.write_bytes(whole[:cut])
        with pytest.raises(FormatError):
            Changes.load(path)
    manifest.write_bytes(whole + b" ")
    with pytest.raises(FormatError):
        Changes.load(path)


def test_any_byte_changed_in_a_part_is_seen(tmp_path: Path) -> None:
    path = saved(tmp_path)
    part = next(path.glob("part-*"))
    whole = part.read_bytes()
    for place in range(len(whole)):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(FormatError, match="damaged"):
            Changes.load(path)
    part.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="damaged"):
        Changes.load(path)
    part.unlink()
    with pytest.raises(FormatError, match="missing"):
        Changes.load(path)


def rewrite(path: Path, **changed: object) -> None:
    """A manifest with other facts and a right checksum, as an adversary or a later version would write it."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest.pop("sha256")
    (path / "manifest.json").write_bytes(files._canonical({**manifest, **changed}))


def test_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = saved(tmp_path)
    rewrite(path, format=2)
    with pytest.raises(FormatError, match="newer Strandline"):
        Changes.load(path)


@pytest.mark.parametrize("name", ["../outside.parquet", "/etc/hostname", "..", "", "sub/part.parquet", "link.parquet"])
def test_parts_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    part = json.loads((path / "manifest.json").read_bytes())["parts"][0]
    shutil.copy(path / part["name"], tmp_path / "outside.parquet")
    (path / "link.parquet").symlink_to(tmp_path / "outside.parquet")
    rewrite(path, parts=[{**part, "name": name}])
    with pytest.raises(FormatError, match="not in the folder"):
        Changes.load(path)


def test_a_manifest_that_says_something_else_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    rewrite(path, header={"form": "keyed"})
    with pytest.raises(FormatError, match="does not say"):
        Changes.load(path)
    rewrite(path, parts=[{"name": 1}])
    with pytest.raises(FormatError):
        Changes.load(path)


def test_what_is_not_there_or_not_a_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such folder"):
        Changes.load(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="no manifest"):
        Changes.load(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "something"}))
    with pytest.raises(FormatError, match="another kind"):
        Changes.load(tmp_path)
