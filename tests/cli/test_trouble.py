"""What goes wrong is one readable paragraph, exit code 2, and with --json one object on standard output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command, extracts

ROOT = Path(__file__).resolve().parents[2]

WRONG: dict[str, tuple[str, ...]] = {
    "no such command": ("frobnicate",),
    "no such option": ("diff", "a", "b", "--frobnicate"),
    "no sides": ("diff",),
    "one side without a state": ("diff", "monday.parquet"),
    "three sides": ("diff", "monday.parquet", "tuesday.parquet", "wednesday.parquet"),
    "a missing file": ("diff", "monday.parquet", "nowhere.parquet", "-k", "id"),
    "an empty key": ("diff", "monday.parquet", "tuesday.parquet", "-k", ""),
    "keeping hashed rows sorted": (
        *("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--algorithm", "hash", "--keep-sorted", "sorted"),
    ),
    "no such key": ("diff", "monday.parquet", "tuesday.parquet", "-k", "number"),
    "no such algorithm": ("diff", "monday.parquet", "tuesday.parquet", "--algorithm", "guess"),
    "no such runner": ("diff", "monday.parquet", "tuesday.parquet", "--runner", "guess"),
    "no such rule": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--compare", "qty=near"),
    "a rule that does not fit": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--compare", "qty=trim"),
    "a rule without a name": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--compare", "trim"),
    "no such column": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--columns", "shade"),
    "columns and ignore": ("diff", "monday.parquet", "tuesday.parquet", "--columns", "qty", "--ignore", "name"),
    "ignoring the key": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--ignore", "id"),
    "renaming what is not there": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--rename", "a=b"),
    "no size": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--memory", "much"),
    "no share": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--fail-over", "much"),
    "too few bits": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--bits", "31"),
    "no probability": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--miss-probability", "2"),
    "less than no slices": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--slices", "-2"),
    "a negative limit": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--limit", "-1"),
    "no condition": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--where", "qty >"),
    "no such type": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--types", "id=number"),
    "no such format": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--input-format", "xls"),
    "no such suffix": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "changes.xls"),
    "no folder to write to": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--html", "no/such/r.html"),
    "raw without a key": ("diff", "monday.parquet", "tuesday.parquet", "--raw"),
    "raw with a state": ("diff", "tuesday.parquet", "-k", "id", "--raw", "--state", "s"),
    "a share without its sign": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--fail-over", "30"),
    "a suspect reload": ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--fail-over", "10%"),
    "showing nothing": ("show", "nowhere.changes"),
    "showing something else": ("show", "monday.parquet"),
    "applying nothing": ("apply", "nowhere.changes", "monday.parquet", "--out", "x.parquet"),
    "applying to nowhere": ("apply", "nowhere.changes", "monday.parquet"),
    "inverting nothing": ("invert", "nowhere.changes", "--out", "x.changes"),
    "composing one": ("compose", "a.changes", "--out", "x.changes"),
    "no such benchmark": ("bench", "frobnication"),
}


@pytest.fixture(autouse=True)
def shop(command: Command) -> None:
    extracts()


@pytest.mark.parametrize("case", WRONG)
def test_trouble_is_a_paragraph_and_exit_code_2(command: Command, case: str) -> None:
    ran = command(*WRONG[case])
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("strandline: ")
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 4


@pytest.mark.parametrize("case", WRONG)
def test_trouble_is_an_object_for_programs(command: Command, case: str) -> None:
    ran = command(*WRONG[case], "--json")
    assert ran.code == 2
    assert ran.json["error"]
    assert ran.json["why"]


@pytest.mark.parametrize("case", WRONG)
def test_trouble_leaves_nothing_behind(command: Command, case: str) -> None:
    command(*WRONG[case])
    assert sorted(os.listdir()) == ["monday.parquet", "tuesday.parquet"]


def test_a_full_disk_is_told_in_a_paragraph(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_module("strandline.differential"), "find_changes", full)
    ran = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--json")
    assert ran.code == 2
    assert "No space left on device" in ran.json["why"]
    assert "Traceback" not in ran.err


def shell(script: str) -> subprocess.CompletedProcess[str]:
    """A shell's command line, in which `strandline` is ours."""
    ours = f'strandline() {{ "{sys.executable}" -m strandline.cli "$@"; }}; {script}'
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": ""}
    return subprocess.run(["bash", "-c", ours], env=env, capture_output=True, text=True, check=False)


