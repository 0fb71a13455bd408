"""Where compiled loops are kept: with the text that they were compiled from, in a folder of this user's own.

numba finds machine code again by the path of its source. The package's own path will not do: Spark unpacks it for
each session somewhere else, and each worker would compile for seconds. So a module of loops is loaded from a copy
whose folder is named by what the machine code depends on, and processes with the same text share the machine code.

`NUMBA_CACHE_DIR` is respected. Otherwise the folder is `strandline/numba` under the user's cache folder. What lies
there is loaded as code, so a folder that others may write to is never used; without a usable folder the code is
compiled anew in each process.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import importlib.util
import os
import stat
import sys
import threading
from pathlib import Path
from types import ModuleType

from strandline._version import __version__

_loading = threading.RLock()
"""A module that one thread is still executing is not yet for another."""


def load_compiled(name: str, *constants_of: str) -> ModuleType:
    """The module of loops `name`; `constants_of` names the modules whose constants are part of its machine code."""
    with _loading:
        return sys.modules.get(name) or _load(name, constants_of)


def _load(name: str, constants_of: tuple[str, ...]) -> ModuleType:
    folder = _folder()
    if folder is None:
        return importlib.import_module(name)
    text = _source(name)
    key = hashlib.sha256("\0".join([__version__, text, *map(_source, constants_of)]).encode()).hexdigest()
    path = folder / key[:32] / f"{name.rpartition('.')[2]}.py"
    try:
        _put(path, text)
    except OSError:
        return importlib.import_module(name)
    return _loaded(name, path)


def is_kept(file: str) -> bool:
    """Whether a module was loaded from the folder, so that numba may keep machine code beside it."""
    folder = _folder()
    return folder is not None and folder in Path(file).parents


def _put(path: Path, text: str) -> None:
    """Its time is always the same: numba takes another one for another text."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(exist_ok=True, mode=0o700)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.utime(part, (0, 0))
    os.replace(part, path)


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _source(name: str) -> str:
    """The text of a module, be it in a folder or in an archive."""
    package, _, module = name.rpartition(".")
    return importlib.resources.files(package).joinpath(f"{module}.py").read_text(encoding="utf-8")


@functools.cache
def _folder() -> Path | None:
    given = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(given) if given else Path(home) / "strandline" / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = folder.stat()
    except OSError:
        return None
    others_write = stat.S_IMODE(facts.st_mode) & 0o022
    ours = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
    return folder if ours and not others_write and os.access(folder, os.W_OK) else None
