"""`auto` follows what was measured, and no copy loses its place; `explain` tells the costs of each way."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.replication.copy import Copy
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.views import catalog
from strandline.views.difference_table import all_segments
from strandline.views.known_views import read_views
from strandline.views.maintenance import MAINTAIN, Seen, prices, retune, with_seen

ROWS = 1000


def copied(store: Store, folder: Path) -> Copy:
    store.create_table("t", pa.table({"k": range(ROWS), "x": [n % 10 for n in range(ROWS)]}), key="k")
    return store.view("v", "select k, x from t where x < 5").replicate(f"parquet:///{folder}/rows")


def is_eager(store: Store) -> bool:
    with store.state() as view:
        return "v" in all_segments(view, store.cache)


def measured(store: Store, copy: Copy, **averages: float) -> None:
    """Let `auto` choose as if refreshes had been measured so."""

    def work(transaction: Any) -> None:
        usual = {"maintain": 1e-6, "changed": 10, "commits": 3, "refreshes": 9}
        catalog.put(transaction, replace(copy.record, measured={**usual, **averages}), exists=True)

    store.autocommit(work)
    with read_views(store) as known:
        retune(store, known, copy.record)


def test_auto_chooses_by_what_computing_and_maintaining_have_cost(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        copy = copied(store, tmp_path)
        assert not is_eager(store), "nothing was seen yet"
        measured(store, copy, deferred=0.08)
        assert not is_eager(store), "nothing is known of commits"
        measured(store, copy, deferred=0.08, commit=0.028)
        assert not is_eager(store), "four small writes take longer than computing the difference"
        measured(store, copy, deferred=2.0, commit=0.028)
        assert is_eager(store), "computing the difference takes two seconds"
        store.table("t").update(where="k = 1", set={"x": "2"})
        assert copy.refresh("difference").messages == 1
        measured(store, copy, deferred=2.0, commit=0.028, eager=2.5)
        store.table("t").update(where="k = 1", set={"x": "3"})
        assert copy.refresh("difference").messages == 1
        assert not is_eager(store), "maintaining it took longer, and the copy has left the difference table"
        store.table("t").update(where="k = 1", set={"x": "4"})
        assert copy.refresh("difference").messages == 1
        assert copy.verify()
        measured(store, copy, deferred=2.0, commit=0.001, eager=2.5)
        assert not is_eager(store), "what was measured counts, not what would be expected"


STEPS = st.sampled_from(["write", "write", "eager", "deferred", "auto", "fast", "slow", "first", "second"])


@settings(max_examples=examples(20))
@given(st.lists(STEPS, max_size=14))
def test_no_copy_is_repaired_because_its_view_is_maintained_otherwise(steps: list[str]) -> None:
    """Two copies, one of them restricted, refreshed at their own times while the view changes its ways."""
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        first = copied(store, Path(folder))
        second = store.view("v").replicate(f"parquet:///{folder}/some", where="x < 3", columns=["x"])
        copies = {"first": first, "second": second}
        for number, step in enumerate([*steps, "write", "first", "second", "first", "second"]):
            if step == "write":
                store.table("t").upsert([{"k": number, "x": number % 7}, {"k": 2000 + number, "x": number % 5}])
            elif step in copies:
                assert copies[step].refresh().method in ("difference", "nothing")
            elif step in ("fast", "slow"):
                measured(store, first, deferred=0.001 if step == "fast" else 9.0, commit=0.01)
            else:
                store.view("v", store.view("v").sql, maintain=step)
        for copy in copies.values():
            assert copy.verify()


def test_what_was_never_measured_has_a_usual_price_and_the_latest_counts_most() -> None:
    assert prices({}).scan > 0
    first = with_seen({}, Seen(rows=100, scanning=1.0, messages=10, bytes=100, sending=1.0))
    assert (first["scan"], first["message"], first["bytes"], first["refreshes"]) == (0.01, 0.1, 10.0, 1)
    again = with_seen(first, Seen(rows=100, changed=4, messages=10, bytes=400, comparing=1.0, sending=2.0))
    assert again["changed"] == 4
    assert again["bytes"] == pytest.approx(20.0)


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_explain_tells_messages_bytes_and_seconds_of_each_way(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        copy = copied(store, tmp_path)
        store.view("v", store.view("v").sql, maintain=maintain)
        copy.refresh("repair")
        store.table("t").update(where="k < 20", set={"x": "x + 1"})
        told = copy.explain()
        ways = {way.method: way for way in told.ways}
        assert told.method == "difference"
        assert ways["full"].messages == 500
        done = copy.refresh()
        assert done.messages == 10
        assert ways["difference"].messages == pytest.approx(done.messages, rel=1.0)
        assert ways["difference"].bytes < ways["full"].bytes
        assert "messages" in str(told)
        for record in store.pages.snapshots():
            store.pages.unpin_snapshot(record.name)
        if maintain == "deferred":
            assert copy.explain().method == "repair"


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_what_an_entry_in_the_difference_table_costs_is_measured_too(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        copy = copied(store, tmp_path)
        store.view("v", store.view("v").sql, maintain=maintain)
        copy.refresh("repair")
        assert MAINTAIN not in copy.record.measured
        store.table("t").update(where="k < 20", set={"x": "x + 1"})
        copy.refresh()
        first = copy.record.measured[MAINTAIN]
        assert first > 0
        assert prices(copy.record.measured).maintain == first
        store.table("t").update(where="k < 20", set={"x": "x + 1"})
        copy.refresh()
        assert copy.record.measured[MAINTAIN] != first
