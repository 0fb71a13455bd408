"""One suite over every kind of input: the same rows, the same types told, the same changes.

A kind writes a table and says what names it. Formats that lack a type are told it (`Kind.said`). DataFrames of Spark
have tests of their own, since each costs a job.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import xlsxwriter
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from tests.relations.folder_catalog import FolderCatalog
from tests.replication.servers import Postgres
from tests.storage import s3

import strandline as sl
from strandline.relations import ReadOptions, open_relation, read_relation

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("weight", pa.float64()),
        ("paid", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
    ]
)


def row(number: int, **other: Any) -> dict[str, Any]:
    made = {
        "id": number,
        "name": f"row {number}",
        "price": Decimal(number) / 4,
        "weight": number / 8,
        "paid": number % 2 == 0,
        "day": dt.date(2024, 1, 1) + dt.timedelta(days=number),
        "at": dt.datetime(2024, 1, 1, 10) + dt.timedelta(hours=number),
    }
    return {**made, **other}


NULLS = dict.fromkeys(("price", "weight", "paid", "day", "at"))
OLD = pa.Table.from_pylist([*(row(n) for n in range(1, 40)), row(40, **NULLS)], SCHEMA)
NEW = pa.Table.from_pylist(
    [
        *(row(n) for n in range(2, 38)),
        row(38, name='Zoë, "quoted"', price=Decimal("-0.01")),
        row(39, **NULLS),
        row(40, paid=True),
        row(41),
    ],
    SCHEMA,
)
CHANGES = {"inserted": 1, "updated": 3, "deleted": 1, "unchanged": 36}
TYPES = {name: str(SCHEMA.field(name).type) for name in SCHEMA.names}
TYPES |= {"price": "decimal(10,2)", "day": "date"}

Write = Callable[[pa.Table, Path, Any], Any]


@dataclass(frozen=True)
class Kind:
    """How a table is written, so that the result names it; and which types must be said."""

    write: Write
    said: tuple[str, ...] = ()
    needs: str = ""


def _parquet(table: pa.Table, folder: Path, _: Any) -> Any:
    pq.write_table(table, folder / "t.parquet", row_group_size=16)
    return folder / "t.parquet"


def _folder(table: pa.Table, folder: Path, _: Any) -> Any:
    for part in range(2):
        pq.write_table(table.slice(20 * part, 20 if part == 0 else None), folder / f"{part}.parquet")
    return str(folder)


def _list(table: pa.Table, folder: Path, _: Any) -> Any:
    _folder(table, folder, _)
    return [folder / "0.parquet", folder / "1.parquet"]


def _glob(table: pa.Table, folder: Path, _: Any) -> Any:
    _folder(table, folder, _)
    return f"{folder}/*.parquet"


def _file_url(table: pa.Table, folder: Path, _: Any) -> Any:
    return f"file://{_parquet(table, folder, _)}"


def _parquet_url(table: pa.Table, folder: Path, _: Any) -> Any:
    _folder(table, folder, _)
    return f"parquet://{folder}"


def _csv(table: pa.Table, folder: Path, _: Any) -> Any:
    pa_csv.write_csv(table, folder / "t.csv")
    return folder / "t.csv"


def _packed_csv(table: pa.Table, folder: Path, _: Any) -> Any:
    with pa.CompressedOutputStream(str(folder / "t.csv.gz"), "gzip") as sink:
        pa_csv.write_csv(table, sink)
    return folder / "t.csv.gz"


def _json(table: pa.Table, folder: Path, _: Any) -> Any:
    with open(folder / "t.jsonl", "w") as file:
        for record in table.to_pylist():
            file.write(json.dumps(record, default=_json_value) + "\n")
    return folder / "t.jsonl"


def _json_value(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value.isoformat()


def _arrow(table: pa.Table, folder: Path, _: Any) -> Any:
    with pa.OSFile(str(folder / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return folder / "t.arrow"


def _arrow_stream(table: pa.Table, folder: Path, _: Any) -> Any:
    with pa.OSFile(str(folder / "t.arrows"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return folder / "t.arrows"


def _excel(table: pa.Table, folder: Path, _: Any) -> Any:
    with xlsxwriter.Workbook(folder / "t.xlsx", {"default_date_format": "yyyy-mm-dd hh:mm"}) as book:
        sheet = book.add_worksheet("Orders")
        sheet.write_row(0, 0, table.schema.names)
        for number, record in enumerate(table.to_pylist(), 1):
            sheet.write_row(number, 0, record.values())
        book.add_worksheet("Notes")
    return f"{folder}/t.xlsx#Orders"


def _fifo(table: pa.Table, folder: Path, _: Any) -> Any:
    content = _arrow_stream(table, folder, _).read_bytes()
    fifo = str(folder / "fifo")
    os.mkfifo(fifo)

    def feed() -> None:
        with open(fifo, "wb") as pipe:
            pipe.write(content)

    threading.Thread(target=feed, daemon=True).start()
    return fifo


def _delta(table: pa.Table, folder: Path, _: Any) -> Any:
    write_deltalake(str(folder / "t"), table)
    return folder / "t"


def _delta_object(table: pa.Table, folder: Path, _: Any) -> Any:
    return DeltaTable(str(_delta(table, folder, _)))


def _iceberg_object(table: pa.Table, folder: Path, _: Any) -> Any:
    made = FolderCatalog(str(folder)).create_table(("db", "t"), table.schema)
    made.append(table)
    return made


def _iceberg(table: pa.Table, folder: Path, _: Any) -> Any:
    _iceberg_object(table, folder, _)
    return folder / "t"


def _sqlite(table: pa.Table, folder: Path, _: Any) -> Any:
    columns = "id integer PRIMARY KEY, name text, price text, weight real, paid boolean, day text, at text"
    connection = sqlite3.connect(folder / "t.db")
    with connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        rows = [
            tuple(value if value is None or isinstance(value, (int, float, str)) else str(value) for value in each)
            for each in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{folder}/t.db#t"


def _duckdb(table: pa.Table, folder: Path, _: Any) -> Any:
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("rows", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    return f"duckdb:///{folder}/t.duckdb#t"


def _adbc(table: pa.Table, folder: Path, _: Any) -> Any:
    return _duckdb(table, folder, _).replace("duckdb:///", "adbc:duckdb:")


def _postgres(table: pa.Table, folder: Path, server: Postgres) -> Any:
    name = f"t_{folder.name}"
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, price numeric(10,2), weight double precision, "
        "paid boolean, day date, at timestamp)"
    )
    for record in table.to_pylist():
        values = ["NULL" if value is None else "'" + str(value).replace("'", "''") + "'" for value in record.values()]
        server.run(f"INSERT INTO {name} VALUES ({', '.join(values)})")
    return server.table(name)


def _store(table: pa.Table, folder: Path, _: Any) -> Any:
    store = sl.create(folder / "shop")
    store.create_table("t", table, key="id")
    return store.table("t")


def _s3(table: pa.Table, folder: Path, bucket: str) -> Any:
    import obstore

    store = obstore.store.from_url(f"s3://{bucket}", client_options={"allow_http": True})
    obstore.put(store, f"{folder.name}/t.parquet", _parquet(table, folder, None).read_bytes())
    return f"s3://{bucket}/{folder.name}/t.parquet"


def _s3_delta(table: pa.Table, folder: Path, bucket: str) -> Any:
    url = f"s3://{bucket}/{folder.parent.name}/{folder.name}"
    write_deltalake(url, table.slice(0, 20), storage_options={"conditional_put": "etag"})
    write_deltalake(url, table.slice(20), mode="append", storage_options={"conditional_put": "etag"})
    return url


def _s3_iceberg(table: pa.Table, folder: Path, bucket: str) -> Any:
    url = f"s3://{bucket}/{folder.parent.name}/{folder.name}"
    names = {"endpoint": "ENDPOINT", "region": "REGION", "access-key-id": "ACCESS_KEY_ID"}
    names["secret-access-key"] = "SECRET_ACCESS_KEY"
    settings = {f"s3.{name}": os.environ[f"AWS_{variable}"] for name, variable in names.items()}
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=url, **settings)
    catalog.create_namespace("n")
    catalog.create_table("n.t", table.schema, location=url).append(table)
    return url


TEXT = ("price", "day", "at")
KINDS: dict[str, Kind] = {
    "a Parquet file": Kind(_parquet),
    "a folder": Kind(_folder),
    "a glob": Kind(_glob),
    "a list of files": Kind(_list),
    "a file:// URL": Kind(_file_url),
    "a parquet:// URL": Kind(_parquet_url),
    "CSV": Kind(_csv, said=("price",)),
    "packed CSV": Kind(_packed_csv, said=("price",)),
    "JSON lines": Kind(_json, said=TEXT),
    "a sheet of a workbook": Kind(_excel, said=("price",)),
    "an Arrow file": Kind(_arrow),
    "an Arrow stream": Kind(_arrow_stream),
    "a pipe": Kind(_fifo),
    "a Delta table": Kind(_delta),
    "a DeltaTable": Kind(_delta_object),
    "an Iceberg table": Kind(_iceberg),
    "a pyiceberg Table": Kind(_iceberg_object),
    "a table of SQLite": Kind(_sqlite, said=TEXT),
    "a table of DuckDB": Kind(_duckdb),
    "a table of another driver": Kind(_adbc),
    "a table of PostgreSQL": Kind(_postgres, needs="postgres"),
    "a table of a store": Kind(_store),
    "an object of S3": Kind(_s3, needs="bucket"),
    "a Delta table of S3": Kind(_s3_delta, needs="bucket"),
    "an Iceberg table of S3": Kind(_s3_iceberg, needs="bucket"),
    "a pyarrow table": Kind(lambda table, *_: table),
    "a record batch reader": Kind(lambda table, *_: table.to_reader()),
    "a dataset": Kind(lambda table, *_: ds.dataset(table)),
    "a Polars frame": Kind(lambda table, *_: __import__("polars").from_arrow(table)),
    "a pandas frame": Kind(lambda table, *_: table.to_pandas(types_mapper=__import__("pandas").ArrowDtype)),
    "a DuckDB relation": Kind(lambda table, *_: duckdb.from_arrow(table)),
}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3.bucket() as name:
        yield name


@dataclass(frozen=True)
class Written:
    """Both tables, written as one kind."""

    old: Any
    new: Any
    options: ReadOptions


@pytest.fixture(params=KINDS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    kind = KINDS[request.param]
    server = request.getfixturevalue(kind.needs) if kind.needs else None
    sides = {}
    for name, table in (("old", OLD), ("new", NEW)):
        (tmp_path / name).mkdir()
        sides[name] = kind.write(table, tmp_path / name, server)
    return Written(sides["old"], sides["new"], ReadOptions(types={name: TYPES[name] for name in kind.said}))


def test_the_same_rows_and_types_are_read(written: Written) -> None:
    relation = open_relation(written.new, options=written.options)
    assert dict(zip(relation.schema.names, relation.schema.types, strict=True)) == dict(
        zip(SCHEMA.names, SCHEMA.types, strict=True)
    )
    assert read_relation(relation).sort_by("id").to_pylist() == NEW.to_pylist()


def test_the_same_changes_are_found(written: Written) -> None:
    found = sl.diff(
        written.old, written.new, key="id", runner="inline", read_old=written.options, read_new=written.options
    )
    summary = found.summary()
    assert {name: getattr(summary, name) for name in CHANGES} == CHANGES
    assert [*found.header.added, *found.header.removed, *found.header.retyped] == []
    assert changes_of(found) == changes_of(sl.diff(OLD, NEW, key="id", runner="inline"))


def changes_of(found: sl.Changes) -> list[dict[str, Any]]:
    """The rows of a change set; a format may have columns in another order."""
    rows = found.to_arrow().sort_by("id").to_pylist()
    return [{**each, "_changed": sorted(each["_changed"] or ())} for each in rows]


def test_it_meets_every_other_kind(written: Written) -> None:
    """Against a table in memory, which has the types that all others are told to have."""
    found = sl.diff(OLD, written.new, key="id", runner="inline", read_new=written.options)
    assert {name: getattr(found.summary(), name) for name in CHANGES} == CHANGES
