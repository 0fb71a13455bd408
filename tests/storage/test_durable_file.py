"""A file or a folder is there whole or not at all, and in the order of steps that a crash can't break."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import strandline.storage.durable_file as durable_file
from strandline.storage import building, replacing


class Trouble(Exception):
    pass


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flushes and renames that happen, in order."""
    noted: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        noted.append("flush folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "flush file")

    def noting_replace(source: Any, place: Any) -> None:
        replace(source, place)
        noted.append("rename")

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    return noted


def test_a_file_is_flushed_before_it_has_its_name_and_its_folder_after(tmp_path: Path, steps: list[str]) -> None:
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert steps == ["flush file", "rename", "flush folder"]


def test_a_file_that_fails_leaves_the_old_one_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with suppress(Trouble), replacing(tmp_path / "a") as file:
        file.write(b"new")
        raise Trouble
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_hands_on_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_folder_appears_whole(tmp_path: Path, steps: list[str]) -> None:
    with building(f"{tmp_path}/made/") as folder:
        Path(folder, "part").write_bytes(b"1")
        assert not (tmp_path / "made").exists()
    assert (tmp_path / "made" / "part").read_bytes() == b"1"
    assert steps == ["rename", "flush folder"]


def test_a_folder_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    with suppress(Trouble), building(tmp_path / "made") as folder:
        Path(folder, "part").write_bytes(b"1")
        raise Trouble
    assert os.listdir(tmp_path) == []


def killed(folder: Path, writing: str) -> None:
    """A process that is killed while it writes."""
    code = f"""
import os, signal
from strandline.storage import building, replacing
with {writing} as it:
    (open(it + "/part", "wb") if isinstance(it, str) else it).write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, check=False)
    assert ran.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("kind", "write"), [("replacing", replacing), ("building", building)])
def test_what_a_killed_writer_left_goes_with_the_next_writer_of_the_same_name(
    tmp_path: Path, kind: str, write: Any
) -> None:
    killed(tmp_path, f"{kind}('a')")
    assert len(os.listdir(tmp_path)) == 1
    others = {".a.12345678.part.old", ".a.1234.part", ".b.12345678.part", "a.tmp", "b.0123456789ab.tmp"}
    for name in others:
        (tmp_path / name).touch()
    with write(tmp_path / "a"):
        pass
    assert set(os.listdir(tmp_path)) == {"a", *others}


@pytest.mark.parametrize("write", [replacing, building])
def test_what_a_live_writer_has_is_left_to_it(tmp_path: Path, write: Any) -> None:
    with suppress(Trouble), write(tmp_path / "a"):
        before = set(os.listdir(tmp_path))
        with write(tmp_path / "a"):
            assert before < set(os.listdir(tmp_path))
        assert before < set(os.listdir(tmp_path))
        raise Trouble
    assert os.listdir(tmp_path) == ["a"]


def test_all_of_a_large_piece_is_written(tmp_path: Path) -> None:
    piece = os.urandom(3 << 20)
    durable_file.write_flushed(tmp_path / "a", [piece, b"", b"end"])
    assert (tmp_path / "a").read_bytes() == piece + b"end"
