"""One store through two handles, as two processes have it: neither misses what the other has committed."""

from __future__ import annotations

from pathlib import Path

import pytest

import strandline as sl
from strandline.store import Store


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Store, Store]:
    first = sl.create(str(tmp_path / "shop"))
    first.create_table("t", [{"id": 1}], key="id")
    return first, sl.open(str(tmp_path / "shop"))


def test_a_temporary_snapshot_holds_what_another_handle_has_committed(pair: tuple[Store, Store]) -> None:
    first, second = pair
    with first, second:
        second.table("t").insert([{"id": 2}])
        with first.snapshot() as now:
            assert first.table("t").to_arrow(at=now)["id"].to_pylist() == [1, 2]


def test_a_branch_that_another_handle_made_leaves_no_fork_when_it_is_dropped(pair: tuple[Store, Store]) -> None:
    first, second = pair
    with first, second:
        second.branch("plan").table("t").insert([{"id": 9}])
        second.close()
        first.drop_branch("plan")
        assert first.check().ok
        first.table("t").insert([{"id": 3}])
        assert first.check().ok
        assert first.branches() == ["main"]
