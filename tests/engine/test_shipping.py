"""What the session ships to workers: this package in an archive, compiled for those of the same Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from strandline.engine.spark_session import package_archive


def imported_from(archive: Path, folder: Path) -> str:
    script = f"import sys; sys.path.insert(0, {str(archive)!r}); from strandline import errors; print(errors.__file__)"
    told = subprocess.run([sys.executable, "-E", "-S", "-c", script], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return str(Path(told.stdout.strip()).relative_to(archive))


def test_workers_import_compiled_code_and_those_of_another_python_the_source(tmp_path: Path) -> None:
    assert imported_from(package_archive(), tmp_path) == "strandline/errors.pyc"
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(package_archive()) as ours, zipfile.ZipFile(foreign, "w") as theirs:
        for name in ("strandline/__init__", "strandline/_version", "strandline/errors"):
            theirs.writestr(f"{name}.py", ours.read(f"{name}.py"))
            theirs.writestr(f"{name}.pyc", b"\0\0\r\n" + ours.read(f"{name}.pyc")[4:])
    assert imported_from(foreign, tmp_path) == "strandline/errors.py"
