"""A quick part of the tests with the lowest and the newest versions of the dependencies, in throw-away environments.

    python tools/compat.py [name ...]        without names: all of those below

The lowest bounds are tried on the lowest Python, the newest versions on every Python of this machine; of the Pythons
that are not here, and of what can't be installed, that is said. It fails where tests that ran failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("hypothesis", "pandas", "pytest<9.2", "pytest-xdist")
CORE_TESTS = (
    "tests/values/test_matching.py",
    "tests/values/test_in_parquet.py",
    "tests/values/test_duckdb_meaning.py",
    "tests/values/test_expressions.py",
    "tests/changes/test_errors.py",
    "tests/changes/test_laws.py",
    "tests/changes/test_net.py",
    "tests/differential/test_comparators.py",
    "tests/relations/test_open_parquet.py",
    "tests/relations/test_open_text.py",
    "tests/store/test_queries.py",
    "tests/pages/test_basics.py",
)
LAKE_TESTS = (
    "tests/relations/test_delta.py",
    "tests/relations/test_iceberg.py",
    "tests/replication/test_lake_tables.py",
)
SPARK_TESTS = ("tests/differential/test_diff_on_spark.py", "tests/changes/test_on_spark.py")
SPARK_TESTS += ("tests/spark_source/test_on_spark.py",)


@dataclass(frozen=True)
class Trial:
    """One environment: a Python, extras, the tests, and versions instead of the newest (`lowest`: the bounds)."""

    name: str
    python: str
    extras: tuple[str, ...]
    tests: tuple[str, ...]
    versions: tuple[str, ...] = ()
    lowest: bool = False


TRIALS = (
    Trial("core-lowest", "3.11", ("fast",), CORE_TESTS, lowest=True),
    Trial("lakes-lowest", "3.11", ("delta", "iceberg", "fast"), LAKE_TESTS, lowest=True),
    Trial("spark-lowest", "3.11", ("spark", "fast"), SPARK_TESTS, lowest=True),
    Trial("spark-4.1", "3.11", ("fast",), SPARK_TESTS, versions=("pyspark[connect]==4.1.*",)),
    *(Trial(f"core-{python}", python, ("fast",), CORE_TESTS) for python in PYTHONS),
    Trial("lakes", "3.12", ("delta", "iceberg", "fast"), LAKE_TESTS),
    Trial("spark", "3.12", ("spark", "fast"), SPARK_TESTS),
)


def main(asked: list[str]) -> int:
    unknown = set(asked) - {trial.name for trial in TRIALS}
    if unknown:
        print(f"There is no trial {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in TRIALS)}.")
        return 2
    failed = False
    for trial in TRIALS:
        if not asked or trial.name in asked:
            told, passed = _tried(trial)
            print(f"{trial.name:<14} Python {trial.python}  {told}", flush=True)
            failed = failed or not passed
    return int(failed)


def _tried(trial: Trial) -> tuple[str, bool]:
    python = _interpreter(trial.python)
    if python is None:
        return "not found on this machine", True
    with tempfile.TemporaryDirectory(prefix="strandline-compat-") as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = f"{folder}/bin/python"
        pip = [inside, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-compile"]
        installed = subprocess.run([*pip, *TOOLS, *_requirements(trial)], capture_output=True, text=True, check=False)
        if installed.returncode:
            return f"can't be installed: {_last_line(installed.stderr)}", True
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": inside}
        command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *trial.tests]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            print(ran.stdout[-6000:] + ran.stderr[-1000:])
        return _last_line(ran.stdout or ran.stderr), ran.returncode == 0


def _interpreter(version: str) -> str | None:
    """A Python of that version that can make an environment: a shim may lead nowhere, Debian packs pip apart."""
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, folders)):
        probe = [found, "-c", "import ensurepip, venv"]
        if found and not subprocess.run(probe, capture_output=True, check=False).returncode:
            return found
    return None


def _requirements(trial: Trial) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in trial.extras for one in _of_extra(project, extra))]
    return [*(re.sub(">=", "==", one) if trial.lowest else one for one in wanted), *trial.versions]


def _of_extra(project: dict[str, dict[str, list[str]]], extra: str) -> list[str]:
    return project["optional-dependencies"][extra]


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing was said"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
