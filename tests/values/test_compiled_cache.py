"""Compiled loops are compiled once for each user and text, wherever the package lies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.engine.spark_session import package_archive

TELL = """
from strandline.values.signatures import numba_engine
fold = numba_engine.kernels.fold_all
print(numba_engine.__file__, numba_engine.kernels.__file__, fold.stats.cache_hits.total(), sep="\\n")
"""


def tell(package: Path, cache: Path) -> tuple[str, Path, int]:
    """Where the package and its loops were found by a process of its own, and whether machine code was there."""
    known = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(cache)}
    known.pop("NUMBA_CACHE_DIR", None)
    told = subprocess.run([sys.executable, "-c", TELL], env=known, capture_output=True, text=True, check=True)
    found, loops, hits = told.stdout.splitlines()
    return found, Path(loops), int(hits)


def test_an_archive_finds_what_a_checkout_compiled(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "src"
    _, first, hits = tell(source, tmp_path)
    assert tmp_path in first.parents
    assert hits == 0
    found, again, hits = tell(package_archive(), tmp_path)
    assert ".zip" in found
    assert again == first
    assert hits > 0


def test_threads_that_come_first_together_find_whole_modules() -> None:
    together = """
from concurrent.futures import ThreadPoolExecutor
from strandline.differential.window.compiled import _Kernels
with ThreadPoolExecutor(4) as threads:
    found = set(threads.map(lambda _: _Kernels().turn, range(4)))
assert len(found) == 1
"""
    source = Path(__file__).parents[2] / "src"
    known = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", together], env=known, check=True)


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.values.signatures import compiled_cache

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    look = compiled_cache._folder.__wrapped__
    assert look() == tmp_path / "strandline" / "numba"
    (tmp_path / "strandline" / "numba").chmod(0o777)
    assert look() is None
