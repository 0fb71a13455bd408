"""Writers that race for an eagerly kept view: who comes too late derives again, or must try again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pages.faults import FaultyStorage

from strandline.errors import Conflict
from strandline.storage import MemoryStorage, Token
from strandline.store import Store, create_on, open_on
from strandline.tables.schema import SEGMENTS
from strandline.views.difference_table import Segments, all_segments, difference, records

JOIN = "select o.id, c.name from o join c on o.c = c.id"


class Overtaken(FaultyStorage):
    """Another process does something just before the next swap, which is lost by that."""

    meanwhile: Callable[[], object] | None = None
    lost = 0

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        other, self.meanwhile = self.meanwhile, None
        if other is not None:
            other()
        try:
            return super().compare_and_swap(name, expected, value)
        except Exception:
            self.lost += 1
            raise


def example(store: Store) -> None:
    store.create_table("o", pa.table({"id": [1], "c": [1]}), key="id")
    store.create_table("c", pa.table({"id": [1], "name": ["ann"]}), key="id")
    store.view("v", JOIN, maintain="eager")


def kept(store: Store) -> Segments:
    with store.state() as view:
        return all_segments(view, store.cache)["v"]


def write_with_a_row(store: Store, segments: Segments) -> None:
    with store.transaction() as tx:
        tx.insert("o", [{"id": 3, "c": 1}])
        tx.upsert(SEGMENTS, records([segments]))


def test_a_lost_swap_derives_again_on_the_newer_state(tmp_path: Path) -> None:
    """Each of two commits brings one side of a joined row: it is only in the difference of who knows of both."""
    inner = MemoryStorage()
    storage = Overtaken(inner)
    with create_on(inner) as store:
        example(store)
    with open_on(inner) as first, open_on(storage) as second:
        copy = second.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v")
        storage.meanwhile = lambda: first.table("c").insert([{"id": 2, "name": "bob"}])
        second.table("o").insert([{"id": 2, "c": 2}])
        assert storage.lost == 1
        second.pages.refresh_if_idle()
        known = kept(second)
        assert not known.broken
        with second.state() as view:
            rows = difference(view, second.cache, second.view("v").definition, known.since)
        assert rows.to_pylist() == [{"id": 2, "name": "bob", "_count": 1}]
        done = copy.refresh()
        assert (done.method, done.messages) == ("difference", 1)
        assert copy.verify()


def test_a_stale_writer_of_segments_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v")
        stale = kept(store).left(leaving=True)
        store.table("o").insert([{"id": 2, "c": 1}])
        copy.refresh()
        newest = kept(store)
        assert newest.revision >= stale.revision
        with pytest.raises(Conflict, match="the difference table of v was changed meanwhile"):
            write_with_a_row(store, stale)
        assert kept(store) == newest
        assert store.table("o").to_arrow().column("id").to_pylist() == [1, 2]
        store.table("o").insert([{"id": 4, "c": 1}])
        assert copy.refresh().messages == 1
        assert copy.verify()
