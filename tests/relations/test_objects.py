"""Files at URLs: an object, a prefix, a glob, hive folders, tables; read by ranges, noticed when they change."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import os
import re
import socket
import threading
import urllib.request
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
from strandline.engine import InlineRunner
from strandline.errors import FormatError, InputError, NotFound, StorageError
from strandline.relations import ReadOptions, open_relation, read_relation, read_scan
from strandline.relations.formats import ParquetRelation, footers
from strandline.storage import object_file, object_version
from strandline.storage.object_file import open_object, put_object, refusal


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


def put_empty(bucket: str, key: str) -> None:
    """An empty object of a name that obstore would not write."""
    request = urllib.request.Request(f"{os.environ['AWS_ENDPOINT']}/{bucket}/{key}", b"", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


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


def test_objects_that_stand_for_folders_are_left_out(bucket: str) -> None:
    for key in ("m/", "m/sub/", "m/empty/", "m/sub_$folder$"):
        put_empty(bucket, key)
    put(bucket, "m/sub/a.parquet", pa.table({"id": [1]}))
    for url in (f"s3://{bucket}/m", f"s3://{bucket}/m/", f"s3://{bucket}/m/**"):
        assert read_relation(open_relation(url)).to_pydict() == {"id": [1]}
    with pytest.raises(NotFound, match="nothing below it"):
        open_relation(f"s3://{bucket}/m/empty")


@pytest.mark.parametrize(
    "name", ["[x]", "a?b", "a*b", "a b", "a%20b", "a+b", "50%", "a#b", "日", "a&b=c", "{x}", "~", "a\\b"]
)
def test_a_name_that_is_there_as_it_is_written_is_no_glob(bucket: str, tmp_path: Path, name: str) -> None:
    here = tmp_path / f"{name}.parquet"
    pq.write_table(pa.table({"id": [2]}), here)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "aXb.parquet")
    put(bucket, "odd/aXb.parquet", pa.table({"id": [1]}))
    assert read_relation(open_relation(here)).to_pydict() == {"id": [2]}
    obstore.put(S3Store(bucket), f"odd/{name}.parquet", here.read_bytes())
    assert read_relation(open_relation(f"s3://{bucket}/odd/{name}.parquet")).to_pydict() == {"id": [2]}


def test_what_lies_beside_an_object_is_not_listed(bucket: str) -> None:
    url = put(bucket, "beside/t.parquet", pa.table({"id": [1]}))
    put_empty(bucket, "beside//t.parquet")
    assert read_relation(open_relation(url)).to_pydict() == {"id": [1]}
    with pytest.raises(InputError, match="has a name that is no path"):
        open_relation(f"s3://{bucket}/beside")
    with pytest.raises(InputError, match="has a name that is no path"):
        open_relation(f"s3://{bucket}/./t.parquet")


def test_footers_of_many_objects_are_read_by_tasks(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["many/a.parquet", "many/b.parquet", "many/c.parquet"]
    for number, name in enumerate(names):
        put(bucket, name, pa.table({"id": range(number, number + 5)} | ({"more": ["x"] * 5} if number else {})))
    options = ReadOptions(union_by_name=True)
    plain = open_relation(f"s3://{bucket}/many/", options=options)
    monkeypatch.setattr(footers, "MANY_OBJECTS", 3)
    monkeypatch.setattr(footers, "cluster_runner", lambda: InlineRunner(2))
    told = open_relation(f"s3://{bucket}/many/", options=options)
    assert isinstance(told, ParquetRelation)
    assert all(isinstance(footer.held, bytes) for footer in told.footers), "packed by tasks"
    assert told.schema == plain.schema
    assert told.parts() == plain.parts()


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


def test_listings_that_give_entity_tags_without_quotes_name_the_same_versions(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, "bare/a.parquet", pa.table({"id": [1, 2]}))
    listed = obstore.list

    def bare(*given: Any, **named: Any) -> Iterator[Any]:
        for chunk in listed(*given, **named):
            yield [{**meta, "e_tag": (meta["e_tag"] or "").strip('"')} for meta in chunk]

    monkeypatch.setattr(obstore, "list", bare)
    assert read_relation(open_relation(f"s3://{bucket}/bare/")).to_pydict() == {"id": [1, 2]}


def test_what_is_not_there_or_holds_a_secret_is_told(bucket: str) -> None:
    for url, error, why in (
        (f"s3://{bucket}/nothing.parquet", NotFound, "no such object"),
        (f"s3://{bucket}/nothing/*.parquet", NotFound, "no such object"),
        ("s3://no-such-bucket-here/t", NotFound, "no such bucket"),
        ("https://somewhere.org/t.csv?signature=secret", InputError, "with a query"),
        (f"s3://me:secret@{bucket}/t", InputError, "must not hold credentials"),
        ("s3:///t", InputError, "names no bucket"),
        ("ftp://bucket/t", InputError, "ftp:// is not supported"),
    ):
        with pytest.raises(error, match=why) as caught:
            open_relation(url)
        assert "secret" not in str(caught.value)


def test_text_and_arrow_are_read_from_urls_as_from_disk(bucket: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "x": [1.5, 2.5, 3.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    lines = b'{"id":1,"name":"a","x":1.5}\n{"id":2,"name":"b","x":2.5}\n{"id":3,"name":null,"x":3.0}\n'
    text = b"id,name,x\n1,a,1.5\n2,b,2.5\n3,NULL,3.0\n"
    for name, value in {
        "rows.jsonl": lines,
        "rows.jsonl.gz": gzip.compress(lines),
        "rows.csv": text,
        "rows.csv.gz": gzip.compress(text),
        "rows.arrow": sink.getvalue().to_pybytes(),
    }.items():
        relation = open_relation(put(bucket, f"text/{name}", value), options=ReadOptions(nulls=("NULL",)))
        assert read_relation(relation).equals(rows), name
    put(bucket, "hive/day=1/a.csv", text)
    put(bucket, "hive/day=2/b.csv", text)
    found = read_relation(open_relation(f"s3://{bucket}/hive", options=ReadOptions(nulls=("NULL",))))
    assert found["day"].to_pylist() == [1, 1, 1, 2, 2, 2]


def test_delta_and_iceberg_tables_are_read_from_urls(bucket: str) -> None:
    import deltalake
    from pyiceberg.catalog.sql import SqlCatalog

    rows = pa.table({"id": list(range(10)), "part": ["x", "y"] * 5})
    delta = f"s3://{bucket}/delta"
    deltalake.write_deltalake(delta, rows, partition_by=["part"], storage_options={"conditional_put": "etag"})
    assert read_relation(open_relation(delta)).sort_by("id").equals(rows)
    endpoint = {f"s3.{name}": os.environ[f"AWS_{key}"] for name, key in ICEBERG_SETTINGS.items()}
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"s3://{bucket}/warehouse", **endpoint)
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema, location=f"s3://{bucket}/warehouse/t")
    table.append(rows)
    for url in (f"s3://{bucket}/warehouse/t", table.metadata_location):
        assert read_relation(open_relation(url)).sort_by("id").equals(rows)
    first = table.current_snapshot().snapshot_id
    table.append(rows.slice(0, 2))
    deltalake.write_deltalake(delta, rows.slice(0, 2), mode="append", storage_options={"conditional_put": "etag"})
    for url, version in ((f"s3://{bucket}/warehouse/t", first), (delta, 0)):
        assert sl.diff(url, url, old_version=version, runner="inline").summary().inserted == 2


ICEBERG_SETTINGS = {
    "endpoint": "ENDPOINT",
    "region": "REGION",
    "access-key-id": "ACCESS_KEY_ID",
    "secret-access-key": "SECRET_ACCESS_KEY",
}


def test_a_file_that_changed_since_it_was_planned_is_refused_by_name(bucket: str, tmp_path: Path) -> None:
    url = put(bucket, "planned.parquet", pa.table({"id": [1]}))
    path = tmp_path / "planned.jsonl"
    path.write_text('{"id": 1}\n')
    planned = [open_relation(url), open_relation(path)]
    put(bucket, "planned.parquet", pa.table({"id": [2]}))
    path.write_text('{"id": 22}\n')
    for relation in planned:
        with pytest.raises(FormatError, match=r"planned\.(parquet|jsonl): it was replaced or changed"):
            read_relation(relation)


def test_a_web_server_is_read_by_ranges(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with web_server(tmp_path) as root:
        assert read_relation(open_relation(f"{root}/rows.parquet")).equals(rows)
        with pytest.raises(NotFound, match="no such object"):
            open_relation(f"{root}/nothing.parquet")
        with pytest.raises(InputError, match="a web server is only read"):
            put_object(f"{root}/x", b"x")


def test_no_credentials_and_an_endpoint_that_hangs_are_told(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as deaf, monkeypatch.context() as changed:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        changed.setattr(object_file, "REQUEST_SECONDS", 1)
        changed.setattr(object_file, "RETRY_SECONDS", 1)
        changed.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        with pytest.raises(StorageError, match=r"did not answer in time.*Check the endpoint"):
            open_relation(f"s3://{bucket}/t.parquet")
    gone = "Error performing GET http://x/nonesuch - 404 Not Found:\n<Error><Code>ContainerNotFound</Code></Error>"
    assert isinstance(refusal(OSError(gone), "reading x"), NotFound)
    with monkeypatch.context() as changed:
        changed.setattr(object_file, "RETRY_SECONDS", 0)
        changed.delenv("AWS_ACCESS_KEY_ID")
        changed.delenv("AWS_SECRET_ACCESS_KEY")
        changed.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # a machine without a role; nobody listens there
        with pytest.raises(StorageError, match=r"no credentials were found.*AWS_ACCESS_KEY_ID"):
            open_relation(f"s3://{bucket}/t.parquet")
    with pytest.raises(StorageError, match=r"no credentials were found"):
        raise refusal(OSError("Error performing PUT http://169.254.169.254/latest/api/token?key=secret"), "reading x")


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """A web server that answers whole requests and ranges."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = folder / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            value = path.read_bytes()
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, len(value))
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(value[start:end])))
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(value)}")
            self.end_headers()
            if body:
                self.wfile.write(value[start:end])

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
