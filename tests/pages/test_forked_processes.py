"""A forked child shares its parent's names and its entry in the registry: it is refused, and destroys nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

import strandline as sl
from strandline.errors import AlreadyExists
from strandline.pages.format.objects import Objects, ObjectWriter
from strandline.storage import MemoryStorage

FORKS = """
import gc, os, sys
import pyarrow as pa
import strandline as sl

def row(key, value):
    return pa.table({"id": [key], "v": [value]})

store = sl.create(sys.argv[1])
store.create_table("t", pa.table({"id": list(range(100)), "v": [0] * 100}), key="id")
pending = store.transaction()
pending.upsert("t", row(1000, 1))
children = []
for child in range(4):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    told = []
    for work in (
        lambda: store.table("t").upsert(row(child, 1)),
        lambda: store.table("t").to_arrow(),
        lambda: store.snapshot("s%d" % child),
        lambda: store.snapshot(),
        lambda: store.branch("b%d" % child),
        pending.commit,
        store.close,
    ):
        try:
            work()
            told.append("done")
        except sl.StrandlineError as error:
            told.append("refused" if "fork" in str(error) else repr(error))
    del pending, store
    gc.collect()
    with sl.open(sys.argv[1]) as own:
        own.table("t").upsert(row(child, child + 1))
    os.write(1, (" ".join(told) + "\\n").encode())
    os._exit(0)
for key in range(50, 70):
    store.table("t").upsert(row(key, 7))
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
pending.commit()
found = dict(zip(*store.table("t").to_arrow().select(["id", "v"]).to_pydict().values()))
assert len(found) == 101 and found[1000] == 1, found
assert all(found[key] == 7 for key in range(50, 70)), found
assert all(found[child] == child + 1 for child in range(4)), found
assert store.check().ok
os.write(1, b"well\\n")
"""


def test_forked_children_are_refused_and_the_parents_commits_stand(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(sl.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "shop")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    *children, last = ran.stdout.split("\n")[:-1]
    assert last == "well"
    for line in children:
        assert line.split()[:6] == ["refused"] * 6, line
        assert set(line.split()[6:]) == {"done"}, line


def test_an_object_that_another_put_is_never_deleted_by_the_loser() -> None:
    storage = MemoryStorage()
    stems = iter(["1-0", "1-1", "1-2"])
    winner = ObjectWriter(Objects(storage), lambda: next(stems))
    pages = [winner.page(b"first", 1), winner.page(b"second", 1)]
    winner.flush()
    again = iter(["1-0", "1-1", "1-2"])
    loser = ObjectWriter(Objects(storage), lambda: next(again))
    for data in (b"other", b"another", b"third"):
        loser.page(data, 1)
    with pytest.raises(AlreadyExists):
        loser.flush()
    loser.abandon()
    assert [storage.get(page.name) for page in pages] == [b"first", b"second"]


HISTORIES = """
import gc, json, os, sys, tempfile
from strandline.errors import StrandlineError
from strandline.storage import LocalStorage
from tests.pages.toy import all_rows, assert_sound, created, domain_of, opened, put, write

def refused(work):
    try:
        work()
    except StrandlineError as error:
        return "is a fork" in str(error)
    return False

def child(store, pending, what):
    main = pending.version
    works = {
        "write": lambda: put(main, "t", a=99),
        "commit": pending.commit,
        "name": lambda: main.name_snapshot("child"),
        "read": lambda: main.refresh(),
        "drop": lambda: main.drop_snapshot("s0"),
        "beat": store.beat,
    }
    good = what == "leave" or refused(works[what])
    del pending, works
    gc.collect()
    store.close()
    return good

def history(folder, steps):
    storage = LocalStorage(folder)
    store = created(storage)
    put(store.version(), "t", z=0)
    store.version().name_snapshot("s0")
    model = {"z": 0}
    for number, (step, key, value) in enumerate(steps):
        main = store.version()
        pending = main.begin()
        write(pending, domain_of(main, "t"), key, value)
        if step == "reopen":
            pending.abort()
            store.close()
            store = opened(storage)
            continue
        if step == "abort":
            pending.abort()
            continue
        if step == "name":
            main.name_snapshot(f"n{number}")
        elif step.startswith("fork and "):
            number = os.fork()
            if not number:
                os._exit(0 if child(store, pending, step.removeprefix("fork and ")) else 1)
            if os.waitpid(number, 0)[1]:
                return f"step {number}: {step} was not refused"
        pending.commit()
        model[key] = value
        if all_rows(main.refresh())["t"] != model:
            return f"{all_rows(main.view())} and not {model}"
    with store.version().at("s0") as snapshot:
        if all_rows(snapshot.view) != {"t": {"z": 0}}:
            return "another snapshot"
    store.close()
    assert_sound(storage)
    return "well"

for line in sys.stdin:
    runner = os.fork()
    if not runner:
        try:
            with tempfile.TemporaryDirectory() as folder:
                told = history(folder + "/store", json.loads(line))
        except BaseException as error:
            told = repr(error)
        os.write(1, told.replace("\\n", " ").encode() + b"\\n")
        os._exit(0)
    os.waitpid(runner, 0)
"""

CHILDREN = ["fork and " + what for what in ("write", "commit", "name", "read", "drop", "beat", "leave")]


@pytest.fixture(scope="module")
def histories() -> Iterator[subprocess.Popen[str]]:
    """A process that runs histories, each in a fork of its own: no test process is forked."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-c", HISTORIES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        yield process


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["commit", "abort", "name", "reopen", *CHILDREN]), st.sampled_from("abc"), st.integers(0, 9)
        ),
        max_size=10,
    )
)
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_children_forked_anywhere_in_a_history_are_refused_and_it_goes_on(
    histories: subprocess.Popen[str], steps: list[tuple[str, str, int]]
) -> None:
    """Against a plain dictionary, with every invariant checked at the end."""
    assert histories.stdin is not None
    assert histories.stdout is not None
    histories.stdin.write(json.dumps(steps) + "\n")
    histories.stdin.flush()
    assert histories.stdout.readline() == "well\n"
