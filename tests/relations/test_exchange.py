"""The exchange: every row in one bucket, equal keys in the same one."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.engine import InlineRunner, Kernel, Outcome, Spool, WorkItem
from strandline.errors import InputError, KeysError, SchemaError
from strandline.relations import Exchange, ExchangeSide, ReadOptions, Scan, exchange_sides, open_relation, read_table
from strandline.relations.exchange import buckets_of


def scans_of(path: Path, table: pa.Table, **options: Any) -> list[Scan]:
    pq.write_table(table, path, **options)
    return [part.scan for part in open_relation(path).parts()]


def in_buckets(scans: list[Scan], key: Any, buckets: int, threads: int, spool: Spool) -> list[list[Scan]]:
    """The buckets of one side."""
    schema = scans[0].schema if scans else pa.schema([(name, pa.int64()) for name in key])
    exchange = Exchange((ExchangeSide(schema, key, tuple(scans)),), buckets)
    (side,) = exchange_sides(exchange, InlineRunner(threads), spool)
    return side


def test_every_row_lands_in_one_bucket_and_equal_keys_together(tmp_path: Path) -> None:
    rows = 5000
    table = pa.table(
        {"k": [n % 700 for n in range(rows)], "v": list(range(rows)), "s": [f"row {n}" for n in range(rows)]}
    )
    scans = scans_of(tmp_path / "t.parquet", table, row_group_size=333)
    with Spool(str(tmp_path)) as spool:
        buckets = in_buckets(scans, ["k"], 7, 2, spool)
        assert len(buckets) == 7
        tables = [read_table([Scan.from_json(scan.to_json()) for scan in bucket]) for bucket in buckets]
        assert [t.num_rows for t in tables] == [sum(scan.rows or 0 for scan in bucket) for bucket in buckets]
    together = pa.concat_tables(tables).sort_by("v")
    assert together.equals(table)
    keys = [set(t["k"].to_pylist()) for t in tables]
    assert sum(map(len, keys)) == 700
    assert all(t["v"].to_pylist() == sorted(t["v"].to_pylist()) for t in tables), "order within a bucket is kept"


def test_two_relations_meet_in_the_same_buckets_once_they_have_one_schema(tmp_path: Path) -> None:
    old = scans_of(tmp_path / "a.parquet", pa.table({"k": pa.array([-5, 7, None], pa.int32())}))
    new = scans_of(tmp_path / "b.parquet", pa.table({"k": pa.array([None, 7, -5], pa.int64())}))
    old = [replace(scan, schema=new[0].schema) for scan in old]
    with Spool(str(tmp_path)) as spool:
        both = Exchange(tuple(ExchangeSide(new[0].schema, ["k"], tuple(scans)) for scans in (old, new)), 16)
        sides = exchange_sides(both, InlineRunner(1), spool)
        for one, other in zip(*sides, strict=True):
            assert [read_table([s]) for s in one] or not other
            assert {k for s in one for k in read_table([s])["k"].to_pylist()} == {
                k for s in other for k in read_table([s])["k"].to_pylist()
            }


def test_two_relations_of_different_types_meet_once_each_knows_the_other_types(tmp_path: Path) -> None:
    old = scans_of(tmp_path / "a.parquet", pa.table({"k": pa.array([-5, 7, None, 2], pa.int16())}))
    new = scans_of(tmp_path / "b.parquet", pa.table({"k": pa.array([None, 7.0, -5.0, 2.5], pa.float64())}))
    with Spool(str(tmp_path)) as spool:
        sides = [
            in_buckets(scans, {"k": other[0].schema.field("k").type}, 16, 1, spool)
            for scans, other in ((old, new), (new, old))
        ]
        keys = [[{k for s in bucket for k in read_table([s])["k"].to_pylist()} for bucket in side] for side in sides]
    for shared in (-5, 7, None):
        assert [shared in bucket for bucket in keys[0]] == [shared in bucket for bucket in keys[1]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([0.0, float("nan")]), pa.array([-0.0, np.uint64(0xFFF8000000000001).view(np.float64)])),
        (pa.array([0.0], pa.float32()), pa.array([-0.0], pa.float32())),
        (pa.array(["é", None]), pa.array(["é", None], pa.large_string())),
        (pa.array([b"ab"]), pa.array([b"ab"], pa.large_binary())),
    ],
)
def test_equal_values_have_equal_buckets(one: pa.Array, other: pa.Array) -> None:
    first, second = (buckets_of(pa.table({"k": a}), ["k"], 1 << 20).tolist() for a in (one, other))
    assert first == second


@pytest.mark.parametrize(
    "array",
    [
        pa.array(range(100), pa.timestamp("ns", "Asia/Tokyo")),
        pa.array(range(100), pa.duration("s")),
        pa.array([dt.time(0, 0, n % 60) for n in range(100)]),
        pa.array(range(100), pa.int32()).cast(pa.date32()),
        pa.array([Decimal(n) for n in range(100)], pa.decimal256(60, 2)),
        pa.array([Decimal(n) for n in range(100)], pa.decimal128(30, 2)),
        pa.array([n.to_bytes(4, "big") for n in range(100)], pa.binary(4)),
        pa.array([uuid.UUID(int=n) for n in range(100)], pa.uuid()),
        pa.array(np.arange(100, dtype=np.float16)),
        pa.array([{"a": n} for n in range(100)]),
        pa.array([n % 2 == 0 for n in range(100)]),
    ],
)
def test_every_type_of_key_and_column_is_exchanged(tmp_path: Path, array: pa.Array) -> None:
    table = pa.table({"k": array, "v": list(range(100))})
    scans = scans_of(tmp_path / "t.parquet", table)
    with Spool(str(tmp_path)) as spool:
        found = in_buckets(scans, ["k", "v"], 5, 1, spool)
        rows = [read_table(bucket) for bucket in found if bucket]
    assert len(rows) > 1
    assert pa.concat_tables(rows).sort_by("v")["k"].to_pylist() == read_table(scans)["k"].to_pylist()


class Counting(InlineRunner):
    """Counts its runs, and the items of each."""

    def __init__(self) -> None:
        super().__init__(2)
        self.runs: list[int] = []

    def run(self, kernel: Kernel, items: Sequence[WorkItem], spool: Spool, title: str) -> list[Outcome]:
        self.runs.append(len(items))
        return super().run(kernel, items, spool, title)


def test_all_sides_are_split_in_one_run_each_by_its_share_of_the_items(tmp_path: Path) -> None:
    sizes = {"large": 30_000, "small": 300, "none": 0}
    tables = {name: pa.table({"k": list(range(rows))}, pa.schema([("k", pa.int64())])) for name, rows in sizes.items()}
    scans = {name: scans_of(tmp_path / f"{name}.parquet", table, row_group_size=3000) for name, table in tables.items()}
    sides = tuple(ExchangeSide(tables[name].schema, ["k"], tuple(some)) for name, some in scans.items())
    runner = Counting()
    with Spool(str(tmp_path)) as spool:
        found = exchange_sides(Exchange(sides, 3), runner, spool)
        assert runner.runs == [5], "four for two processors, and the small side begins one more"
        for table, buckets in zip(tables.values(), found, strict=True):
            rows = [key for bucket in buckets for scan in bucket for key in read_table([scan])["k"].to_pylist()]
            assert sorted(rows) == table["k"].to_pylist()


def test_small_memory_makes_many_groups_and_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.modules["strandline.relations.exchange"], "_GROUP_BYTES", 1)
    scans = [
        scan
        for n in range(20)
        for scan in scans_of(tmp_path / f"{n}.parquet", pa.table({"k": list(range(50 * n, 50 * n + 50))}))
    ]
    with Spool(str(tmp_path)) as spool:
        found = in_buckets(scans, ["k"], 3, 1, spool)
        assert len(found[0][0].row_groups or ()) == 10
        assert sorted(k for bucket in found for k in read_table(bucket)["k"].to_pylist()) == list(range(1000))


def test_one_bucket_many_buckets_and_no_rows(tmp_path: Path) -> None:
    scans = scans_of(tmp_path / "t.parquet", pa.table({"k": [1, 2, 3]}))
    empty = [Scan("parquet", scans[0].path, scans[0].schema, row_groups=())]
    with Spool(str(tmp_path)) as spool:
        assert read_table(in_buckets(scans, ["k"], 1, 1, spool)[0])["k"].to_pylist() == [1, 2, 3]
        assert sum(map(len, in_buckets(scans, ["k"], 1000, 1, spool))) in (1, 2, 3)
        assert in_buckets(empty, ["k"], 2, 1, spool) == [[], []]
        assert in_buckets([], ["k"], 2, 1, spool) == [[], []]


def test_mistakes_are_told_before_any_work_and_bad_values_from_the_kernel(tmp_path: Path) -> None:
    scans = scans_of(tmp_path / "t.parquet", pa.table({"k": [1]}))
    other = scans_of(tmp_path / "u.parquet", pa.table({"k": ["x"]}))
    with Spool(str(tmp_path)) as spool:
        for wrong, error in (
            ((scans, ["z"], 2), KeysError),
            ((scans, [], 2), KeysError),
            ((scans, ["k"], 0), InputError),
            (([*scans, *other], ["k"], 2), InputError),
        ):
            with pytest.raises(error):
                in_buckets(*wrong, 1, spool)
        typed = [
            p.scan for p in open_relation(tmp_path / "u.parquet", options=ReadOptions(types={"k": "int8"})).parts()
        ]
        with pytest.raises(SchemaError, match="'x' in row 1"):
            in_buckets(typed, ["k"], 2, 1, spool)
