"""Shells complete commands, options and files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(command: Command, shell: str) -> None:
    ran = command("completion", shell)
    assert ran.code == 0
    assert f"_STRANDLINE_COMPLETE={shell}_complete" in ran.out
    told = command("completion", shell, "--json").json
    assert (told["shell"], told["script"].strip()) == (shell, ran.out.strip())


def test_another_shell_is_refused(command: Command) -> None:
    ran = command("completion", "csh")
    assert ran.code == 2
    assert "'bash', 'zsh', 'fish'" in ran.err


def completed(words: str, place: int) -> list[str]:
    """What bash would offer for the word at a place."""
    asked = {**os.environ, "_STRANDLINE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    ran = subprocess.run(
        [sys.executable, "-m", "strandline.cli"], env=asked, capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


def test_commands_options_and_choices_are_offered() -> None:
    assert completed("strandline du", 1) == ["plain,dump", "plain,dumps"]
    assert completed("strandline dump shop backups --le", 4) == ["plain,--level"]
    assert completed("strandline drop shop sn", 3) == ["plain,snapshot"]
    assert completed("strandline whatif me", 2) == ["plain,merge"]
    assert completed("strandline diff mon", 2) == ["file,mon"], "bash completes the file"


def test_bash_itself_completes(command: Command, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = command("completion", "bash").out
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "strandline").write_text(f'#!/bin/sh\nexec {sys.executable} -m strandline.cli "$@"\n')
    (folder / "strandline").chmod(0o755)
    asked = "COMP_WORDS=(strandline snap); COMP_CWORD=1; _strandline_completion strandline; echo ${COMPREPLY[@]}"
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [bash, "-c", f"{script}\n{asked}"], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["snapshot", "snapshots"]
