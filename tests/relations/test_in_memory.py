"""Tables in memory, and their way through the spool."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import strandline as sl
from strandline.engine import Spool
from strandline.errors import SchemaError
from strandline.relations import Bounds, ReadOptions, Scan, cut_ranges, open_relation, read_table
from strandline.relations.formats import spooled

TABLE = pa.table({"id": [1, 2, 3], "s": pa.array(["a", None, "c"]).dictionary_encode(), "l": [[1], [], None]})


class Stream:
    """Something that speaks Arrow's C stream interface and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "source",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Stream(TABLE),
        TABLE.set_column(1, "s", pa.array(["a", None, "c"], pa.string_view())),
        TABLE.set_column(1, "s", pa.DictionaryArray.from_arrays([0, None, 1], pa.array(["a", "c"], pa.string_view()))),
        TABLE.set_column(
            1, "s", pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array(["a", None, "c"], pa.string_view()))
        ),
    ],
)
def test_arrow_tables_batches_and_streams_are_relations(source: Any) -> None:
    relation = open_relation(source)
    assert relation.schema.field("s").type == pa.string()
    scans = [Scan.from_json(part.scan.to_json()) for part in relation.parts()]
    assert read_table(scans).to_pylist() == TABLE.to_pylist()
    assert relation.rows == 3
    assert relation.bytes > 0


def test_pandas_frames_keep_a_named_index_and_drop_a_nameless_one() -> None:
    frame = pd.DataFrame({"v": [1.5, 2.5]}, index=pd.Index(["a", "b"], name="k"))
    relation = open_relation(frame)
    assert read_table([part.scan for part in relation.parts()]).to_pylist() == [
        {"k": "a", "v": 1.5},
        {"k": "b", "v": 2.5},
    ]
    nameless = pd.DataFrame({"v": [1.5, 2.5, 3.5]}).iloc[1:]
    assert open_relation(nameless).schema.names == ["v"]
    assert open_relation(nameless).name == "a pandas DataFrame"


def test_pandas_frames_with_mixed_or_doubled_columns_are_errors() -> None:
    with pytest.raises(SchemaError, match=r"does not become an Arrow table: .*Could not convert 'x'"):
        open_relation(pd.DataFrame({"v": [1, "x"]}))
    with pytest.raises(SchemaError, match="more than once"):
        open_relation(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(SchemaError, match="no columns"):
        open_relation(pd.DataFrame())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (lambda: pd.DataFrame({"v": pd.arrays.SparseArray([0, 1])}), "Sparse pandas data"),
        (lambda: pd.DataFrame({"v": [1]}).rename_axis("v"), "cannot insert v, already exists"),
        (lambda: pd.DataFrame({"v": ["\ud800"]}), "surrogates not allowed"),
        (lambda: pl.DataFrame({"v": [2**70]}, schema={"v": pl.Int128}), "unsupported format string"),
    ],
)
def test_frames_that_arrow_has_no_table_for_are_errors_in_words(frame: Callable[[], Any], why: str) -> None:
    with pytest.raises(SchemaError, match=f"a (pandas|polars) DataFrame: it does not become an Arrow table: .*{why}"):
        open_relation(frame())


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "c"]), pl.List(pl.Categorical)])
def test_categories_of_polars_are_texts(kind: Any) -> None:
    texts: list[Any] = ["a", None, "c"] if kind != pl.List(pl.Categorical) else [["a"], None, ["c", None]]
    relation = open_relation(pl.DataFrame({"s": texts}, schema={"s": kind}))
    assert read_table([part.scan for part in relation.parts()]).column("s").to_pylist() == texts
    assert relation.schema.field("s").type in (
        pa.string(),
        pa.list_(pa.string()),
        pa.large_string(),
        pa.large_list(pa.string()),
    )


def test_a_duckdb_relation_is_a_stream() -> None:
    relation = open_relation(duckdb.sql("SELECT range AS id FROM range(300000)"))
    assert relation.rows == 300_000
    assert next(part.rows for part in relation.parts()) <= spooled.PART_ROWS


def test_rows_live_in_the_spool_as_long_as_the_relation(tmp_path: Path) -> None:
    with Spool(str(tmp_path)) as spool:
        relation = open_relation(TABLE, spool=spool)
        path = relation.parts()[0].scan.path
        assert path.startswith(spool.path)
    assert not os.path.exists(path)
    own = open_relation(TABLE)
    path = own.parts()[0].scan.path
    assert os.path.exists(path)
    del own
    assert not os.path.exists(path)


def test_types_are_given_and_checked() -> None:
    typed = open_relation(TABLE, options=ReadOptions(types={"id": "decimal(5,1)"}))
    assert read_table([typed.parts()[0].scan])["id"].to_pylist()[0] == Decimal("1.0")
    with pytest.raises(SchemaError, match="can't be read as int64"):
        open_relation(pa.table({"s": ["a"]}), options=ReadOptions(types={"s": "int64"}))


def test_parts_have_bounds_for_the_columns_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled, "PART_ROWS", 10)
    nan = float("nan")
    table = pa.table(
        {
            "id": list(range(40)),
            "x": [nan, None, *map(float, range(38))],
            "at": pa.array(range(1, 41), pa.timestamp("ns")),
            "none": pa.nulls(40, pa.int32()),
            "nan": [nan] * 40,
            "l": [[1]] * 40,
        }
    )
    relation = open_relation(table)
    parts = relation.parts(table.column_names)
    assert [part.rows for part in parts] == [10, 10, 10, 10]
    bounds = parts[0].bounds
    assert bounds["id"] == Bounds(0, 9, 0)
    assert bounds["x"] == Bounds(0.0, 7.0, 1)
    assert bounds["at"] == Bounds(dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1), 0)
    assert bounds["none"] == Bounds(None, None, 10)
    assert bounds["nan"] == bounds["l"] == Bounds(None, None, 0)
    assert relation.parts()[0].bounds == {}
    assert len(cut_ranges(parts, parts, ["id"], 2)) == 2


def test_an_empty_table_has_its_schema_and_no_parts() -> None:
    relation = open_relation(TABLE.slice(0, 0))
    assert (relation.rows, relation.parts()) == (0, [])
    assert relation.schema.names == TABLE.column_names


def test_a_name_that_a_stream_would_cut_is_refused() -> None:
    for source in (pa.table({"a\0b": [1]}), pa.table({"a\0b": [1], "a\0c": [2]}).to_batches()[0]):
        with pytest.raises(SchemaError, match="holds a NUL"):
            open_relation(source)


@pytest.mark.parametrize("scale", [-2, -30])
def test_decimals_of_negative_scale_are_whole_numbers(tmp_path: Path, scale: int) -> None:
    values = [Decimal(123).scaleb(-scale), None, Decimal(5).scaleb(-scale)]
    kind = pa.decimal128(5, scale)
    lists = pa.array([[value] for value in values], pa.list_(kind))
    table = pa.table({"v": pa.array(values, kind), "l": lists})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    for source in (table, tmp_path / "t.arrow"):
        relation = open_relation(source)
        assert relation.schema.field("v").type.scale == 0
        rows = read_table([part.scan for part in relation.parts()]).to_pylist()
        assert rows == [{"v": value, "l": [value]} for value in values]
    assert sl.diff(table, plain_copy(table), runner="inline").summary().unchanged == 3


def plain_copy(table: pa.Table) -> pa.Table:
    """The same values, as their Python objects give them."""
    return pa.table({"v": table.column("v").to_pylist(), "l": table.column("l").to_pylist()})
