"""A folder for each test, in memory where the machine has such a place.

What stops in these tests is this process, never the machine: waiting for a disk at each commit would prove nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM = 1 << 30


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    roomy = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
    folder = Path(tempfile.mkdtemp(prefix="strandline-", dir=_MEMORY if roomy else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
