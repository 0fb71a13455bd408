"""Scans: plain JSON, joined where they are neighbours."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.relations import Scan, merged, open_relation, read_relation, read_table
from strandline.relations.formats import json as json_format

SCHEMA = pa.schema([("a", pa.list_(pa.decimal128(10, 2))), ("ü", pa.timestamp("ns", "Asia/Tokyo"))])


def test_a_scan_survives_json() -> None:
    scan = Scan("parquet", "/x y", SCHEMA, (1, 2), {"k": None}, {"n": 1}, 5, 6)
    assert Scan.from_json(json.loads(json.dumps(scan.to_json()))) == scan


def test_neighbouring_scans_of_one_file_become_one() -> None:
    first = Scan("parquet", "/x", SCHEMA, (0,), rows=1, bytes=10)
    scans = [
        first,
        replace(first, row_groups=(2,)),
        replace(first, path="/y"),
        replace(first, row_groups=None),
        replace(first, row_groups=(3,)),
        replace(first, row_groups=(4,), constants={"k": "1"}),
    ]
    joined = merged(scans)
    assert [(scan.path, scan.row_groups, scan.rows, scan.bytes) for scan in joined] == [
        ("/x", (0, 2), 2, 20),
        ("/y", (0,), 1, 10),
        ("/x", None, 1, 10),
        ("/x", (3,), 1, 10),
        ("/x", (4,), 1, 10),
    ]
    assert merged([]) == []


def test_joined_scans_read_the_same_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(100))}), tmp_path / "t.parquet", row_group_size=7)
    relation = open_relation(tmp_path / "t.parquet")
    scans = [part.scan for part in relation.parts()]
    assert len(merged(scans)) == 1
    assert read_table(merged(scans)).equals(read_table(scans))
    assert read_relation(relation, ["a"]).num_rows == 100


def test_a_scan_of_a_scratch_file_keeps_it_alive(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    scan = open_relation(tmp_path / "t.csv").parts()[0].scan
    gc.collect()
    path = scan.path
    assert read_table([scan]).to_pylist() == [{"a": 1, "b": 2}]
    del scan
    gc.collect()
    assert not os.path.exists(path)


def test_large_json_files_are_cut_into_parts_at_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"n": n, "s": "é" * (n % 7)}) for n in range(1000)]
    (tmp_path / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + "\n\n".join(lines).encode())
    before = json_format._CHUNK
    json_format._CHUNK = 1000
    try:
        relation = open_relation(tmp_path / "t.jsonl")
        assert len(relation.parts()) > 20
        assert read_relation(relation)["n"].to_pylist() == list(range(1000))
        backwards = [part.scan for part in reversed(relation.parts())]
        assert sorted(read_table(backwards)["n"].to_pylist()) == list(range(1000))
    finally:
        json_format._CHUNK = before
