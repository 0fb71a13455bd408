"""Every example of the commands' help runs in the core install, or says which extra it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.test_help import commands, leaves

from strandline.errors import EXTRAS

HIDDEN = [package for packages in EXTRAS.values() for package in packages]


def examples() -> list[str]:
    """The lines of help that call the command; benchmarks, as their help says, are for a clone of the source."""
    helps = {each.help or "" for command in commands().values() for each in (command, *leaves(command))}
    lines = (line.strip() for text in sorted(helps) for line in text.splitlines())
    calls = [line for line in dict.fromkeys(lines) if line.startswith(("strandline ", "eval ", "zcat "))]
    return [line for line in calls if not line.startswith("strandline bench")]


def test_each_example_of_the_help_runs_in_the_core_or_names_its_extra(tmp_path: Path) -> None:
    lines = examples()
    assert len(lines) > 80
    command = [sys.executable, str(Path(__file__).with_name("core_examples.py")), str(tmp_path), *HIDDEN]
    ran = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr
