"""Java and the master are found, or their absence is said in one sentence, before Spark is started."""

from __future__ import annotations

import os
import socket
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from strandline.engine.spark_session import find_java, java_version, spark_reason, start
from strandline.errors import EngineError, InputError

ROOT = Path(__file__).parents[2]


def fake_java(folder: Path, printed: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('openjdk version "21" 2023-09-19', 21),
    ],
)
def test_versions_of_every_age_are_read(tmp_path: Path, printed: str, version: int) -> None:
    assert java_version(str(fake_java(tmp_path, printed))) == version


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no Java was found.*openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(EngineError, match=r"is Java 11, and Spark needs 17 or newer"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_a_java_that_says_nothing_sensible_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path, "hello")
    with pytest.raises(EngineError, match="does not tell its version"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


@pytest.mark.parametrize("master", ["spork://here:7077", "local[", "", "http://x", "spark://head", "spark://a:7077,b"])
def test_an_unknown_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(InputError, match="no Spark master"):
        start(master)


def test_masters_at_which_nobody_listens_are_told_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(
            EngineError, match=rf"nobody listens at {here} \(.*refused\), nohost.invalid:7077 \(.*master"
        ):
            start(f"spark://{here},nohost.invalid:7077")


def test_a_connect_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("strandline.engine.spark_session"), "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"sc://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EngineError, match=rf"no Spark Connect server answers at {address}: no answer within"):
            start(address)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "An error occurred while calling o73.collectToPython.\n: org.apache.spark.SparkException: Job aborted: "
            'Lost task 0.3 (127.0.0.2 executor 0): java.io.IOException: Cannot run program "/no/python": error=2, No '
            "such file or directory\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)"
            "\nCaused by: java.io.IOException: error=2, No such file or directory\n\t... 23 more",
            'Cannot run program "/no/python": error=2, No such file or directory',
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            "    import pyarrow as pa\nModuleNotFoundError: No module named 'pyarrow'",
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
        ("All masters are unresponsive!\nGiving up.", "All masters are unresponsive!"),
        ("", "ValueError"),
    ],
)
def test_the_reason_of_sparks_failure_is_found_in_its_text(text: str, why: str) -> None:
    assert spark_reason(ValueError(text)) == why


@pytest.mark.parametrize(
    ("printed", "code"), [('openjdk version "17.0.1"', 0), ('openjdk version "11.0.2"', 2), ("nonsense", 2)]
)
def test_make_uses_java_home_only_when_it_is_new_enough(tmp_path: Path, printed: str, code: int) -> None:
    fake_java(tmp_path, printed)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([ROOT / "tools" / "ensure-java"], env=environment, capture_output=True, text=True)
    assert done.returncode == code
    assert (code == 0) == (done.stderr == "")
