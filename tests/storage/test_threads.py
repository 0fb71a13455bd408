"""Threads that are handed work: an interrupt at any line leaves nothing running, nothing to be begun, no lock."""

from __future__ import annotations

import ast
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import strandline as sl
from strandline.engine import parallel
from strandline.storage import Workers, cached_property


def squares(numbers: range, threads: int) -> list[int]:
    workers: Workers[int] = Workers(threads)
    with workers:
        tasks = [workers.submit(partial(pow, number, 2)) for number in numbers]
        assert sorted(task.result() for task in workers.finished()) == sorted(task.result() for task in tasks)
        return [task.result() for task in tasks]


def test_results_come_in_order_or_as_they_are_done() -> None:
    for threads in (1, 3, 50):
        assert squares(range(20), threads) == [number * number for number in range(20)]
    assert squares(range(0), 2) == []


def test_what_was_worked_on_goes_with_its_last_holder() -> None:
    class Rows:
        pass

    given = [Rows(), Rows()]
    held = [weakref.ref(rows) for rows in given]
    gc.disable()
    try:
        results = parallel(lambda rows: [rows], given)
        del given
        assert all(rows() is not None for rows in held)
        del results
        assert held_still(held) == []
    finally:
        gc.enable()


def held_still(held: list[weakref.ref[Any]]) -> list[Any]:
    """What is there after the threads, too, have let go of it."""
    deadline = time.monotonic() + 10
    while any(rows() is not None for rows in held) and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return [rows() for rows in held if rows() is not None]


def test_the_first_error_is_raised_and_the_rest_is_called_off() -> None:
    begun: list[int] = []
    blocked = threading.Lock()
    blocked.acquire()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("no")
        blocked.acquire(timeout=0.2)

    def failing() -> None:
        workers: Workers[None] = Workers(1)
        with workers:
            for number in range(9):
                workers.submit(partial(work, number))
            next(workers.finished()).result()

    with pytest.raises(ValueError, match="no"):
        failing()
    assert len(begun) < 9
    with pytest.raises(ZeroDivisionError):
        parallel(lambda number: 1 // number, [1, 0, 1])


class Interrupt:
    """Raises KeyboardInterrupt in this thread before a line of the code of threads; counts the lines."""

    def __init__(self, at: int | None) -> None:
        self.lines = 0
        self._at = at

    def __enter__(self) -> Interrupt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith("/storage/threads.py"):
            return None
        if event == "line":
            self.lines += 1
            if self.lines - 1 == self._at:
                raise KeyboardInterrupt
        return self._trace


def test_an_interrupt_at_any_line_leaves_nothing_running() -> None:
    running: list[int] = []

    def work(number: int) -> int:
        running.append(number)
        running.remove(number)
        return number

    def squared(at: int) -> bool:
        """Whether it came to its end."""
        workers: Workers[int] = Workers(2)
        try:
            with workers, Interrupt(at):
                tasks = [workers.submit(partial(work, number)) for number in range(3)]
                assert [task.result() for task in tasks] == [0, 1, 2]
        except KeyboardInterrupt:
            return False
        return True

    at = 0
    while not squared(at):
        assert running == []
        at += 1
    assert at > 20


@pytest.mark.parametrize(
    "use",
    [
        'store.table("t").update(where="id = 1", set={"x": "x + 1"})',
        'store.query("SELECT x FROM t")',
        'store.view("v", "SELECT id, x FROM t")',
        'sl.diff(store.table("t"), EIGHT, key="id", where="x > 0")',
    ],
)
def test_an_interrupt_leaves_no_package_half_imported(use: str, tmp_path: Path) -> None:
    code = """
        import os, signal, sys, time
        import pyarrow as pa
        import strandline as sl

        EIGHT = pa.table({"id": [1], "x": [8]})

        pressing = ["sqlglot.dialects", "sqlglot.schema", "sqlglot.dialects.duckdb"]

        class Presses:
            def find_spec(self, name, path=None, target=None):
                if name in pressing:
                    pressing.remove(name)
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.2)

        store = sl.create(sys.argv[1])
        store.create_table("t", [{"id": 1, "x": 1}], key="id")
        sys.meta_path.insert(0, Presses())
        pressed = 0
        for _ in range(3):
            try:
                USE
                time.sleep(0.5)
            except KeyboardInterrupt:
                pressed += 1
        assert pressed
        sys.meta_path.pop(0)
        assert store.table("t").update(where="id = 1", set={"x": "7"}) == 1
        assert store.query("SELECT * FROM t").to_pylist() == [{"id": 1, "x": 7}]
        assert len(sl.diff(store.table("t"), EIGHT, key="id", where="x > 0").to_arrow()) == 1
        assert store.view("w", "SELECT id FROM t").to_arrow().to_pylist() == [{"id": 1}]
        store.close()
    """
    script = textwrap.dedent(code).replace("USE", use)
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "store")], check=True, timeout=120)


class Slow:
    """Properties that are computed once; one of them takes its time."""

    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.begun, self.go_on = begun, go_on

    @cached_property
    def slow(self) -> int:
        """What takes long."""
        self.begun.set()
        self.go_on.wait(30)
        return 1

    @cached_property
    def quick(self) -> list[int]:
        return []


def test_a_child_that_was_forked_while_a_property_was_computed_computes_it() -> None:
    begun, go_on = threading.Event(), threading.Event()
    slow = Slow(begun, go_on)
    thread = threading.Thread(target=lambda: slow.slow)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        other = Slow(begun, threading.Event())
        other.go_on.set()
        os._exit(0 if other.slow == 1 else 1)
    go_on.set()
    thread.join()
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended
    assert status == 0
    assert slow.quick is slow.quick
    assert Slow.__dict__["slow"].__doc__ == "What takes long."


def test_no_property_of_functools_is_used() -> None:
    """Its lock may be taken for ever, before Python 3.12, after a fork or an interrupt."""
    source = Path(sl.__file__).parent
    uses = [
        str(path)
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if "cached_property" in [name.name for name in node.names]
    ]
    assert not uses
