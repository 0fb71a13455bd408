"""Files with damaged bytes: an error in our words, or rows; never the end of the process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import FormatError, StrandlineError
from strandline.relations import open_relation, read_relation

ROWS = 60
TABLE = pa.table(
    {
        "id": range(ROWS),
        "s": [f"t{n}" if n % 7 else None for n in range(ROWS)],
        "d": pa.array(["a", "b", None] * (ROWS // 3)).dictionary_encode(),
        "l": [[n, n + 1] for n in range(ROWS)],
        "v": pa.array([f"a text too long to be inlined {n}" for n in range(ROWS)], pa.string_view()),
        "m": pa.array([[("a", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        "r": [{"a": n, "b": [str(n)]} for n in range(ROWS)],
    }
)
FORMS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def arrow_bytes(table: pa.Table, form: str, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with FORMS[form](sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=ROWS // 3)
    return bytes(sink.getvalue())


def rows_of(data: bytes) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.arrow")
        path.write_bytes(data)
        rows: list[dict[str, Any]] = read_relation(open_relation(path, format="arrow")).to_pylist()
        return rows


def told(data: bytes) -> str:
    """The error of ours, or that there is none."""
    try:
        return f"{len(rows_of(data))} rows of t.arrow"
    except StrandlineError as error:
        return str(error)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    compression=st.sampled_from([None, "lz4", "zstd"]),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_flipped_bytes_of_arrow_are_rows_or_an_error_of_ours(
    form: str, compression: str | None, flips: list[tuple[float, int]]
) -> None:
    data = bytearray(arrow_bytes(TABLE, form, compression))
    for place, value in flips:
        data[int(place * len(data))] = value
    assert "t.arrow" in told(bytes(data))


def buffers(*values: tuple[Any, str]) -> list[Any]:
    return [None, *(pa.py_buffer(np.array(each, kind)) for each, kind in values)]


LYING = {
    "an index beyond its dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 99], pa.int32()), pa.array(["a"]), safe=False
    ),
    "an offset beyond its text": pa.Array.from_buffers(
        pa.string(), 2, [*buffers(([0, 9_999_999, 2], "i4")), pa.py_buffer(b"ab")]
    ),
    "text that is not UTF-8": pa.Array.from_buffers(
        pa.string(), 2, [*buffers(([0, 1, 2], "i4")), pa.py_buffer(b"a\xff")]
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lie", LYING)
def test_arrow_values_that_lie_about_themselves_are_refused(lie: str, form: str) -> None:
    data = arrow_bytes(pa.table({"id": [1, 2], "c": LYING[lie]}), form)
    with pytest.raises(FormatError, match="readable Arrow file"):
        rows_of(data)


def test_a_length_that_no_memory_holds_is_an_error_of_ours() -> None:
    data = arrow_bytes(pa.table({"id": [0] * ROWS}), "stream", "lz4")
    length = np.array([8 * ROWS // 3], "<i8").tobytes()  # of a buffer unpacked; it stands before the packed bytes
    with pytest.raises(FormatError, match="more memory than there is"):
        rows_of(data.replace(length, np.array([1 << 60], "<i8").tobytes()))


def test_a_parquet_page_that_differs_from_its_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    options: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(pa.table({"id": range(1000), "c": ["text"] * 1000}), path, **options)
    data = path.read_bytes()
    value = b"\x04\x00\x00\x00text"
    path.write_bytes(data.replace(value, value.replace(b"x", b"n"), 1))
    with pytest.raises(FormatError, match="CRC checksum"):
        read_relation(open_relation(path))
