"""What goes out: to standard output in every format, to pipes that close, to terminals that are narrow, to the log."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import Command, extracts, write

import strandline as sl
from strandline.cli import main
from strandline.cli.diff import _options as options_of_diff
from strandline.cli.diff import diff as diff_command
from strandline.differential import DiffKeywords
from strandline.differential.options import DiffOptions
from strandline.report.layouts import column_by_column, left, right, side_by_side, sparse

ROOT = Path(__file__).parents[2]
DIFF = ("diff", "monday.parquet", "tuesday.parquet", "--key", "id")


class Terminal(io.TextIOWrapper):
    """Standard output as a terminal has it, or a file, with everything that was written."""

    def __init__(self, *, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        self.terminal = terminal
        super().__init__(self.bytes, "utf-8", write_through=True)

    def isatty(self) -> bool:
        return self.terminal


def written(monkeypatch: pytest.MonkeyPatch, *arguments: str, terminal: bool = False) -> tuple[object, bytes]:
    """The exit code, and the bytes on standard output."""
    out = Terminal(terminal=terminal)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setenv("COLUMNS", "80")
        patched.setenv("TERM", "dumb")
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
    return stopped.value.code, out.bytes.getvalue()


KINDS = ["delete", "update", "insert"]


@pytest.mark.parametrize("how", [(), ("-o", "-")])
def test_changes_go_to_standard_output_and_words_elsewhere(command: Command, how: tuple[str, ...]) -> None:
    extracts()
    ran = command(*DIFF, "--format", "jsonl", *how)
    assert "3 rows changed" in ran.err
    assert (ran.code, [json.loads(line)["_change"] for line in ran.out.splitlines()]) == (1, KINDS)


def test_a_dash_alone_means_csv(command: Command) -> None:
    extracts()
    assert command(*DIFF, "--out", "-", "--layout", "right").out.splitlines()[0] == '"id","_change","name","qty"'


def test_arrow_and_parquet_are_for_files_and_not_for_terminals(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracts()
    code, out = written(monkeypatch, *DIFF, "--format", "arrow")
    assert (code, pa.ipc.open_file(out).read_all()["_change"].to_pylist()) == (1, KINDS)
    code, out = written(monkeypatch, *DIFF, "--format", "parquet")
    assert (code, pq.read_table(io.BytesIO(out))["id"].to_pylist()) == (1, [1, 2, 4])
    assert written(monkeypatch, *DIFF, "--format", "parquet", terminal=True) == (2, b"")


def test_an_arrow_file_is_a_side_of_the_next_comparison(command: Command) -> None:
    extracts()
    command(*DIFF, "-o", "x.arrow", "--layout", "side-by-side")
    command(*DIFF, "-o", "y.feather", "--layout", "side_by_side")
    assert command("diff", "x.arrow", "y.feather", "--ignore", "_change").code == 0


def test_pages_and_scripts_go_to_standard_output_too(command: Command) -> None:
    extracts()
    assert command(*DIFF, "--format", "html").out.startswith("<!doctype html>")
    assert command(*DIFF, "--format", "sql", "--sql-table", "orders").out.startswith("MERGE INTO orders")
    assert "| `2` | `qty` | `2` | `20` |" in command(*DIFF, "--format", "markdown").out
    command(*DIFF, "--out", "x.md", "--limit", "0")
    assert "Examples" not in Path("x.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "csv", "--json"), "can't both go to standard output"),
        (("--format", "sql"), "--sql-table shop.orders"),
        (("--format", "html", "--layout", "left"), "html has no layout 'left'"),
        (("--format", "xls"), "'xls' is not one of"),
    ],
)
def test_what_cant_go_out_is_refused(command: Command, words: tuple[str, ...], said: str) -> None:
    extracts()
    ran = command(*DIFF, *words)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize("option", ["--out", "--html", "--append"])
def test_no_output_is_written_over_what_is_read(command: Command, tmp_path: Path, option: str) -> None:
    extracts()
    before = {name: Path(name).read_bytes() for name in ("monday.parquet", "tuesday.parquet")}
    Path("link.parquet").symlink_to("tuesday.parquet")
    for name in (*before, tmp_path / "monday.parquet", "link.parquet"):
        ran = command(*DIFF, option, name, "--format", "parquet")
        assert (ran.code, "would be written over" in ran.err) == (2, True)
    assert {name: Path(name).read_bytes() for name in before} == before


def test_two_outputs_are_two_files(command: Command) -> None:
    extracts()
    ran = command(*DIFF, "--out", "t.parquet", "--append", "./t.parquet")
    assert (ran.code, "would be written over" in ran.err, Path("t.parquet").exists()) == (2, True, False)
    assert command(*DIFF, "--out", "/dev/null", "--format", "csv", "--html", "/dev/null").code == 1


def test_a_reader_that_has_seen_enough_is_no_difference_and_no_trouble(tmp_path: Path) -> None:
    rows = 50_000
    for name, value in (("a", 1), ("b", 2)):
        pq.write_table(pa.table({"id": range(rows), "v": [value] * rows}), tmp_path / f"{name}.parquet")
    words = ("diff", "a.parquet", "b.parquet", "-k", "id", "--format", "arrow", "-o", "/dev/stdout")
    process = subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    begun = process.stdout.read(8)
    process.stdout.close()
    assert (process.wait(), begun[:4]) == (141, b"\xff" * 4), "the stream form, which needs no way back"


def test_changes_of_a_table_go_out_the_same_way(command: Command) -> None:
    extracts()
    command("create", "shop")
    command("load", "shop", "orders", "monday.parquet", "--key", "id")
    command("snapshot", "shop", "monday")
    command("load", "shop", "orders", "tuesday.parquet", "--mode", "overwrite")
    ran = command("changes", "shop", "orders", "--since", "monday", "--format", "csv", "--layout", "column-by-column")
    assert ran.out.splitlines()[0] == '"id","_change","_column","_before","_after"'
    assert "updated" in ran.err


def test_words_with_hyphens_and_underscores_mean_the_same(command: Command) -> None:
    extracts()
    assert command(*DIFF, "--strict_schema", "--layout", "column_by_column", "-o", "x.csv").code == 1


def test_twenty_columns_stand_below_each_other_on_a_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"column_{number}" for number in range(19)]
    rows = [{"id": 1, **{name: f"the value of {name}" for name in names}}]
    write("wide.parquet", rows, pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)]))
    command("create", "shop")
    command("load", "shop", "wide", "wide.parquet", "--key", "id")
    shown = written(monkeypatch, "query", "shop", "select * from wide", terminal=True)[1].decode()
    assert all(f"the value of {name}" in shown for name in names)
    assert max(len(line) for line in shown.splitlines()) <= 80
    narrow = written(monkeypatch, "query", "shop", "select id, column_1, column_2 from wide", terminal=True)[1].decode()
    assert "│ the value of column_1 │ the value of column_2 │" in narrow


def test_the_widest_column_is_folded_on_a_terminal_where_that_is_enough(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracts()
    command("create", "shop")
    message = " ".join(f"word{number}" for number in range(40))
    command("load", "shop", "orders", "monday.parquet", "--key", "id", "--message", message)
    shown = written(monkeypatch, "log", "shop", terminal=True)[1].decode()
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "│ what   │ message" in shown.replace("┃", "│")
    assert " ".join(shown.replace("│", " ").split()).count("word") == 40


def test_copies_are_named_in_full_when_piped(command: Command, tmp_path: Path) -> None:
    extracts()
    command("create", "shop")
    command("load", "shop", "orders", "monday.parquet", "--key", "id")
    name = "the_copy_with_a_rather_long_name_that_no_terminal_of_eighty_columns_shows"
    command("replicate", "shop", "orders", f"sqlite:///{tmp_path}/copy.db#t", "--name", name)
    assert name in [line.split("\t")[0] for line in command("replicas", "shop").out.splitlines()]
    assert name in [line.split("\t")[0] for line in command("forget", "shop").out.splitlines()]


def test_conflicts_are_shown_up_to_the_limit(command: Command) -> None:
    extracts()
    command("create", "shop")
    command("load", "shop", "orders", "monday.parquet", "--key", "id")
    command("whatif", "new", "shop", "idea", "orders")
    command("whatif", "update", "shop", "idea", "--set", "qty=qty + 1")
    with sl.open("shop") as store:
        store.table("orders").update(set={"qty": "qty + 2"})
    ran = command("whatif", "conflicts", "shop", "idea", "--limit", "2")
    assert (ran.code, len(ran.out.splitlines()), ran.err) == (1, 3, "2 of 3 conflicts.\n")
    assert command("whatif", "conflicts", "shop", "idea", "--limit", "2", "--json").json["count"] == 3


@pytest.fixture
def quiet_log() -> Iterator[None]:
    """The logger as it was."""
    logger = logging.getLogger("strandline")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.usefixtures("quiet_log")
def test_verbose_says_what_is_done(command: Command) -> None:
    extracts()
    assert "comparing by" not in command(*DIFF).err
    assert "strandline.differential.differential: comparing by merge" in command(*DIFF, "-v").err
    ran = command("-vv", "create", "shop")
    assert ran.code == 0
    assert logging.getLogger("strandline").level == logging.DEBUG


def test_the_library_logs_under_its_own_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "strandline"):
        sl.diff(pa.table({"id": [1]}), pa.table({"id": [2]}), key="id", runner="inline")
    assert "comparing by" in caplog.text
    assert all(record.name.startswith("strandline.") for record in caplog.records)


def test_the_keywords_of_diff_are_its_options() -> None:
    assert set(get_type_hints(DiffKeywords)) == {option.name for option in fields(DiffOptions)}


def test_every_option_of_the_command_that_diff_takes_reaches_it() -> None:
    given = {str(each.name): () if getattr(each, "multiple", False) else "1" for each in diff_command.params}
    reached = options_of_diff({**given, "encoding": None, "types": (), "nulls": ()})
    assert given.keys() & {option.name for option in fields(DiffOptions)} <= reached.keys()


@pytest.mark.parametrize("arrange", [column_by_column, side_by_side, sparse, left, right])
def test_layouts_take_what_diff_gives(arrange: type[object]) -> None:
    old, new = pa.table({"id": [1, 2], "v": [1, 2]}), pa.table({"id": [2, 3], "v": [3, 4]})
    changes = sl.diff(old, new, key="id", runner="inline")
    assert arrange(changes).equals(arrange(changes.to_set()))  # type: ignore[call-arg, attr-defined]


def test_rows_of_queries_and_of_applied_changes_go_out_in_every_format(command: Command) -> None:
    extracts()
    command(*DIFF, "-o", "t.changes")
    for format_ in ("csv", "jsonl"):
        ran = command("apply", "t.changes", "monday.parquet", "--format", format_)
        assert (ran.code, "rows in standard output" in ran.err) == (0, True)
        Path(f"again.{format_}").write_text(ran.out)
        assert command("diff", f"again.{format_}", "tuesday.parquet", "-k", "id").code == 0
    assert command("apply", "t.changes", "monday.parquet", "-o", "again.arrow").code == 0
    assert command("diff", "again.arrow", "tuesday.parquet", "-k", "id").code == 0
    command("create", "shop")
    command("load", "shop", "orders", "monday.parquet", "--key", "id")
    asked = ("query", "shop", "select id, qty from orders order by id limit 1")
    assert command(*asked, "-o", "-").out == '"id","qty"\n1,1\n'
    assert command(*asked, "--format", "jsonl").out == '{"id": 1, "qty": 1}\n'
    assert "can't both" in command(*asked, "-o", "-", "--json").err
    assert not Path("-").exists()


def test_saved_sets_inverses_compositions_and_what_ifs_go_out_in_every_format(command: Command) -> None:
    extracts()
    command(*DIFF, "-o", "t.changes")
    assert command("show", "t.changes", "--format", "csv").out == command(*DIFF, "--format", "csv").out
    for words in (("invert", "t.changes"), ("compose", "t.changes", "u")):
        assert "Say where" in command(*words).err
        assert command("invert", "t.changes", "-o", "u").out == "", "a name without a suffix is a folder"
        assert command(*words, "--format", "jsonl").out.count("\n") == (3 if words[0] == "invert" else 0)
        command(*words, "--out", "undo.sql", "--sql-table", "orders")
        assert Path("undo.sql").is_file()
    command("create", "shop")
    command("load", "shop", "orders", "monday.parquet", "--key", "id")
    command("whatif", "new", "shop", "cut", "orders")
    command("whatif", "delete", "shop", "cut", "--where", "id = 1")
    ran = command("whatif", "changes", "shop", "cut", "-o", "-")
    assert (ran.code, ran.out.splitlines()[1].split(",")[:2]) == (1, ['"delete"', "1"])
