"""Every algorithm on a real Spark session, cut into several work items, against the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import model

import strandline as sl
from strandline.changes.shape import ChangeSet
from strandline.differential.plan import DiffPlan

ALGORITHMS = ("merge", "hash", "kb", "kbp", "window")


def extracts(folder: Path, seed: int, *, shuffled: bool) -> tuple[str, str]:
    """Two extracts with skewed composite keys, nulls, NaN, nested values and unicode."""
    chance = np.random.default_rng(seed)
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for number in range(600):
        shop = None if number % 97 == 0 else ["å", "b", "a\0b"][int(chance.integers(0, 3))]
        price = [1.5, float("nan"), None, -0.0, 0.0][int(chance.integers(0, 5))]
        rows[shop, number] = (price, {"zip": str(number % 7), "tags": ["x"] * (number % 3)})
    later = {key: value for key, value in rows.items() if chance.random() > 0.1}
    for key in list(later):
        if chance.random() < 0.1:
            later[key] = (2.5, later[key][1])
    later |= {("new", number): (None, None) for number in range(40)}
    paths = []
    for name, data in (("old", rows), ("new", later)):
        order = list(data)
        if shuffled:
            chance.shuffle(order)
            order = [tuple(key) for key in order]
        table = pa.table(
            {
                "shop": pa.array([key[0] for key in order], pa.string()),
                "id": pa.array([key[1] for key in order], pa.int32()),
                "price": pa.array([data[key][0] for key in order], pa.float64()),
                "address": pa.array(
                    [data[key][1] for key in order], pa.struct([("zip", pa.string()), ("tags", pa.list_(pa.string()))])
                ),
            }
        )
        paths.append(str(folder / f"{name}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=100)
    return paths[0], paths[1]


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_on_spark_finds_what_the_model_finds(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, shuffled: bool
) -> None:
    monkeypatch.setattr(DiffPlan, "pieces", lambda *_: 3)
    monkeypatch.setattr(DiffPlan, "large_pieces", lambda *_: 3)
    monkeypatch.setattr(DiffPlan, "held_whole", False)
    old, new = extracts(tmp_path, seed=7, shuffled=shuffled)
    key = ("shop", "id")
    expected = model.difference(*(model.relation_of(pq.read_table(path), key) for path in (old, new)))
    found = sl.diff(old, new, key=key, algorithm=algorithm, runner="spark", session=spark)
    changes = ChangeSet(found.header, found.to_arrow())
    assert found.run.runner == "spark"
    assert model.kinds_of(changes) == {each: change.kind for each, change in expected.items()}
    if algorithm != "kb":
        assert model.keyed_of(changes) == expected


def test_small_files_in_no_order_are_one_work_item_where_spark_has_this_machine_alone(
    spark: Any, tmp_path: Path
) -> None:
    old, new = extracts(tmp_path, seed=8, shuffled=True)
    expected = model.difference(*(model.relation_of(pq.read_table(path), ("shop", "id")) for path in (old, new)))
    found = sl.diff(old, new, key=("shop", "id"), algorithm="hash", runner="spark", session=spark)
    assert (found.run.runner, found.run.work.items, found.run.work.bytes_shuffled) == ("spark", 1, 0)
    assert model.keyed_of(ChangeSet(found.header, found.to_arrow())) == expected
