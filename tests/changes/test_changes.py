"""`Changes` through kernels: what the pure verbs do, in one bucket and in several."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from tests import model
from tests.examples import LAWS, examples
from tests.model import counted_of, keyed_of, relation_of
from tests.random_tables import Case, bags, cases

from strandline.changes import Applied, Changes, PartFile, StoredChanges, write_part
from strandline.changes.consolidate import consolidate
from strandline.changes.execution import VerbRunner
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError, NotFound

FEW = settings(LAWS, max_examples=examples(8))

OLD = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "qty": [1.0, None, float("nan")]})
NEW = pa.table({"id": [2, 3, 4], "name": ["b", "C", "d"], "qty": [None, float("nan"), 0.0]})


class View:
    """A `Changes` as the model's readers want it: a header and rows."""

    def __init__(self, changes: Changes) -> None:
        self.header = changes.header
        self.rows = changes.to_arrow()


def changes_of(old: pa.Table, new: pa.Table, key: tuple[str, ...] | None) -> Changes:
    return Changes.of(difference(old, new, key))


@pytest.fixture(scope="module", params=[1, 3], ids=["one bucket", "three buckets"])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many buckets every verb of the test uses, whatever the size of its input."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VerbRunner, "buckets", lambda _self, _bytes: request.param)
        yield request.param


@FEW
@given(case=cases(states=3, most_values=2))
def test_keyed_verbs_through_kernels_are_the_pure_verbs(count: int, case: Case) -> None:
    a, b, c = case.states
    first, then = changes_of(a, b, case.key), changes_of(b, c, case.key)
    both = first.compose(then)
    assert keyed_of(View(both)) == keyed_of(difference(a, c, case.key))
    assert keyed_of(View(both.consolidate())) == keyed_of(View(both))
    assert keyed_of(View(both.invert())) == model.invert(keyed_of(View(both)))
    counted = both.to_counted()
    assert counted_of(View(counted), case.names) == counted_of(difference(a, c), case.names)
    assert keyed_of(View(counted.to_keyed(case.key))) == keyed_of(View(both))
    assert relation_of(both.apply(a).to_arrow(), case.key) == relation_of(c, case.key)
    assert counted.apply(a).to_arrow().schema.names == c.schema.names
    assert model.bag_of(counted.apply(a).to_arrow()) == model.bag_of(c)
    assert count in (1, 3)


@FEW
@given(case=bags(states=3))
def test_counted_verbs_through_kernels_are_the_pure_verbs(count: int, case: Case) -> None:
    a, b, c = case.states
    first, then = changes_of(a, b, None), changes_of(b, c, None)
    both = first.compose(then)
    assert counted_of(View(both)) == counted_of(difference(a, c))
    assert model.bag_of(both.apply(a).to_arrow()) == model.bag_of(c)
    name = case.names[0]
    assert counted_of(View(both.project([name]))) == counted_of(difference(a.select([name]), c.select([name])))
    assert count in (1, 3)


def test_projecting_and_restricting_through_kernels(count: int) -> None:
    changes = changes_of(OLD, NEW, ("id",))
    assert keyed_of(View(changes.project(["id", "qty"]))) == keyed_of(
        difference(OLD.select(["id", "qty"]), NEW.select(["id", "qty"]), ["id"])
    )
    assert counted_of(View(changes.project(["qty"]))) == counted_of(
        difference(OLD.select(["qty"]), NEW.select(["qty"]))
    )
    restricted = changes.restrict("name = upper(name) or id = :n", {"n": 1})
    assert model.kinds_of(View(restricted)) == {(1,): "delete", (3,): "insert"}
    assert changes.project(["id", "qty"]).summary().unchanged == 2
    assert count in (1, 3)


def test_a_raw_sequence_in_several_parts_keeps_its_order(count: int, tmp_path: Path) -> None:
    steps = [OLD, NEW, OLD, NEW.slice(0, 2)]
    sets = [difference(a, b, ["id"]) for a, b in pairwise(steps)]
    parts = []
    for number, each in enumerate(sets):
        path = str(tmp_path / f"{number}.parquet")
        parts.append(PartFile(path, len(each), write_part(each.rows, path)))
    raw = Changes(StoredChanges(sets[0].header, tuple(parts), proved=True))
    assert keyed_of(View(raw.consolidate())) == keyed_of(difference(OLD, NEW.slice(0, 2), ["id"]))
    assert count in (1, 3)