def test_output_that_is_full_is_trouble_and_no_difference(command: Command) -> None:
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "t.changes")
    for words in ("show t.changes", "show t.changes --json", "diff nowhere tuesday.parquet --json", "--help"):
        ran = shell(f"ulimit -f 0; strandline {words} > out")
        assert ran.returncode == 2
        assert "Traceback" not in ran.stderr
        assert len(ran.stderr.strip().splitlines()) == 1, "one paragraph"


def test_a_closed_stream_takes_nothing_from_the_other(command: Command) -> None:
    diff = "diff monday.parquet tuesday.parquet -k id --runner inline"
    ran = shell(f"strandline {diff} --json 2>&-")
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["updated"] == 1
    ran = shell(f"strandline {diff} --out t.csv --verbose >&- 2>&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "")
    assert Path("t.csv").read_text().startswith('"_change"')
    assert shell("strandline diff nowhere tuesday.parquet 2>&-").returncode == 2


def test_our_own_mistake_is_told_as_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(import_module("strandline.differential"), "find_changes", broken)
    ran = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--json")
    assert ran.code == 2
    assert ran.json["error"] == "InternalError"
    assert "STRANDLINE_TRACEBACK=1" in ran.err
    assert "Traceback" not in ran.err
    monkeypatch.setenv("STRANDLINE_TRACEBACK", "1")
    from strandline.cli import main

    with pytest.raises(ZeroDivisionError):
        main(["diff", "monday.parquet", "tuesday.parquet", "-k", "id"])


def test_ctrl_c_is_told_and_exits_with_130(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("strandline.differential"), "find_changes", stopped)
    ran = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--json")
    assert (ran.code, ran.json["error"], ran.err.strip()) == (130, "Cancelled", "Stopped.")


def test_changes_without_before_images_can_not_be_inverted(command: Command) -> None:
    command("diff", "monday.parquet", "-k", "id", "--state", "s")
    command("diff", "tuesday.parquet", "-k", "id", "--state", "s", "--out", "t.changes")
    ran = command("invert", "t.changes", "--out", "u.changes", "--json")
    assert (ran.code, ran.json["error"]) == (2, "NoBeforeImages")
    assert not Path("u.changes").exists()


@pytest.mark.parametrize("module", ["strandline.cli.main", "click", "strandline.engine"])
def test_ctrl_c_while_the_command_is_loaded_is_told_as_later(module: str) -> None:
    code = f"""
import os, signal, sys, time

class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

sys.meta_path.insert(0, Presses())
from strandline.cli import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", code, "tables", "shop", "--json"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.strip(), json.loads(ran.stdout)["error"]) == (130, "Stopped.", "Cancelled")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_a_command_that_cleans_up_and_tells_it(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (scratch := tmp_path / "scratch").mkdir()
    arguments = [sys.executable, "-m", "strandline.cli", "diff", "-", "a.csv", "-k", "id", "--json"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(arguments, cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)}, **pipes) as running:
        assert running.stdin is not None
        running.stdin.write(b"id\n" + b"1\n" * 1_000_000)  # more than a pipe holds: it is being read
        assert os.listdir(scratch)
        running.send_signal(number)
        out, err = running.communicate()
    assert (running.returncode, err.decode().strip(), json.loads(out)["error"]) == (code, "Stopped.", "Cancelled")
    assert os.listdir(scratch) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_last_moments_of_a_command_shows_no_trace(
    command: Command, tmp_path: Path, number: int, code: int
) -> None:
    extracts()
    (tmp_path / "scratch").mkdir()
    program = f"""
import os, shutil
remove = shutil.rmtree

def removing(path, **options):
    os.kill(os.getpid(), {int(number)})
    remove(path, **options)

shutil.rmtree = removing
from strandline.cli import main
main()
"""
    arguments = [sys.executable, "-c", program, "diff", "monday.parquet", "tuesday.parquet", "-k", "id"]
    env = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    ran = subprocess.run(arguments, capture_output=True, text=True, env=env)
    assert (ran.returncode, ran.stderr.replace("Stopped.", "").strip()) == (code, "")
    assert os.listdir(tmp_path / "scratch") == []
