"""A forked child shares its parent's names and its entry in the registry: it is refused, and destroys nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
