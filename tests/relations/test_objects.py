"""Parquet in an object store: an object, a prefix, a glob, hive folders; read by ranges, noticed when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store
from tests.differential.test_diff_on_spark import extracts
from tests.storage import s3

import strandline as sl
from strandline.errors import FormatError, InputError, NotFound
from strandline.relations import ReadOptions, open_relation, read_relation, read_scan
from strandline.storage import object_version, open_object


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3.bucket() as name:
        yield name


def put(bucket: str, key: str, table: pa.Table | bytes, **options: int) -> str:
    value = table
    if isinstance(table, pa.Table):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        value = sink.getvalue().to_pybytes()
    obstore.put(S3Store(bucket), key, value)
    return f"s3://{bucket}/{key}"


def test_an_object_a_prefix_and_a_glob_are_relations_as_files_are(bucket: str) -> None:
    for n in (1, 2):
        put(bucket, f"t/day={n}/part.parquet", pa.table({"id": [n, n + 10]}))
    put(bucket, "t/_SUCCESS", b"")
    put(bucket, "t2/other.parquet", pa.table({"id": [99]}))
    root = f"s3://{bucket}/t"
    for url in (root, f"{root}/", f"{root}/*/part.parquet", f"{root}/**/*.parquet"):
        relation = open_relation(url)
        rows = read_relation(relation)
        assert (relation.rows, rows["id"].to_pylist(), rows["day"].to_pylist()) == (4, [1, 11, 2, 12], [1, 1, 2, 2])
    one = read_relation(open_relation(f"{root}/day=2/part.parquet"))
    assert one.to_pydict() == {"id": [2, 12]}
    assert read_relation(open_relation(root, options=ReadOptions(hive=False))).column_names == ["id"]


def test_only_the_footer_and_the_columns_asked_for_are_read(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pa.table({"id": list(range(40_000)), "text": [f"{n:0200d}" for n in range(40_000)]})
    url = put(bucket, "wide.parquet", wide, row_group_size=10_000)
    size = object_version(url).bytes
    read = 0
    get = obstore.get

    def counted(store: Any, path: str, *, options: Any) -> Any:
        nonlocal read
        start, end = options["range"]
        read += end - start
        return get(store, path, options=options)

    monkeypatch.setattr(obstore, "get", counted)
    monkeypatch.setattr("strandline.storage.object_file._BUFFER", 1 << 10)
    part = open_relation(url).parts()[1]
    assert sum(batch.num_rows for batch in read_scan(part.scan, ["id"])) == 10_000
    assert 0 < read < size / 2


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
def test_a_differential_of_objects_is_that_of_the_same_files(bucket: str, tmp_path: Path, shuffled: bool) -> None:
    paths = extracts(tmp_path, seed=21, shuffled=shuffled)
    urls = [put(bucket, f"{shuffled}/{Path(path).name}", Path(path).read_bytes()) for path in paths]
    for algorithm in ("merge", "hash", "window"):
        found, expected = (sl.diff(old, new, key=["shop", "id"], algorithm=algorithm) for old, new in (urls, paths))
        assert found.summary() == expected.summary()
    state = str(tmp_path / "state")
    sl.diff(None, urls[0], key=["shop", "id"], state=state)
    assert sl.diff(None, urls[1], key=["shop", "id"], state=state).summary().changed == expected.summary().changed


def test_an_object_that_is_replaced_while_it_is_read_is_noticed(bucket: str) -> None:
    url = put(bucket, "changing.parquet", pa.table({"id": [1]}))
    with open_object(object_version(url)) as file:
        assert file.read(4) == b"PAR1"
    opened = object_version(url)
    put(bucket, "changing.parquet", pa.table({"id": [2]}))
    with open_object(opened) as file, pytest.raises(FormatError, match="replaced while it was read"):
        file.read(4)


def test_what_is_not_there_or_no_parquet_or_holds_a_secret_is_told(bucket: str) -> None:
    put(bucket, "rows.csv", b"id\n1\n")
    for url, error, why in (
        (f"s3://{bucket}/nothing.parquet", NotFound, "no such object"),
        (f"s3://{bucket}/nothing/*.parquet", NotFound, "no such object"),
        ("s3://no-such-bucket-here/t", NotFound, "no such bucket"),
        (f"s3://{bucket}/rows.csv", FormatError, "not Parquet"),
        (f"s3://me:secret@{bucket}/t", InputError, "must not hold credentials"),
        ("s3:///t", InputError, "names no bucket"),
        ("gs://bucket/t", InputError, "gs:// is not supported"),
    ):
        with pytest.raises(error, match=why) as caught:
            open_relation(url)
        assert "secret" not in str(caught.value)
