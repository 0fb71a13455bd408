"""A store, dumps and differentials on an S3 that is slow and refuses requests, some of them after it has done them."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
from tests.storage.s3 import Overloaded, bucket
from tests.tables.shop import numbered

import strandline as sl
from strandline.storage.object_file import put_object


def test_an_overloaded_object_store_makes_no_row_wrong_and_none_twice() -> None:
    trouble: list[Overloaded] = []
    with bucket(trouble) as name:
        place = f"s3://{name}"
        expected = {number: number * 10 for number in range(40)}
        with sl.create(f"{place}/shop") as store:
            rows = pa.table({"id": list(expected), "v": list(expected.values())})
            table = store.create_table("t", rows, key="id")
            store.snapshot("first")
            for turn in range(2):
                table.upsert([{"id": 38 + 2 * turn, "v": turn}, {"id": 100 + turn, "v": turn}])
                table.delete(where=f"id = {turn}")
                expected |= {38 + 2 * turn: turn, 100 + turn: turn}
                del expected[turn]
            table.insert(numbered(2, 500))
            expected |= {row["id"]: row["v"] for row in numbered(2, 500).to_pylist()}
            assert dict(zip(*table.to_arrow().to_pydict().values(), strict=True)) == expected
            assert len(table.to_arrow(at="first")) == 40
            store.dump(f"{place}/dumps")
            assert store.check().ok
        sl.restore(f"{place}/dumps", f"{place}/again")
        with sl.open(f"{place}/again") as again:
            assert dict(zip(*again.table("t").to_arrow().to_pydict().values(), strict=True)) == expected
            assert again.check().ok
        assert trouble[0].refused > 20


def test_differentials_of_files_on_an_overloaded_object_store() -> None:
    trouble: list[Overloaded] = []
    with bucket(trouble) as name:
        place = f"s3://{name}"
        nights = [{key: key * (night % 2) for key in range(5 * night, 100 + 9 * night)} for night in range(3)]
        for number, night in enumerate(nights):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"id": list(night), "v": list(night.values())}), sink)
            put_object(f"{place}/{number}.parquet", sink.getvalue().to_pybytes())
        for number, (old, new) in enumerate(pairwise(nights)):
            by_files = sl.diff(f"{place}/{number}.parquet", f"{place}/{number + 1}.parquet", key="id")
            inserted, deleted = len(new.keys() - old.keys()), len(old.keys() - new.keys())
            updated = sum(old[key] != new[key] for key in old.keys() & new.keys())
            summary = by_files.summary()
            assert (summary.inserted, summary.updated, summary.deleted) == (inserted, updated, deleted)
            by_files.save(f"{place}/saved-{number}")
            assert sl.Changes.load(f"{place}/saved-{number}").to_arrow().equals(by_files.to_arrow())
        assert trouble[0].refused > 10
