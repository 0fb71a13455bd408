"""The local backend under a store, stopped after each system call, with every kind of loss.

The calls of the real backend are recorded on a real disk; then, for each prefix of the record, the images
that a crash could leave are rebuilt: everything kept, everything not flushed lost (bytes, new names,
removed names), names kept but bytes lost, bytes torn. Each must open as the old or the new state.
"""

from __future__ import annotations

import errno
import os
import shutil
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from tests.pages.test_crash_points import OPERATIONS, bury_and_commit, facts, outcomes, prepare
from tests.pages.toy import Clock, assert_sound, opened

import strandline.storage.durable_file as durable_file
import strandline.storage.local as local
import strandline.storage.swap_folder as swap_folder
from strandline.errors import StrandlineError
from strandline.pages import PageStore
from strandline.storage import LocalStorage, MemoryStorage

Call = tuple[str, Any, Any]


class Loss(Enum):
    NOTHING = "everything written is kept"
    UNFLUSHED = "everything not flushed is lost"
    BYTES = "names are kept, bytes not flushed are lost"
    TORN = "names are kept, half of the bytes not flushed are lost"


@dataclass
class File:
    written: bytes = b""
    flushed: bytes = b""


@dataclass
class Recorder:
    """Stands in for the module `os` inside the local backend; what other stores of this process do is not recorded."""

    root: Path
    fails: int = -1
    """The flush, counted from 0, that the disk refuses."""
    flushes: int = 0
    calls: list[Call] = field(default_factory=list)
    files: dict[int, Any] = field(default_factory=dict)
    linked: dict[str, Any] = field(default_factory=dict)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
        path = _full(path, dir_fd)
        self.files.pop(descriptor, None)
        if not self._ours(path):
            return descriptor
        what: Any = object()
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            self.calls.append(("new", what, None))
        elif flags & (os.O_TRUNC | os.O_EXCL):
            self.calls.append(("new", what, None))
            self._link(what, path)
        else:
            what = str(path) if Path(path).is_dir() else self.linked.get(str(path), what)
        self.files[descriptor] = what
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        if descriptor in self.files:
            self.calls.append(("write", self.files[descriptor], bytes(data)))
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        if descriptor in self.files:
            self.flushes += 1
            if self.flushes - 1 == self.fails:
                raise OSError(errno.EIO, "Input/output error")
        os.fsync(descriptor)
        if descriptor in self.files:
            self.calls.append(("flush", self.files[descriptor], None))

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def link(self, source: str, path: Path, **options: Any) -> None:
        os.link(source, path, **options)
        if self._ours(path):
            self._link(self.files[int(source.rpartition("/")[2])], path)

    def _link(self, what: Any, path: Path) -> None:
        self.calls.append(("link", what, str(path)))
        self.linked[str(path)] = what

    def replace(self, source: Any, path: Path, *, src_dir_fd: int | None = None) -> None:
        os.replace(source, path, src_dir_fd=src_dir_fd)
        if self._ours(path):
            self.calls.append(("rename", str(_full(source, src_dir_fd)), str(path)))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)
        if self._ours(_full(path, dir_fd)):
            self.calls.append(("unlink", str(_full(path, dir_fd)), None))

    def _ours(self, path: Any) -> bool:
        return Path(path).is_relative_to(self.root)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _full(path: Any, folder: int | None) -> Path:
    return Path(path) if folder is None else Path(os.readlink(f"/proc/self/fd/{folder}"), path)


def image(before: dict[str, bytes], calls: list[Call], root: Path, loss: Loss) -> MemoryStorage:
    """What is on the disk after a crash."""
    files = {path: File(data, data) for path, data in before.items()}
    names: dict[str, Any] = {path: path for path in before}
    flushed = dict(names)
    contents: dict[Any, File] = dict(files)
    for kind, what, more in calls:
        if kind == "new":
            contents[what] = File()
        elif kind == "write":
            contents[what].written += more
        elif kind == "link":
            names[more] = what
        elif kind == "rename":
            names[more] = names.pop(what)
        elif kind == "unlink":
            names.pop(what)
        elif isinstance(what, str):
            flushed = {path: file for path, file in flushed.items() if not _inside(path, what)}
            flushed |= {path: file for path, file in names.items() if _inside(path, what)}
        else:
            contents[what].flushed = contents[what].written
    survivors = flushed if loss is Loss.UNFLUSHED else names
    kept: dict[str, bytes] = {}
    for path, file in survivors.items():
        if not Path(path).name.startswith("."):
            kept[str(Path(path).relative_to(root))] = _bytes(contents[file], loss)
    return MemoryStorage(kept)


