"""How input is cut into work items: small ones, but not too many; large ones where rows are far from their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.differential import plan as plan_module
from strandline.differential.options import options_from
from strandline.differential.plan import LARGEST_PIECE, PIECE_BYTES, PIECES_AT_ONCE, DiffPlan, plan_diff
from strandline.engine import InlineRunner

ROWS, GROUP = 4_000, 50


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineRunner, "parallelism", 2)


def displaced(path: Path, by: int, changed: int) -> str:
    """Rows up to `by` places away from where their keys belong."""
    ids = np.arange(ROWS)
    order = np.argsort(ids + np.random.default_rng(changed).integers(0, by + 1, ROWS), kind="stable")
    rows = pa.table({"id": ids, "v": np.where(ids % 500 == changed, -1, ids)})
    pq.write_table(rows.take(pa.array(order)), path, row_group_size=GROUP, compression="none")
    return str(path)


def planned(folder: Path, by: int) -> DiffPlan:
    old, new = displaced(folder / "old.parquet", by, 1), displaced(folder / "new.parquet", by, 2)
    return plan_diff(old, new, ("id",), options_from({"memory": 1 << 34}), ("inline", None))


@pytest.mark.usefixtures("two_at_once")
def test_pieces_are_small_until_there_are_too_many_of_them(tmp_path: Path) -> None:
    plan = planned(tmp_path, 0)
    many = 2 * PIECES_AT_ONCE
    assert plan.pieces(PIECE_BYTES) == 1
    assert plan.pieces(PIECE_BYTES + 1) == 2
    assert plan.pieces(many * PIECE_BYTES) == many
    assert plan.pieces(LARGEST_PIECE * many * PIECE_BYTES) == many
    assert plan.pieces(2 * LARGEST_PIECE * many * PIECE_BYTES) == 2 * many
    assert plan.large_pieces(LARGEST_PIECE * many * PIECE_BYTES) == many


@pytest.mark.usefixtures("two_at_once")
@pytest.mark.parametrize(("by", "least", "most"), [(0, 12, 16), (60, 4, 16), (200, 2, 2)])
def test_ranges_are_small_where_rows_are_near_their_place_and_large_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: int, least: int, most: int
) -> None:
    monkeypatch.setattr(plan_module, "PIECE_BYTES", planned(tmp_path, by).bytes // 16 + 1)
    plan = planned(tmp_path, by)
    assert plan.by_key.even
    assert least <= len(plan.by_key.ranges) <= most
    old, new = (str(tmp_path / f"{side}.parquet") for side in ("old", "new"))
    found = sl.diff(old, new, key="id", runner="inline")
    assert (found.run.algorithm, found.summary().updated) == ("merge", 16)
    assert found.to_arrow().num_rows == sl.diff(old, new, key="id", algorithm="hash", runner="inline").summary().updated
