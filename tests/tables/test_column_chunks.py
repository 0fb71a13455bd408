"""Pages with other values in some columns: the rest of the file is copied, and every reader finds what was meant."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.random_tables import columns, tables
from tests.tables.shop import shop

from strandline.errors import SchemaError
from strandline.tables import page, row_locks
from strandline.tables.column_chunks import with_columns
from strandline.tables.page import decode_page, encode_page, replace_columns
from strandline.tables.schema import ROW, new_table_schema, widened
from strandline.values import no_rows


@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck), phases=[Phase.generate], deadline=None)
@given(st.data())
def test_columns_of_every_type_are_replaced_in_files_of_any_row_groups(data: st.DataObject) -> None:
    shape = data.draw(columns("c", 1, 3))
    schema = new_table_schema(no_rows(data.draw(tables(shape, 0)).schema).schema)
    old = data.draw(tables(shape, 9))
    new = data.draw(tables(shape, 9))
    count = min(len(old), len(new))
    chosen = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "SMALL_PAGE", data.draw(st.sampled_from([0, 4, 100])))
        patch.setattr(page, "GROUP_ROWS", data.draw(st.sampled_from([1, 2, 100])))
        before, values = (_numbered(table.slice(0, count), schema.row_schema) for table in (old, new))
        made = replace_columns(encode_page(before, schema), values.select(chosen), schema)
        assert made is not None
        found = decode_page(made, schema)
        want = decode_page(encode_page(before, schema), schema)
        for name in chosen:
            place = want.column_names.index(name)
            want = want.set_column(
                place, want.schema.field(name), values.column(name).cast(want.schema.field(name).type)
            )
    assert repr(found.to_pydict()) == repr(want.to_pydict())
    assert found.schema.equals(want.schema)
    facts = pq.ParquetFile(pa.BufferReader(made)).metadata
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    for group in groups:
        parts = [group.column(number) for number in range(group.num_columns)]
        assert group.total_byte_size == sum(part.total_uncompressed_size for part in parts)


def _numbered(table: pa.Table, schema: pa.Schema) -> pa.Table:
    from strandline.values import cast_rows

    rows = cast_rows(table, pa.schema(list(schema)[1:]))
    return pa.Table.from_arrays([pa.array(np.arange(len(table)) * 3), *rows.columns], schema=schema)


def test_duckdb_reads_a_page_with_a_column_replaced(tmp_path: Path) -> None:
    count = 10_000
    columns = {"id": np.arange(count), "v": np.arange(count) % 5, "s": [f"row {n}" for n in range(count)]}
    table = pa.table({ROW: np.arange(count), **columns})
    schema = new_table_schema(table.drop_columns([ROW]).schema, ("id",))
    old = encode_page(table, schema)
    new = replace_columns(old, pa.table({"v": np.arange(count) * 7}), schema)
    assert new is not None
    (tmp_path / "page.parquet").write_bytes(new)
    found = duckdb.execute("SELECT sum(v), min(s), count(DISTINCT id) FROM read_parquet(?)", [str(tmp_path / "*")])
    assert found.fetchall() == [(7 * count * (count - 1) // 2, "row 0", count)]
    assert _chunk(old, "s") == _chunk(new, "s")


def _chunk(data: bytes, name: str) -> bytes:
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    (found,) = (one for n in range(group.num_columns) if (one := group.column(n)).path_in_schema == name)
    start = found.dictionary_page_offset or found.data_page_offset
    return data[start : start + found.total_compressed_size]


def test_files_that_do_not_fit_each_other_are_left_alone() -> None:
    schema = new_table_schema(pa.schema([("id", pa.int32())]), ("id",))
    table = pa.table({ROW: [1, 2], "id": pa.array([3, 4], pa.int32())})
    data = encode_page(table, schema)
    assert replace_columns(data, pa.table({"id": pa.array([5, 6])}), widened(schema, "id", pa.int64())) is None
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_index=True)
    assert with_columns(data, sink.getvalue().to_pybytes()) is None
    assert with_columns(data, encode_page(table.slice(1), schema)) is None


def test_an_update_of_many_rows_touches_the_columns_it_sets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_locks, "MANY_ROWS", 10)
    monkeypatch.setattr(page, "SMALL_PAGE", 100)
    monkeypatch.setattr(page, "GROUP_ROWS", 300)
    count = 1000
    rows = pa.table(
        {"id": np.arange(count), "v": np.arange(count), "t": [f"{n}" for n in range(count)], "n": [1] * count}
    )
    with shop() as store:
        table = store.create_table("t", rows, key="id", not_null=["n"])
        assert table.update(where="id % 2 = 0", set={"v": "v + n", "t": "t || '!'"}) == count // 2
        assert table.update(set={"v": "v * 10"}, values={"n": 3}) == count
        with pytest.raises(SchemaError, match=r"'n' must not be null: \(id=7\)"):
            table.update(set={"n": "CASE WHEN id <> 7 THEN 1 END"})
        store.cache.clear()
        found = table.to_arrow().to_pylist()
        even = [n % 2 == 0 for n in range(count)]
        assert [row["v"] for row in found] == [(n + even[n]) * 10 for n in range(count)]
        assert [row["t"] for row in found] == [f"{n}{'!' * even[n]}" for n in range(count)]
        assert {row["n"] for row in found} == {3}