def _inside(path: str, folder: str) -> bool:
    return str(Path(path).parent) == folder


def _bytes(file: File, loss: Loss) -> bytes:
    if loss is Loss.NOTHING:
        return file.written
    if loss is Loss.TORN:
        return file.flushed + file.written[len(file.flushed) : (len(file.flushed) + len(file.written)) // 2]
    return file.flushed


KINDS = ["commit of one", "commit of many", "bulk load", "drop", "promote", "fork", "drop version"]


@pytest.mark.parametrize("name", KINDS)
def test_a_crash_after_any_system_call_leaves_the_old_or_the_new_state(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation: Callable[[PageStore], object] = OPERATIONS[name]
    before = _on_disk(tmp_path)
    recorder = Recorder(tmp_path)
    with monkeypatch.context() as patch:
        _record(patch, recorder)
        operation(opened(LocalStorage(tmp_path), Clock()))

    states, tried, seen = [], 0, set()
    for end in range(len(recorder.calls) + 1):
        states.append(facts(opened(image(before, recorder.calls[:end], tmp_path, Loss.NOTHING))))
    for end in range(len(recorder.calls) + 1):
        for loss in Loss:
            left = image(before, recorder.calls[:end], tmp_path, loss)
            mark = tuple(sorted(left.objects.items()))
            if mark in seen:
                continue
            seen.add(mark)
            found = bury_and_commit(left)
            assert found in states[: end + 1], (end, loss, recorder.calls[max(0, end - 3) : end])
            assert_sound(left)
            tried += 1
    print(f"{name}: {len(recorder.calls)} system calls, {tried} different images")


@pytest.mark.parametrize("name", ["commit of one", "bulk load", "drop", "promote", "fork", "drop version"])
def test_what_was_acknowledged_after_a_refused_flush_survives_a_crash(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses one flush, any of them. The process goes on, and then everything not flushed is lost."""
    operation: Callable[[PageStore], object] = OPERATIONS[name]
    states, _ = outcomes(name)
    at, struck, refused = 0, True, 0
    while struck:
        folder = tmp_path / str(at)
        before = _on_disk(folder)
        recorder = Recorder(folder, fails=at)
        store, failed = None, False
        with monkeypatch.context() as patch:
            _record(patch, recorder)
            try:
                store = opened(LocalStorage(folder), Clock())
                operation(store)
            except StrandlineError:
                failed = True
            struck, recorder.fails = recorder.flushes > at, -1
            seen = facts(store) if store is not None else None
        left = image(before, recorder.calls, folder, Loss.UNFLUSHED)
        found = bury_and_commit(left)
        assert found in states if failed else found == states[-1], (at, failed)
        assert seen is None or found == seen, at
        assert_sound(left)
        shutil.rmtree(folder)
        at, refused = at + 1, refused + failed
    print(f"{name}: {at} flushes refused, {refused} of them an error")


def _on_disk(folder: Path) -> dict[str, bytes]:
    start = prepare()
    for object_name, value in start.objects.items():
        (folder / object_name).parent.mkdir(parents=True, exist_ok=True)
        (folder / object_name).write_bytes(value)
    return {str(folder / object_name): value for object_name, value in start.objects.items()}


def _record(patch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    for module in (local, durable_file, swap_folder):
        patch.setattr(module, "os", types.SimpleNamespace(**_members(recorder)))


def _members(recorder: Recorder) -> dict[str, Any]:
    own = {n: getattr(recorder, n) for n in ("open", "write", "fsync", "close", "link", "replace", "unlink")}
    return {n: getattr(os, n) for n in dir(os) if not n.startswith("__")} | own
