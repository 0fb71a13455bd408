"""CSV and JSON lines: cutting, types over the whole file, and lines that are wrong."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.errors import FormatError, InputError, SchemaError
from strandline.relations import ReadOptions, Scan, open_relation, read_relation, read_scan, read_table
from strandline.relations.formats import csv, json
from strandline.values.text import TextGuess


def opened(path: Path, text: str | bytes, **options: Any) -> pa.Table:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    relation = open_relation(path, options=ReadOptions(**options))
    parts = relation.parts()
    table = read_relation(relation)
    if parts:
        again = read_table([Scan.from_json(part.scan.to_json()) for part in parts])
        assert str(again.to_pylist()) == str(table.to_pylist())
    assert table.schema == relation.schema
    assert table.num_rows == relation.rows == sum(part.rows for part in parts)
    return table


def types(table: pa.Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


def test_csv_types_are_recognised(tmp_path: Path) -> None:
    table = opened(
        tmp_path / "t.csv",
        "id,code,price,day,at,zoned,yes,words,none\n"
        "1,00123,1.50,2024-01-31,2024-01-31 10:00:00,2024-01-31T10:00:00Z,true,hello,\n"
        '-2,00007,-3,2024-02-01,2024-01-31T10:00:00.123456,2024-01-31 10:00:00+02:00,FALSE,"a,b",\n'
        ",,,,,,,,\n",
    )
    assert types(table) == {
        "id": "int64",
        "code": "string",
        "price": "double",
        "day": "date32[day]",
        "at": "timestamp[us]",
        "zoned": "timestamp[us, tz=UTC]",
        "yes": "bool",
        "words": "string",
        "none": "string",
    }
    first, second, third = table.to_pylist()
    assert first["code"] == "00123"
    assert second["zoned"] == dt.datetime(2024, 1, 31, 8, tzinfo=dt.UTC)
    assert second["words"] == "a,b"
    assert third == {**dict.fromkeys(first), "code": "", "words": "", "none": ""}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2.5"], "double"),
        (["1", "x"], "string"),
        (["9223372036854775807"], "int64"),
        (["9223372036854775808"], "string"),
        (["12345678901234567", "1.5"], "string"),
        (["0.30000000000000004"], "double"),
        (["0.123456789012345678901"], "string"),
        (["1e5", "NaN", "-inf"], "double"),
        (["+1"], "string"),
        (["-0"], "double"),
        (["00"], "string"),
        (["0.5", "00.5"], "string"),
        (["true", "1"], "string"),
        (["2024-02-30"], "string"),
        (["2024-01-01", "2024-01-01 10:00"], "timestamp[us]"),
        (["2024-01-01 10:00:00.123456789"], "timestamp[ns]"),
        (["2024-01-01 10:00:00Z", "2024-01-01 10:00:00"], "string"),
        ([" 1"], "string"),
        (["", ""], "string"),
        (["1", "", "2.5", "true"], "string"),
        (["1", "00"], "string"),
        (["1.5", "1e400"], "string"),
        (["1.5", "1e-400"], "string"),
        (["0.0", "0e5", "-0", "-Infinity"], "double"),
        (["1234567890123456", "x"], "string"),
        (["2024-01-01", "2024-01-01 00:00:00.123456789"], "timestamp[ns]"),
        (["1500-01-01", "2024-01-01 00:00:00.123456789"], "string"),
        (["2024-01-01T00:00Z", "2024-01-01 00:00:00.123456789+01:00"], "timestamp[ns, tz=UTC]"),
    ],
)
def test_a_csv_column_takes_the_first_type_that_loses_nothing(tmp_path: Path, values: list[str], expected: str) -> None:
    table = opened(tmp_path / "t.csv", "v,w\n" + "".join(f"{value},x\n" for value in values))
    assert types(table)["v"] == expected


@pytest.mark.parametrize("block", [1 << 24, 40])
@pytest.mark.parametrize(
    ("early", "late", "expected"),
    [
        ("1", "2.5", "double"),
        ("123456789012345678", "2.5", "string"),
        ("2024-01-01", "2024-01-01 00:00:00", "timestamp[us]"),
        ("1500-01-01", "2024-01-01 00:00:00.123456789", "string"),
        ("2.5", "1", "double"),
        ("true", "1", "string"),
        ("1", "2024-01-01", "string"),
    ],
)
def test_a_late_value_widens_a_type_only_if_early_ones_keep_their_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, early: str, late: str, expected: str
) -> None:
    guess = TextGuess()
    for value in [early] * 3 + [late]:
        guess.narrow(pa.array([value]))
    assert str(guess.type) == expected
    monkeypatch.setattr(csv, "_BLOCK", block)
    assert types(opened(tmp_path / "t.csv", "v\n" + f"{early}\n" * 9 + f"{late}\n"))["v"] == expected


def test_csv_types_are_guessed_over_the_whole_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_BLOCK", 64)
    (tmp_path / "a.csv").write_text("v,w\n" + "1,1\n" * 100)
    (tmp_path / "b.csv").write_text("w,v\n" + "2,1\n" * 100 + "3,late\n")
    relation = open_relation(tmp_path)
    assert relation.schema == pa.schema([("v", pa.string()), ("w", pa.int64())])
    table = read_table([part.scan for part in relation.parts()])
    assert table["w"].to_pylist() == [1] * 100 + [2] * 100 + [3]
    assert table["v"].to_pylist()[-1] == "late"


def test_csv_types_can_be_given(tmp_path: Path) -> None:
    given = {
        "id": "string",
        "price": "decimal(10,2)",
        "at": "timestamp[us, tz=Europe/Berlin]",
        "t": "time",
        "n": pa.int16(),
    }
    table = opened(
        tmp_path / "t.csv",
        "id,price,at,t,n\n1,1.5,2024-07-01 12:00:00,10:11:12.5,007\n2,,2024-07-01 12:00:00Z,,\n",
        types=given,
    )
    first, second = table.to_pylist()
    assert (first["id"], first["price"], first["t"], first["n"]) == (
        "1",
        Decimal("1.50"),
        dt.time(10, 11, 12, 500000),
        7,
    )
    assert first["at"].astimezone(dt.UTC).hour == 10
    assert second["at"].astimezone(dt.UTC).hour == 12
    assert second["price"] is None


def test_a_value_that_does_not_fit_its_given_type_is_named_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"'n' can't be read as int16: 'x' in row 3"):
        opened(tmp_path / "t.csv", "n,m\n1,1\n2,1\nx,1\n", types={"n": "int16"})


def test_csv_without_header_gets_names(tmp_path: Path) -> None:
    assert opened(tmp_path / "t.csv", "1,a\n2,b\n", header=False).to_pylist()[0] == {"column1": 1, "column2": "a"}
    named = opened(tmp_path / "u.csv", "1,a\n2,b\n", header=False, names=("id", "x"))
    assert named.to_pylist() == [{"id": 1, "x": "a"}, {"id": 2, "x": "b"}]
    renamed = opened(tmp_path / "v.csv", "p,q\n1,a\n", names=("id", "x"))
    assert renamed.to_pylist() == [{"id": 1, "x": "a"}]
    with pytest.raises(FormatError, match="2 columns in its first line, 3 names were given"):
        opened(tmp_path / "w.csv", "1,a\n", header=False, names=("a", "b", "c"))


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_delimiter_is_told_by_the_first_line(tmp_path: Path, mark: str) -> None:
    assert opened(tmp_path / "t.csv", f'"a,b"{mark}c\n1{mark}2\n').to_pylist() == [{"a,b": 1, "c": 2}]


def test_delimiter_quote_and_nulls_can_be_said(tmp_path: Path) -> None:
    text = "a:b\n'x:y':NULL\n:3\n'NULL':4\n"
    table = opened(tmp_path / "t.csv", text, delimiter=":", quote="'", nulls=("NULL",))
    assert table.to_pylist() == [{"a": "x:y", "b": None}, {"a": "", "b": 3}, {"a": "NULL", "b": 4}]
    with pytest.raises(InputError, match="not one character"):
        ReadOptions(delimiter="::")


def test_quoted_fields_keep_newlines_quotes_and_delimiters(tmp_path: Path) -> None:
    table = opened(tmp_path / "t.csv", '"new\nline","b"\n"x\ny","say ""hi"", you"\n')
    assert table.to_pylist() == [{"new\nline": "x\ny", "b": 'say "hi", you'}]


def test_a_byte_order_mark_crlf_and_packed_files_are_read(tmp_path: Path) -> None:
    assert opened(tmp_path / "t.csv", b"\xef\xbb\xbfa,b\r\n1,2\r\n").to_pylist() == [{"a": 1, "b": 2}]
    assert opened(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,2\n")).to_pylist() == [{"a": 1, "b": 2}]
    assert opened(tmp_path / "u.csv", gzip.compress(b"a,b\n1,2\n")).to_pylist() == [{"a": 1, "b": 2}]
    assert opened(tmp_path / "t.jsonl.gz", gzip.compress(b'{"a":1}\n')).to_pylist() == [{"a": 1}]


def test_an_empty_line_is_a_row_only_in_a_file_of_one_column(tmp_path: Path) -> None:
    assert opened(tmp_path / "t.csv", "a\n1\n\n3\n")["a"].to_pylist() == [1, None, 3]
    assert opened(tmp_path / "u.csv", "a,b\n1,2\n\n3,4\n")["a"].to_pylist() == [1, 3]


def test_a_header_alone_is_a_relation_without_rows(tmp_path: Path) -> None:
    table = opened(tmp_path / "t.csv", "a,b\n")
    assert (table.num_rows, types(table)) == (0, {"a": "string", "b": "string"})
    with pytest.raises(FormatError, match="empty: not even a header"):
        opened(tmp_path / "u.csv", "")


@pytest.mark.parametrize("text", ["a,b", "a,b\n1,22", "a,b\n1,22\n", "a,b\n1,2222222\n3,4"])
@pytest.mark.parametrize("block", [8, 9, 10, 11, 12, 16])
def test_a_csv_file_may_end_anywhere_in_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, block: int
) -> None:
    monkeypatch.setattr(csv, "_BLOCK", block if "22222" not in text else block + 8)
    lines = text.split("\n")[1:]
    assert opened(tmp_path / "t.csv", text).num_rows == len([line for line in lines if line])


@pytest.mark.parametrize(("row", "fields"), [("3", 1), ("4,5,6", 3)])
def test_a_ragged_csv_row_is_named_by_its_line(tmp_path: Path, row: str, fields: int) -> None:
    with pytest.raises(FormatError, match=f"line 4 has {fields} fields, 2 were expected"):
        opened(tmp_path / "t.csv", f"a,b\n1,2\n\n{row}\n7,8\n")


@pytest.mark.parametrize("rows", ['1,"a\n2,b\n3,c\n', '1,a\n2,"b', '1,a\n2,"', '1,a\n2,"b"",c\n', '1,a\r\n2,"\r\n'])
@pytest.mark.parametrize("packed", [False, True])
def test_a_quote_that_is_never_closed_swallows_no_rows(tmp_path: Path, rows: str, packed: bool) -> None:
    text = f"id,name\n{rows}".encode()
    line = 1 + rows[: rows.index('"')].count("\n") + 1
    with pytest.raises(FormatError, match=f"a quote that is opened in the row of line {line} is never closed"):
        opened(tmp_path / "t.csv", gzip.compress(text) if packed else text)


def test_a_quote_is_never_closed_in_a_header_or_a_file_of_one_column(tmp_path: Path) -> None:
    for text in ('id,"name\n1,a\n', '"id\n1\n', 'id\n1\n"2\n\n', 'id\n"'):
        with pytest.raises(FormatError, match="never closed"):
            opened(tmp_path / "t.csv", text)
    with pytest.raises(FormatError, match="line 2 is never closed"):
        opened(tmp_path / "t.csv", 'id,name\n1,"é\n2,b\n'.encode("utf-16"), encoding="utf-16")


def test_text_of_another_encoding_than_is_said_is_told(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-32", "ascii"):
        with pytest.raises(FormatError, match="not a whole, readable CSV file") as caught:
            opened(tmp_path / "t.csv", "id,name\n1,é\n", encoding=encoding)
        assert "--encoding" in str(caught.value)
    for none in ("rot13", "base64", "nope"):
        with pytest.raises(InputError, match=f"the encoding '{none}' is not known"):
            opened(tmp_path / "t.csv", "id,name\n1,a\n", encoding=none)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("last", ['1,""', "1,", ",", '1,"a\n"', '1,a"b', "1,x"])
def test_the_last_row_of_a_csv_file_may_end_in_any_way(tmp_path: Path, last: str, end: str) -> None:
    table = opened(tmp_path / "t.csv", f"id,name\n0,o\n{last}{end}")
    assert table.num_rows == 2
    assert opened(tmp_path / "t.csv", f"id\n0\n{end}").num_rows == 1 + max(0, end.count("\n"))


def test_duplicated_csv_names_and_other_bytes_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="'a' is there more than once"):
        opened(tmp_path / "t.csv", "a,a\n1,2\n")
    with pytest.raises(FormatError, match=r"u\.csv"):
        opened(tmp_path / "u.csv", b"a,b\n1,\xff\xfe\n")


def test_csv_files_with_other_columns_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a,c\n1,2\n")
    with pytest.raises(SchemaError, match=r"b\.csv lacks 'b', also has 'c'"):
        open_relation(tmp_path)
    relation = open_relation(tmp_path, options=ReadOptions(union_by_name=True))
    assert read_table([part.scan for part in relation.parts()]).to_pylist() == [
        {"a": 1, "b": 2, "c": None},
        {"a": 1, "b": None, "c": 2},
    ]


def test_columns_of_text_files_are_chosen_and_batches_bounded(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 10)
    (tmp_path / "t.jsonl").write_text('{"a":1,"b":2}\n' * 10)
    for name in ("t.csv", "t.jsonl"):
        scan = open_relation(tmp_path / name).parts()[0].scan
        batches = list(read_scan(scan, ["b"], 4))
        assert [batch.num_rows for batch in batches] == [4, 4, 2]
        assert batches[0].schema == pa.schema([("b", pa.int64())])
        assert sum(batch.num_rows for batch in read_scan(scan, [])) == 10
        with pytest.raises(SchemaError, match="no column 'c'"):
            list(read_scan(scan, ["c"]))


def test_json_lines_keep_their_own_types(tmp_path: Path) -> None:
    text = '{"a":1,"b":"2024-01-01","c":[{"d":1.5,"e":"2024-01-01"}],"n":null}\n\n{"a":2,"b":"x","f":true}\n'
    table = opened(tmp_path / "t.jsonl", text)
    assert types(table) == {
        "a": "int64",
        "b": "string",
        "c": "list<item: struct<d: double, e: string>>",
        "n": "string",
        "f": "bool",
    }
    assert table.to_pylist()[1] == {"a": 2, "b": "x", "c": None, "n": None, "f": True}


def test_json_types_are_found_over_all_lines_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "_CHUNK", 16)
    (tmp_path / "a.jsonl").write_text('{"v":1}\n' * 20 + '{"v":2.5}\n{"w":{"x":1}}\n')
    (tmp_path / "b.jsonl").write_text('{"w":{"y":"z"},"v":null}\n')
    relation = open_relation(tmp_path)
    assert str(relation.schema.field("w").type) == "struct<x: int64, y: string>"
    rows = read_table([part.scan for part in relation.parts()]).to_pylist()
    assert rows[0]["v"] == 1.0
    assert rows[-1] == {"v": None, "w": {"x": None, "y": "z"}}


def test_json_types_can_be_given(tmp_path: Path) -> None:
    table = opened(
        tmp_path / "t.jsonl",
        '{"p":12345678901234567890.12,"q":"1.10","d":"2024-01-31","t":"2024-01-31T10:00:00Z","n":1}\n',
        types={"p": "decimal(30,2)", "q": "decimal(5,2)", "d": "date", "t": "timestamp[us, tz=UTC]", "n": "int8"},
    )
    assert table.to_pylist() == [
        {
            "p": Decimal("12345678901234567890.12"),
            "q": Decimal("1.10"),
            "d": dt.date(2024, 1, 31),
            "t": dt.datetime(2024, 1, 31, 10, tzinfo=dt.UTC),
            "n": 1,
        }
    ]


@pytest.mark.parametrize("chunk", [16, 1 << 20])
@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, 2**64 - 1, 12345678901234567891, -(2**63) - 1])
@pytest.mark.parametrize("shape", ['{"v":%s}', '{"v":[{"w":%s}]}'])
def test_no_whole_number_of_json_becomes_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, number: int, shape: str
) -> None:
    monkeypatch.setattr(json, "_CHUNK", chunk)
    text = "\ufeff" + "".join(shape % value + "\n" for value in (1, 2, number, 3, 1.5))
    with pytest.raises(FormatError, match=f"line 3: 'v' holds {number}, which a float would change"):
        opened(tmp_path / "t.jsonl", text)
    relation = open_relation(tmp_path / "t.jsonl")
    assert relation.rows == 5, "who leaves the column out reads the rest"


@pytest.mark.parametrize(
    "number", ["123456789012345680000", "1180591620717411303424", "1180591620717411300000", "1e300"]
)
def test_whole_numbers_as_a_computer_writes_its_floats_are_floats(tmp_path: Path, number: str) -> None:
    table = opened(tmp_path / "t.jsonl", f'{{"v":{number}}}\n{{"v":0.5}}\n')
    assert table.column("v").to_pylist() == [float(number), 0.5]


def test_unsigned_integers_of_json_keep_their_digits(tmp_path: Path) -> None:
    held = [2**64 - 1, 2**63, 2**63 - 1, 2**53 + 1, 0, None]
    text = "".join(f'{{"u":{"null" if value is None else value}}}\n' for value in held)
    assert opened(tmp_path / "t.jsonl", text, types={"u": "uint64"}).column("u").to_pylist() == held
    with pytest.raises(SchemaError, match="uint64"):
        opened(tmp_path / "t.jsonl", '{"u":-1}\n', types={"u": "uint64"})


@pytest.mark.parametrize("text", [b"null", b"null\n", b"\xef\xbb\xbfnull\n", b"\n \nnull\n", b"null\nnull\r\n"])
def test_a_file_of_nothing_but_null_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(FormatError, match="holds no object"):
        opened(tmp_path / "t.jsonl", text)


def test_json_that_is_not_utf_8_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="line 2 is not UTF-8"):
        opened(tmp_path / "t.jsonl", b'{"a":"\xc3\xa9"}\n{"a":"\xe9"}\n')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a":tru}', "line 4 is not JSON"),
        ('{"a":1', "line 4 is not JSON"),
        ("[1]", "line 4 holds no object"),
        ("null", "line 4 holds no object"),
        (" \tnull ", "line 4 holds no object"),
        ("nul", "line 4 is not JSON"),
        ('{"a":"x"}', "line 4: Column"),
        ('{"a":1,"a":2}', "line 4: Column"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        opened(tmp_path / "t.jsonl", f'{{"a":1}}\n\n{{"a":2}}\n{line}\n')


@pytest.mark.parametrize("value", ["[" * 300_000 + "]" * 300_000, '[{"a":' * 30 + "1" + "}]" * 30, "[" * 41 + "]" * 41])
def test_json_that_is_too_deep_is_named_by_its_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(FormatError, match="line 2 holds values inside each other, more than 40 deep"):
        opened(tmp_path / "t.jsonl", '{"v":null}\n{"v":' + value + "}\n")


def test_json_may_be_forty_deep_and_brackets_in_texts_are_no_depth(tmp_path: Path) -> None:
    deep = "[" * 39 + "1" + "]" * 39
    table = opened(tmp_path / "t.jsonl", f'{{"v":{deep},"w":"{"[{" * 50}\\"["}}\n' * 3)
    assert table["w"].to_pylist() == ["[{" * 50 + '"['] * 3
    assert str(table["v"].to_pylist()[2]) == deep


def test_a_json_array_or_an_empty_json_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="one JSON array"):
        opened(tmp_path / "t.json", '[{"a":1}]')
    with pytest.raises(SchemaError, match="no columns"):
        opened(tmp_path / "u.jsonl", "")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("blank", range(3))
def test_blank_lines_above_the_header_are_no_header(tmp_path: Path, blank: int, end: str) -> None:
    texts = {
        "id;v\n1;a\n\n2;b\n": [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}],
        'id,"v\nw"\n1,2\n': [{"id": 1, f"v{end}w": 2}],
        "id\n1\n\n2\n": [{"id": 1}, {"id": None}, {"id": 2}],
    }
    for text, rows in texts.items():
        (tmp_path / "t.csv").write_bytes((blank * "\n" + text).replace("\n", end).encode())
        assert read_relation(open_relation(tmp_path / "t.csv")).to_pylist() == rows
    (tmp_path / "nameless").write_bytes(blank * end.encode() + b"1,2" + end.encode())
    plain = open_relation(tmp_path / "nameless", options=ReadOptions(header=False))
    assert read_relation(plain).to_pylist() == [{"column1": 1, "column2": 2}]
