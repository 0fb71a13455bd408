"""The wheel in empty environments: megabytes, packages and seconds to install, and the time to a first answer.

    python tools/install_size.py [extra ...]        without extras named: the core, then each extra

Megabytes are those of the environment without pip and setuptools. The answer is `strandline diff` of two small files.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 5
TOOLS = ("pip", "setuptools", "_distutils_hack", "pkg_resources")


def main(asked: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = asked or ["", *(name for name in project["optional-dependencies"] if name not in ("dev", "docs", "bench"))]
    with tempfile.TemporaryDirectory(prefix="strandline-size-") as folder:
        wheel = _wheel(Path(folder))
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        print(f"{'install':<10} {'MB':>6} {'packages':>8} {'seconds':>8} {'first answer':>13} {'--help':>8}")
        for extra in extras:
            print(_measured(Path(folder), wheel, extra), flush=True)


def _wheel(folder: Path) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    copy = folder / "source"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "*.egg-info", "build", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def _measured(folder: Path, wheel: Path, extra: str) -> str:
    place = folder / (extra or "core")
    venv.create(place, with_pip=True)
    what = f"strandline[{extra}] @ file://{wheel}" if extra else str(wheel)
    pip = [str(place / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    started = time.perf_counter()
    subprocess.run([*pip, "install", "--constraint", str(ROOT / "constraints.txt"), what], check=True)
    seconds = time.perf_counter() - started
    packages = [path for path in place.glob("lib/python*/site-packages/*.dist-info") if not path.name.startswith(TOOLS)]
    answer, usage = _answers(place)
    size = _megabytes(place)
    shutil.rmtree(place)
    return f"{extra or 'core':<10} {size:>6.0f} {len(packages):>8} {seconds:>8.1f} {answer:>11.2f} s {usage:>6.2f} s"


def _answers(place: Path) -> tuple[float, float]:
    (place / "a.csv").write_text("id,v\n1,a\n2,b\n")
    (place / "b.csv").write_text("id,v\n1,a\n2,c\n3,d\n")
    command = str(place / "bin" / "strandline")
    return _median([command, "diff", "a.csv", "b.csv", "--key", "id"], place), _median([command, "--help"], place)


def _median(command: list[str], folder: Path) -> float:
    """Of several runs after a first one, which writes the byte code."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def _megabytes(place: Path) -> float:
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if not set(path.parts) & set(TOOLS)) / 1e6


main(sys.argv[1:])