def test_the_summary_counts_without_reading_rows() -> None:
    summary = changes_of(OLD, NEW, ("id",)).summary()
    assert (summary.inserted, summary.updated, summary.deleted, summary.unchanged) == (1, 1, 1, 1)
    assert summary.columns == {"name": 1, "qty": 0}
    assert str(summary) == "1 inserted, 1 updated, 1 deleted, 1 unchanged"
    counted = changes_of(OLD, NEW, None).summary()
    assert (counted.added, counted.removed, counted.unchanged) == (2, 2, 1)
    assert str(counted) == "2 rows added, 2 removed, 1 unchanged"
    assert summary.to_json()["inserted"] == 1


def test_a_change_set_shows_what_it_is_and_has_a_length_but_no_truth() -> None:
    changes = changes_of(OLD, NEW, ("id",))
    assert repr(changes) == "<Changes keyed by id: 1 inserted, 1 updated, 1 deleted, 1 unchanged>"
    assert len(changes) == 3
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(changes)


def test_applying_to_a_file_gives_a_relation_that_can_be_saved(tmp_path: Path) -> None:
    pq.write_table(OLD, tmp_path / "old.parquet")
    result = changes_of(OLD, NEW, ("id",)).apply(tmp_path / "old.parquet")
    assert isinstance(result, Applied)
    assert (result.rows, result.schema) == (3, NEW.schema)
    result.save(tmp_path / "new.parquet")
    assert relation_of(pq.read_table(tmp_path / "new.parquet"), ["id"]) == relation_of(NEW, ["id"])
    result.save(tmp_path / "folder")
    assert relation_of(pq.read_table(tmp_path / "folder"), ["id"]) == relation_of(NEW, ["id"])
    with pytest.raises(Exception, match="something there already"):
        result.save(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "new.parquet", "old.parquet"]
    again = changes_of(NEW, OLD, ("id",)).apply(result)
    assert relation_of(again.to_arrow(), ["id"]) == relation_of(OLD, ["id"])


def test_applying_everything_away_leaves_an_empty_relation(tmp_path: Path, count: int) -> None:
    result = changes_of(OLD, OLD.slice(0, 0), ("id",)).apply(OLD)
    assert result.to_arrow() == OLD.slice(0, 0)
    result.save(tmp_path / f"empty{count}.parquet")
    assert pq.read_table(tmp_path / f"empty{count}.parquet").num_rows == 0


def test_an_ill_fitting_apply_shows_its_keys_from_whatever_bucket(count: int) -> None:
    changes = changes_of(OLD, NEW, ("id",))
    with pytest.raises(ChangesError, match=r"id=4"):
        changes.apply(pa.concat_tables([OLD, pa.table({"id": [4], "name": ["other"], "qty": [0.0]})]))
    assert relation_of(changes.apply(NEW, lenient=True).to_arrow(), ["id"]) == relation_of(NEW, ["id"])
    assert count in (1, 3)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(NotFound):
        changes_of(OLD, NEW, ("id",)).apply("nowhere.parquet")


def test_the_spool_goes_with_the_last_set_that_reads_it() -> None:
    changes = changes_of(OLD, NEW, ("id",))
    path = changes._spool.path if changes._spool else ""
    assert os.path.isdir(path)
    del changes
    assert not os.path.exists(path)


def test_consolidate_of_a_net_set_changes_nothing_but_what_is_unknown() -> None:
    pure = difference(OLD, NEW, ["id"])
    assert keyed_of(consolidate(pure)) == keyed_of(pure)


def test_importing_changes_loads_neither_spark_nor_duckdb_nor_sqlglot() -> None:
    code = "import sys, strandline.changes; print({'sqlglot', 'duckdb', 'pyspark', 'numba'} & set(sys.modules))"
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=there)
    assert done.stdout.strip() == "set()"
