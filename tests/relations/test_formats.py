"""How formats are told, and Arrow files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from strandline.errors import FormatError, InputError, NotFound, SchemaError
from strandline.relations import formats, merged, open_relation, read_scan, read_table
from strandline.relations.formats.files import format_of_file, said_format, sniffed_delimiter

TABLE = pa.table({"a": [1, 2, 3], "s": ["x", None, "z"]})


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_file(path: Path, table: pa.Table, **options: object) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=2)


def test_arrow_files_streams_and_feather_are_read(tmp_path: Path) -> None:
    write_file(tmp_path / "file.arrow", TABLE)
    write_stream(tmp_path / "stream.arrows", TABLE)
    feather.write_feather(TABLE, str(tmp_path / "t.feather"))
    for name in ("file.arrow", "stream.arrows", "t.feather"):
        relation = open_relation(tmp_path / name)
        assert relation.rows == 3
        assert read_table([part.scan for part in relation.parts()]).equals(TABLE)
        assert [b.num_rows for b in read_scan(relation.parts()[0].scan, ["s"], 1)] == [1, 1, 1]


def test_arrow_files_are_one_relation_by_value(tmp_path: Path) -> None:
    write_file(tmp_path / "a.arrow", TABLE)
    write_file(tmp_path / "b.arrow", TABLE.set_column(1, "s", TABLE["s"].dictionary_encode()))
    assert read_table([p.scan for p in open_relation(tmp_path).parts()]).equals(pa.concat_tables([TABLE, TABLE]))


def test_truncated_arrow_files_are_format_errors(tmp_path: Path) -> None:
    for name, write in (("t.arrow", write_file), ("t.arrows", write_stream)):
        write(tmp_path / name, TABLE)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(FormatError, match="readable Arrow file"):
            open_relation(tmp_path / name)
    (tmp_path / "empty.arrow").touch()
    with pytest.raises(FormatError):
        open_relation(tmp_path / "empty.arrow")


def test_duplicated_arrow_names_are_an_error(tmp_path: Path) -> None:
    write_file(tmp_path / "t.arrow", pa.table([pa.array([1]), pa.array([1])], names=["a", "a"]))
    with pytest.raises(SchemaError, match="more than once"):
        open_relation(tmp_path / "t.arrow")


def test_content_with_a_mark_beats_the_name(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "t.csv")
    write_file(tmp_path / "u.parquet", TABLE)
    write_stream(tmp_path / "v", TABLE)
    assert [format_of_file(str(tmp_path / name)) for name in ("t.csv", "u.parquet", "v")] == [
        "parquet",
        "arrow",
        "arrow",
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.csv", "a", "csv"),
        ("x.TSV.GZ", "a", "csv"),
        ("x.ndjson", "", "json"),
        ("x", '\n {"a": 1}', "json"),
        ("x.dat", "a;b\n1;2\n", "csv"),
        ("x.json", '{"a": 1}', "json"),
    ],
)
def test_text_is_told_by_name_else_by_its_first_line(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    assert format_of_file(str(tmp_path / name)) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"just words\n", "neither its name nor its content"),
        (b"\x00\x01\x02,", "neither its name nor its content"),
        (b"PK\x03\x04..", "zip file"),
        (b"FEA1....", "Feather format 1"),
    ],
)
def test_unknown_content_is_a_format_error(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(FormatError, match=said):
        open_relation(tmp_path / "x")


def test_a_format_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\n1\n")
    assert open_relation(tmp_path / "x", format="csv").schema == pa.schema([("a", pa.int64())])
    with pytest.raises(FormatError, match="readable Parquet file"):
        open_relation(tmp_path / "x", format="parquet")
    with pytest.raises(InputError, match=r"unknown format 'wks'.*parquet, csv"):
        open_relation(tmp_path / "x", format="wks")
    assert said_format("JSONL") == "json"


def test_a_folder_of_two_formats_is_an_error(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("a\n1\n")
    with pytest.raises(FormatError, match=r"mixes formats: .*a\.parquet is parquet and .*b\.csv is csv"):
        open_relation(tmp_path)


def test_a_delimiter_inside_quotes_does_not_count() -> None:
    assert sniffed_delimiter('"a;b;c",d') == ","
    assert sniffed_delimiter("plain") == ","


def written(path: Path, table: pa.Table) -> None:
    """The table in the format of the suffix, in small pieces, over what is there."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2_000, use_dictionary=False, compression="none")
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2_000)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
@pytest.mark.parametrize("how", ["over", "shorter", "renamed", "gone"])
def test_a_file_that_changes_while_it_is_read_gives_one_state_or_an_error(
    tmp_path: Path, suffix: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / f"t.{suffix}", tmp_path / f"other.{suffix}"
    old = pa.table({"id": range(10_000), "v": [1] * 10_000})
    new = old.set_column(1, "v", pa.array([2] * 10_000))
    written(path, old)
    written(other, new if how != "shorter" else new.slice(0, 10))

    def change() -> None:
        if how == "gone":
            path.unlink()
        elif how == "renamed":
            other.replace(path)
        else:
            path.write_bytes(other.read_bytes())
            os.utime(path, (0, 0))  # times are told by the tick: two states may have one

    monkeypatch.setattr(formats.json, "_CHUNK", 1 << 14)
    monkeypatch.setattr(formats.csv, "_BLOCK", 1 << 14)
    if suffix == "csv":  # is read once, when it is opened
        whole = formats.csv._without_last_row

        def rows(batches: Iterable[pa.RecordBatch], layout: Any) -> Iterator[pa.RecordBatch]:
            for place, batch in enumerate(whole(batches, layout)):
                if place == 1:
                    change()
                yield batch

        monkeypatch.setattr(formats.csv, "_without_last_row", rows)
    said = ""
    values: set[int] = set()
    try:
        scans = [part.scan for part in open_relation(path).parts()]
        for number, batch in enumerate(batch for scan in merged(scans) for batch in read_scan(scan, ["v"], 1_000)):
            if number == 1 and suffix != "csv":
                change()
            values |= set(batch.column("v").to_pylist())
    except (FormatError, NotFound) as error:
        said = str(error)
    assert f"t.{suffix}" in said or (how == "gone" and values == {1})
