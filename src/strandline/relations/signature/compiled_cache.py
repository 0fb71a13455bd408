"""Where numba keeps compiled code: a folder of this user's own, also where the package itself is read-only.

`NUMBA_CACHE_DIR` is respected. Otherwise the folder is `strandline/numba` under the user's cache folder. The
compiled files are loaded as code, so a folder that others may write to is never used; without a usable folder
the code is compiled anew in each process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numba


class _CompiledCache:
    """While entered, functions that numba decorates keep their machine code in our folder."""

    def __init__(self) -> None:
        self._folder = str(numba.config.CACHE_DIR) or _own_folder()
        self._outer = ""

    @property
    def usable(self) -> bool:
        return bool(self._folder)

    def __enter__(self) -> None:
        self._outer = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = self._folder

    def __exit__(self, *_: object) -> None:
        numba.config.CACHE_DIR = self._outer


def _own_folder() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(home) / "strandline" / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = folder.stat()
    except OSError:
        return ""
    others_write = stat.S_IMODE(facts.st_mode) & 0o022
    ours = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
    return str(folder) if ours and not others_write and os.access(folder, os.W_OK) else ""


compiled_cache = _CompiledCache()
