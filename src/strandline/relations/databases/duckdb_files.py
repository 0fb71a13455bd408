"""DuckDB files, each attached to an engine that runs already.

Starting DuckDB takes some 15 ms of processor time, whatever the file; attaching a file to one that runs takes one. So
an engine that has no file any more is kept, and the next file is attached to it. An engine has one file at a time,
under the name that DuckDB itself would give it, so what stands in the file means what it means when it is opened alone.

DuckDB has a file in one engine of a process only: connections of ours share it. Where somebody else in this process has
the file open, or it can't be attached, it is opened as anywhere else.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from strandline.engine import DuckdbConnection
from strandline.values import quoted, quoted_text

KEPT = 2
"""How many engines without a file are kept."""


@dataclass
class _Engine:
    """DuckDB in this process, and the file that it has."""

    root: Any
    file: str = ""
    read_only: bool = False
    users: int = 0

    def attach(self, path: str, *, read_only: bool) -> None:
        """The file of this engine from now on."""
        self.root.execute(f"ATTACH {quoted_text(path)}{' (READ_ONLY)' if read_only else ''}")
        named = "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND path IS NOT NULL"
        self.file, self.read_only = self.root.execute(named).fetchall()[0][0], read_only
        self.root.execute("PRAGMA enable_checkpoint_on_shutdown")

    def cursor(self) -> Any:
        cursor = self.root.cursor()
        cursor.execute(f"USE {quoted(self.file)}")
        return cursor


@dataclass
class _Engines:
    """Those with a file, by its path, and those without."""

    mutex: threading.Lock = field(default_factory=threading.Lock)
    with_file: dict[str, _Engine] = field(default_factory=dict)
    idle: list[_Engine] = field(default_factory=list)

    def enter(self, place: str, path: str, *, read_only: bool) -> _Engine | None:
        """The engine that has a file, known by its path, or one that it was attached to; None where it can't be."""
        with self.mutex:
            engine = self.with_file.get(path)
            if engine is not None:
                engine.users += engine.read_only == read_only
                return engine if engine.read_only == read_only else None
            engine = self.idle.pop() if self.idle else None
        engine = engine or _Engine(duckdb.connect(":memory:"))
        try:
            engine.attach(place, read_only=read_only)
        except duckdb.Error:
            self._keep(engine)
            return None
        engine.users = 1
        with self.mutex:
            self.with_file[path] = engine
        return engine

    def leave(self, path: str) -> None:
        """One connection less; the last one takes the file with it."""
        with self.mutex:
            engine = self.with_file[path]
            engine.users -= 1
            if engine.users:
                return
            del self.with_file[path]
        try:
            engine.root.execute(f"DETACH {quoted(engine.file)}")
        except duckdb.Error:  # what is committed stands in DuckDB's log, also where it can't be put into the file
            engine.root.close()
        else:
            self._keep(engine)

    def _keep(self, engine: _Engine) -> None:
        with self.mutex:
            if len(self.idle) < KEPT:
                self.idle.append(engine)


_engines = _Engines()


def _begin_anew() -> None:
    """In a forked child: it neither uses nor destroys the parent's engines, whose threads are not in it."""
    global _engines
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_engines))
    _engines = _Engines()


os.register_at_fork(after_in_child=_begin_anew)
# What is alive when the interpreter ends is a leak to DuckDB's binding, which tells users so at length.
atexit.register(lambda: _engines.idle.clear())


class DuckdbFile(DuckdbConnection):
    """A connection to a file. One file is opened and closed by one thread at a time: see `DuckdbDatabase`."""

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self._path, self._engines = os.path.realpath(path), _engines
        self._engine: _Engine | None = None
        super().__init__(path, read_only=read_only)

    def _opened(self, place: str, config: Mapping[str, Any], *, read_only: bool) -> Any:
        engine = self._engines.enter(place, self._path, read_only=read_only)
        if engine is None:
            return super()._opened(place, config, read_only=read_only)
        try:
            inner = engine.cursor()
        except BaseException:
            self._engines.leave(self._path)
            raise
        self._engine = engine
        return inner

    def _cursor(self) -> Any:
        return super()._cursor() if self._engine is None else self._engine.cursor()

    def _end(self) -> None:
        engine, self._engine = self._engine, None
        try:
            super()._end()
        finally:
            if engine is not None:
                self._engines.leave(self._path)
