"""One seam, three ways: rows that meet by Spark's shuffle, through files, or in one item give the same changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from tests import model
from tests.changes.test_on_spark import collected
from tests.examples import LAWS
from tests.random_tables import Case, cases

from strandline.changes import Changes, ChangeSet, Counts, StoredChanges
from strandline.differential.comparison import Comparison, Side
from strandline.differential.partitioned_hash import compare_pair, pair_item
from strandline.differential.result import gather
from strandline.engine import InlineRunner, Outcome, Runner, Spool, WorkItem
from strandline.engine.spark_runner import SparkRunner
from strandline.errors import InputError, SchemaError
from strandline.relations import BucketScans, Exchange, ExchangeSide, ReadOptions, Scan, open_relation, read_table
from strandline.relations.exchange import cut_of
from strandline.relations.shuffle import ScanSplitting, run_exchanged, unpacking_of

BUCKETS = 3


def exchange_of(case: Case, spool: Spool, buckets: int = BUCKETS) -> tuple[Exchange, WorkItem]:
    """Two states of a case on their way to each other, and the item that compares a bucket of them."""
    old, new = (open_relation(state, spool=spool) for state in case.states[:2])
    comparison = Comparison(old.schema, new.schema, case.key)
    sides, records = [], []
    for relation, schema in ((old, comparison.old_schema_shared), (new, comparison.new_schema_shared)):
        names = tuple(schema.names)
        shared = pa.schema(
            [comparison.header.after_schema.field(n) if n in case.key else schema.field(n) for n in names]
        )
        scans = tuple(replace(part.scan, schema=shared) for part in relation.parts())
        sides.append(ExchangeSide(shared, list(case.key), scans))
        records.append(Side((), names, names, schema))
    item = pair_item(comparison, *records)
    template = {**item, **{name: {**item[name], "scans": BucketScans(n)} for n, name in enumerate(("old", "new"))}}
    return Exchange(tuple(sides), buckets), template


def in_process(exchange: Exchange, template: WorkItem, spool: Spool, limit: int | None = None) -> list[Outcome]:
    """What the tasks of the shuffle do, in this process; values arrive last first."""
    arrived: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for number, side in enumerate(exchange.sides):
        items = [{**cut_of(exchange, number), "scans": [scan.to_json()]} for scan in side.scans]
        ids = pa.record_batch({"id": list(range(len(items)))})
        for value in ScanSplitting(items)(iter([ids])):
            arrived[value.column(0)[0].as_py()].insert(0, value)
    found: list[WorkItem] = []
    for bucket, values in sorted(arrived.items()):
        folder = Path(spool.path) / f"worker-{bucket}"
        folder.mkdir(exist_ok=True)
        found += [item for _, item in unpacking_of(exchange, template, limit)(iter(values), str(folder))]
    return InlineRunner(1).run(compare_pair, found, spool, "comparing")


def changes_of(outcomes: list[Outcome], template: WorkItem) -> tuple[Any, Counts]:
    header = Comparison.from_json(template["comparison"]).header
    result = gather(header, outcomes)
    rows = Changes(StoredChanges(header, result.parts)).to_arrow()
    return model.keyed_of(ChangeSet(header, rows)), result.header.counts


def expected_of(case: Case) -> Any:
    return model.difference(*(model.relation_of(state, case.key) for state in case.states[:2]))


@settings(LAWS)
@given(case=cases())
def test_by_shuffle_by_files_and_in_one_item_rows_give_the_same_changes(case: Case) -> None:
    with Spool() as spool:
        exchange, template = exchange_of(case, spool)
        alone = replace(exchange, buckets=1)
        running = InlineRunner(1), spool
        counts = set()
        for outcomes in (
            run_exchanged(alone, compare_pair, template, running, "comparing"),
            run_exchanged(exchange, compare_pair, template, running, "comparing"),
            in_process(exchange, template, spool),
            in_process(alone, template, spool, limit=1),
        ):
            found, counted = changes_of(outcomes, template)
            assert found == expected_of(case)
            counts.add((counted.inserted, counted.updated, counted.deleted, counted.unchanged))
        assert len(counts) == 1


def test_generated_cases_give_the_same_by_sparks_own_shuffle(spark: Any) -> None:
    with Spool() as spool:
        for case in collected(12)[::3]:
            exchange, template = exchange_of(case, spool)
            for runner in (SparkRunner(spark), SparkRunner(spark, shared=False)):
                outcomes = run_exchanged(exchange, compare_pair, template, (runner, spool), "comparing")
                assert changes_of(outcomes, template)[0] == expected_of(case)


def rows_of(bucket: WorkItem) -> list[int]:
    scans = [Scan.from_json(record) for record in bucket["rows"]]
    return [n for scan in scans for n in read_table([scan])["v"].to_pylist()]


@pytest.fixture
def numbered(tmp_path: Path) -> tuple[Exchange, Spool]:
    """A thousand numbered rows in several files, of few keys."""
    for n in range(4):
        rows = list(range(250 * n, 250 * n + 250))
        pq.write_table(pa.table({"k": [v % 29 for v in rows], "v": rows}), tmp_path / f"{n}.parquet", row_group_size=99)
    relation = open_relation(tmp_path / "*.parquet")
    scans = tuple(part.scan for part in relation.parts())
    return Exchange((ExchangeSide(relation.schema, ["k"], scans),), BUCKETS), Spool(str(tmp_path))


def unpacked(exchange: Exchange, spool: Spool, limit: int | None) -> Iterator[list[int]]:
    items = [{**cut_of(exchange, 0), "scans": [scan.to_json()]} for scan in exchange.sides[0].scans]
    values = list(ScanSplitting(items)(iter([pa.record_batch({"id": list(range(len(items)))})])))
    unpack = unpacking_of(exchange, {"rows": BucketScans(0)}, limit)
    for bucket in range(exchange.buckets):
        folder = Path(spool.path) / f"worker-{bucket}-{limit}"
        folder.mkdir()
        mine = [value for value in reversed(values) if value.column(0)[0].as_py() == bucket]
        numbers = []
        for number, item in unpack(iter(mine), str(folder)):
            numbers.append(number)
            yield rows_of(item)
        assert numbers == sorted(set(numbers))


def test_rows_keep_their_order_however_their_values_arrive(numbered: tuple[Exchange, Spool]) -> None:
    pieces = list(unpacked(*numbered, None))
    assert len(pieces) == BUCKETS
    assert all(rows == sorted(rows) for rows in pieces)
    assert sorted(n for rows in pieces for n in rows) == list(range(1000))


def test_a_bucket_that_outgrows_a_task_is_cut_by_a_second_hash(numbered: tuple[Exchange, Spool]) -> None:
    pieces = [rows for rows in unpacked(*numbered, 1000) if rows]
    assert len(pieces) > BUCKETS
    assert all(rows == sorted(rows) for rows in pieces)
    keys = [{n % 29 for n in rows} for rows in pieces]
    assert sum(map(len, keys)) == 29, "no key is in two pieces"
    assert sorted(n for rows in pieces for n in rows) == list(range(1000))


def test_rows_by_range_arrive_in_the_ranges_of_their_keys(numbered: tuple[Exchange, Spool]) -> None:
    exchange, spool = numbered
    pieces = list(unpacked(replace(exchange, bounds=pa.table({"k": [2, 27]})), spool, 1))
    assert [{n % 29 for n in rows} for rows in pieces] == [{0, 1}, {*range(2, 27)}, {27, 28}]


@pytest.mark.parametrize("shared", [True, False])
def test_a_value_that_does_not_fit_is_the_same_mistake_on_both_ways(spark: Any, tmp_path: Path, shared: bool) -> None:
    pq.write_table(pa.table({"k": ["1", "x"]}), tmp_path / "t.parquet")
    relation = open_relation(tmp_path / "t.parquet", options=ReadOptions(types={"k": "int8"}))
    side = ExchangeSide(relation.schema, ["k"], tuple(part.scan for part in relation.parts()))
    runner: Runner = SparkRunner(spark, shared=shared)
    with Spool() as spool, pytest.raises(SchemaError, match="'x' in row 2"):
        run_exchanged(Exchange((side,), 2), compare_pair, {"rows": BucketScans(0)}, (runner, spool), "comparing")


def test_rows_that_only_the_driver_has_are_handed_to_spark_up_to_a_limit(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in collected(30) if len(case.states[0]) > 2)
    pq.write_table(pa.table({"k": [1]}), tmp_path / "far.parquet")
    with Spool() as spool:
        exchange, template = exchange_of(case, spool)
        far = tuple(replace(part.scan, rows=0) for part in open_relation(tmp_path / "far.parquet").parts())
        mixed = replace(exchange, sides=(*exchange.sides, ExchangeSide(pa.schema([("k", pa.int64())]), ["k"], far)))
        running = SparkRunner(spark, shared=False), spool
        outcomes = run_exchanged(mixed, compare_pair, template, running, "comparing")
        assert changes_of(outcomes, template)[0] == expected_of(case)
        import strandline.relations.shuffle as shuffle

        monkeypatch.setattr(shuffle, "HANDED_LIMIT", 1)
        with pytest.raises(InputError, match=r"on this machine alone.*STRANDLINE_SPOOL"):
            run_exchanged(mixed, compare_pair, template, running, "comparing")


@pytest.mark.parametrize("limit", [None, 1000])
def test_a_task_may_get_several_buckets(numbered: tuple[Exchange, Spool], tmp_path: Path, limit: int | None) -> None:
    """As it is before PySpark 4.1."""
    exchange, spool = numbered
    items = [{**cut_of(exchange, 0), "scans": [scan.to_json()]} for scan in exchange.sides[0].scans]
    values = ScanSplitting(items)(iter([pa.record_batch({"id": list(range(len(items)))})]))
    (tmp_path / "worker").mkdir()
    unpack = unpacking_of(exchange, {"rows": BucketScans(0)}, limit)
    together = {number: rows_of(item) for number, item in unpack(values, str(tmp_path / "worker"))}
    assert [together[number] for number in sorted(together)] == list(unpacked(exchange, spool, limit))
