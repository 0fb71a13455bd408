"""Pipes as inputs: standard input, FIFOs and what a shell writes for `<(…)`."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from tests.cli.command import Command

import strandline as sl
from strandline.errors import FormatError, InputError
from strandline.relations import ReadOptions, open_relation, read_relation

OLD = pa.table({"id": [1, 2, 3], "name": ["anchor", "buoy", "chain"], "qty": [1, 2, 3]})
NEW = pa.table({"id": [2, 3, 4], "name": ["buoy", "chain", "dinghy"], "qty": [20, 3, 4]})


def _csv(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pa_csv.write_csv(table, sink)
    return sink.getvalue()


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _json(table: pa.Table) -> bytes:
    import json

    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def _arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _feather(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _packed(codec: str) -> Callable[[pa.Table], bytes]:
    return lambda table: bytes(pa.Codec(codec).compress(_csv(table), asbytes=True))


def _bz2(table: pa.Table) -> bytes:
    import bz2

    return bz2.compress(_csv(table))


FORMS: dict[str, Callable[[pa.Table], bytes]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "arrow stream": _arrow,
    "arrow file": _feather,
    "gzip": lambda table: gzip.compress(_csv(table)),
    "bz2": _bz2,
    "zstd": _packed("zstd"),
    "lz4": lambda table: _lz4_frame(_csv(table)),
}


def _lz4_frame(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as packed:
        packed.write(content)
    return bytes(sink.getvalue().to_pybytes())


@contextmanager
def fed(write_end: int | str, content: bytes) -> Iterator[None]:
    """Somebody who writes to a pipe and closes it; a reader that went early is no trouble of theirs."""

    def feed() -> None:
        descriptor = os.open(write_end, os.O_WRONLY) if isinstance(write_end, str) else write_end
        with os.fdopen(descriptor, "wb") as pipe:
            pipe.write(content)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield
    thread.join(10)


@pytest.fixture
def standard_input() -> Iterator[Callable[[bytes], None]]:
    """Puts bytes before this process on its standard input."""
    kept, threads = os.dup(0), []

    def give(content: bytes) -> None:
        read_end, write_end = os.pipe()
        os.dup2(read_end, 0)
        os.close(read_end)
        feeding = fed(write_end, content)
        feeding.__enter__()
        threads.append(feeding)

    yield give
    os.dup2(kept, 0)
    os.close(kept)
    for feeding in threads:
        feeding.__exit__(None, None, None)


def counts(changes: sl.Changes) -> tuple[int, int, int, int | None]:
    summary = changes.summary()
    return summary.inserted, summary.updated, summary.deleted, summary.unchanged


@pytest.mark.parametrize("form", FORMS)
def test_a_fifo_is_read_whatever_comes_through_it(form: str, tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with fed(fifo, FORMS[form](OLD)):
        assert counts(sl.diff(fifo, NEW, key="id", runner="inline")) == (1, 1, 1, 1)


def test_standard_input_is_a_side_of_a_diff(
    command: Command, standard_input: Callable[[bytes], None], tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_bytes(_csv(NEW))
    standard_input(_csv(OLD))
    ran = command("diff", "-", "new.csv", "-k", "id", "--json")
    assert (ran.code, ran.json["inserted"], ran.json["updated"], ran.json["deleted"]) == (1, 1, 1, 1)
    assert ran.json["source"] == "standard input"
    standard_input(_json(OLD))
    assert command("diff", "/dev/stdin", "new.csv", "-k", "id", "--json").json["updated"] == 1


def test_lines_that_may_have_broken_off_are_told(
    standard_input: Callable[[bytes], None], caplog: pytest.LogCaptureFixture
) -> None:
    for text, told in ((b"id,v\n1,12", 1), (b"id,v\n1,12\n", 0), (gzip.compress(b"id,v\n1,12"), 0)):
        caplog.clear()
        standard_input(text)
        assert open_relation("-").schema.names == ["id", "v"]
        assert caplog.text.count("standard input ends within a line") == told


def test_a_stream_without_a_mark_is_read_as_it_is_said_to_be(
    command: Command, standard_input: Callable[[bytes], None], tmp_path: Path
) -> None:
    (tmp_path / "new.jsonl").write_bytes(b'{"id": 1}\n{"id": 2}\n')
    standard_input(b"id\n1\n")
    ran = command("diff", "-", "new.jsonl", "-k", "id", "--old-format", "csv", "--json")
    assert (ran.code, ran.json["inserted"], ran.json["unchanged"]) == (1, 1, 1)
    standard_input(b"id\n1\n")
    assert "--old-format" in command("diff", "-", "new.jsonl", "-k", "id").err


def test_a_table_is_loaded_from_standard_input(command: Command, standard_input: Callable[[bytes], None]) -> None:
    command("create", "shop")
    standard_input(_csv(OLD))
    assert command("load", "shop", "orders", "-", "--key", "id", "--json").json["rows"] == 3


def test_one_stream_can_not_be_both_sides(tmp_path: Path, standard_input: Callable[[bytes], None]) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    standard_input(b"")
    for old, new in (("-", "-"), ("-", "/dev/stdin"), (fifo, fifo)):
        with pytest.raises(InputError, match="can be read once"):
            sl.diff(old, new, key="id")


CUT = {"parquet": _parquet(OLD)[:-20], "arrow stream": _arrow(OLD)[:-8], "arrow file": _feather(OLD)[:-20]}
CUT |= {"json": _json(OLD)[:-20], "csv": _csv(OLD)[:-3], "gzip": gzip.compress(_csv(OLD) * 500)[:-50], "nothing": b""}


@pytest.mark.parametrize("form", CUT)
def test_a_writer_that_closes_early_is_an_error_that_names_the_pipe(form: str, tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with fed(fifo, CUT[form]), pytest.raises(FormatError) as refused:
        sl.diff(fifo, NEW, key="id", runner="inline")
    assert refused.value.doing == f"reading {fifo}"
    assert "See whether the command that writes to it failed" in refused.value.hint
    assert "strandline-" not in str(refused.value), "the scratch file is nobody's business"


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow stream"])
def test_what_came_through_a_pipe_goes_with_the_relation(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    monkeypatch.setenv("STRANDLINE_SPOOL", str(scratch))
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with fed(fifo, FORMS[form](OLD)):
        relation = open_relation(fifo, options=ReadOptions(types={"qty": "double"}))
    assert read_relation(relation).column("qty").to_pylist() == [1.0, 2.0, 3.0]
    assert any(scratch.iterdir())
    del relation
    assert not any(scratch.iterdir())


def test_ctrl_c_while_a_pipe_is_read_exits_with_130() -> None:
    """Only a process of its own has the shell's way of interrupts."""
    arguments = [sys.executable, "-m", "strandline.cli", "diff", "/dev/null", "-", "-k", "id"]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write("id,qty\n" * (1 << 17))  # more than a pipe holds: returns when it is being read
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    told = process.stderr.read()
    process.stdin.close()
    assert (process.wait(60), told.strip()) == (130, "Stopped.")
