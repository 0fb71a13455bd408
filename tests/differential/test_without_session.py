"""What is said where Spark or Java can't be had, each in a process that has no session yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.differential.bad_input import two_extracts

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_extracts(tmp_path, monkeypatch)


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
