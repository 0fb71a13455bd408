"""The kernels on Spark give what they give in this process: many generated cases as the items of one job."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from tests import model
from tests.examples import LAWS
from tests.random_tables import Case, cases

from strandline.changes import Changes
from strandline.changes.execution import StoredChanges, apply_set, run_verb, store
from strandline.changes.part_files import header_from_json, read_parts
from strandline.changes.shape import ChangeSet
from strandline.changes.table_difference import difference
from strandline.differential.comparison import Comparison, Side
from strandline.differential.partitioned_hash import compare_pair, pair_item
from strandline.engine import InlineRunner, Kernel, Outcome, Spool, WorkItem
from strandline.engine.spark_runner import SparkRunner
from strandline.relations.inputs import open_relation
from strandline.relations.relation import schema_to_text

CASES = 30


def collected(count: int) -> list[Case]:
    """Generated cases, always the same."""
    found: list[Case] = []

    @settings(LAWS, max_examples=count, phases=[Phase.generate])
    @given(case=cases(states=3))
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def both(spark: Any, kernel: Kernel, items: list[WorkItem], spool: Spool) -> list[tuple[Outcome, Outcome]]:
    on_spark = SparkRunner(spark).run(kernel, items, spool, "generated cases")
    return list(zip(on_spark, InlineRunner().run(kernel, items, spool, "generated cases"), strict=True))


def rows(outcome: Outcome, schema: pa.Schema) -> pa.Table:
    return read_parts([outcome.result["path"]] if outcome.result["path"] else [], schema)


def test_verbs_on_spark_equal_verbs_in_this_process(spark: Any) -> None:
    with Spool() as spool:
        items: list[WorkItem] = []
        for case in collected(CASES):
            first, second, third = case.states
            one, two = (_stored(a, b, case, spool) for a, b in ((first, second), (second, third)))
            items.append({"verb": "invert", "sets": [one.record()], "options": {}})
            items.append({"verb": "compose", "sets": [one.record(), two.record()], "options": {}})
        for place, (on_spark, inline) in enumerate(both(spark, run_verb, items, spool)):
            schema = header_from_json(items[place]["sets"][0]["header"]).rows_schema
            assert on_spark.result["counts"] == inline.result["counts"]
            assert model.rows_of(rows(on_spark, schema)) == model.rows_of(rows(inline, schema))


def test_the_first_law_holds_on_spark(spark: Any) -> None:
    """apply(a, diff(a, b)) = b, and diff gives the model's changes."""
    cases = collected(CASES)
    with Spool() as spool:
        items = [_pair(case, spool) for case in cases]
        outcomes = SparkRunner(spark).run(compare_pair, items, spool, "generated cases")
        applied: list[WorkItem] = []
        for case, outcome, item in zip(cases, outcomes, items, strict=True):
            header = Comparison.from_json(item["comparison"]).header
            found = ChangeSet(
                header, read_parts([part["path"] for part in outcome.result["parts"]], header.rows_schema)
            )
            old, new = (model.relation_of(state, case.key) for state in case.states[:2])
            assert model.keyed_of(found) == model.difference(old, new)
            applied.append(
                {
                    "base": {"scans": item["old"]["scans"], "schema": schema_to_text(case.states[0].schema)},
                    "changes": store(found, spool).record(),
                    "lenient": False,
                }
            )
        for case, outcome in zip(cases, SparkRunner(spark).run(apply_set, applied, spool, "applying"), strict=True):
            after = rows(outcome, case.states[1].schema)
            assert model.relation_of(after, case.key) == model.relation_of(case.states[1], case.key)


def test_a_change_set_becomes_a_dataframe_and_runs_its_verbs_on_spark(spark: Any) -> None:
    old = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "price": [1.0, float("nan"), 3.0]})
    new = pa.table({"id": [2, 3, 4], "name": ["b", "c", "d"], "price": [float("nan"), 3.0, 4.0]})
    changes = Changes.of(difference(old, new, ["id"]))
    frame = changes.to_spark(spark)
    assert {(row["_change"], row["id"]) for row in frame.collect()} == {("delete", 1), ("update", 3), ("insert", 4)}
    moments = pa.table(
        {"id": [1], "at": pa.array([0], pa.timestamp("us")), "utc": pa.array([0], pa.timestamp("us", "UTC"))}
    )
    times = Changes.of(difference(moments, moments.slice(0, 0), ["id"])).to_spark(spark)
    assert {"at": "timestamp_ntz", "utc": "timestamp"}.items() <= dict(times.dtypes).items()
    again = changes.apply(old, runner="spark", session=spark).to_arrow()
    assert model.relation_of(again, ["id"]) == model.relation_of(new, ["id"])
    undone = changes.compose(changes.invert(runner="spark", session=spark), runner="spark", session=spark)
    assert len(undone) == 0


def _stored(old: pa.Table, new: pa.Table, case: Case, spool: Spool) -> StoredChanges:
    return store(difference(old, new, case.key), spool)


def _pair(case: Case, spool: Spool) -> WorkItem:
    old, new = (open_relation(state, spool=spool) for state in case.states[:2])
    sides = []
    for relation in (old, new):
        names = tuple(relation.schema.names)
        scans = tuple(part.scan for part in relation.parts(()))
        sides.append(Side(scans, names, names, relation.schema))
    return pair_item(Comparison(old.schema, new.schema, case.key), sides[0], sides[1])
