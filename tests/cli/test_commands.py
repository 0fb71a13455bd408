"""Every command's way when all is well: what it prints, what it writes, how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import Command, bytes_below, extracts, write


@pytest.fixture(autouse=True)
def shop(command: Command) -> None:
    extracts()


def rows(path: str) -> list[dict[str, Any]]:
    return sorted(pq.read_table(path).to_pylist(), key=lambda row: int(row["id"]))


def test_diff_tells_what_changed_in_words(command: Command) -> None:
    ran = command("diff", "monday.parquet", "tuesday.parquet", "--key", "id")
    assert ran.code == 1
    assert "3 rows changed: 1 inserted, 1 updated, 1 deleted; 1 unchanged" in ran.out
    assert "qty: 2 → 20" in ran.out
    assert ran.err == ""


def test_diff_of_equal_sides_exits_with_0(command: Command) -> None:
    write("copy.parquet", rows("monday.parquet"))
    ran = command("diff", "monday.parquet", "copy.parquet", "--key", "id")
    assert ran.code == 0
    assert "No row changed; 3 rows the same." in ran.out


def test_diff_as_json_is_one_object(command: Command) -> None:
    ran = command("diff", "monday.parquet", "tuesday.parquet", "--key", "id", "--json")
    assert ran.code == 1
    found = ran.json
    assert {name: found[name] for name in ("inserted", "updated", "deleted", "unchanged", "same")} == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
        "unchanged": 1,
        "same": False,
    }
    assert found["key"] == ["id"]
    assert found["columns"] == {"name": 0, "qty": 1}
    assert ran.err == ""


def test_a_difference_in_columns_alone_is_a_difference(command: Command) -> None:
    wider = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64()), ("shade", pa.string())])
    write("wider.parquet", [{**row, "shade": "red"} for row in rows("monday.parquet")], wider)
    ran = command("diff", "monday.parquet", "wider.parquet", "--key", "id", "--json")
    assert ran.code == 1
    assert ran.json["schema"]["added"] == [{"name": "shade", "type": "string"}]
    assert ran.json["inserted"] == ran.json["updated"] == ran.json["deleted"] == 0


def test_explain_shows_every_algorithm(command: Command) -> None:
    told = command("diff", "monday.parquet", "tuesday.parquet", "--key", "id", "--explain").out
    assert all(
        f"\n{mark} {name} " in told for mark, name in [("*", "merge"), (" ", "hash"), (" ", "window"), (" ", "kb")]
    )
    assert "Taken: merge, because" in told
    found = command("diff", "monday.parquet", "tuesday.parquet", "--key", "id", "--explain", "--json").json
    assert [each["algorithm"] for each in found["estimates"]] == ["hash", "merge", "kb", "kbp", "window"]


@pytest.mark.parametrize("algorithm", ["merge", "hash", "kb", "kbp", "window"])
def test_diff_answers_the_same_by_every_algorithm(command: Command, algorithm: str) -> None:
    found = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--algorithm", algorithm, "--json").json
    assert (found["inserted"], found["updated"], found["deleted"], found["unchanged"]) == (1, 1, 1, 1)
    assert found["algorithm"] == algorithm


def test_keys_are_given_one_by_one_or_separated_by_commas(command: Command) -> None:
    for key in (["-k", "id", "-k", "name"], ["-k", "id,name"]):
        assert command("diff", "monday.parquet", "tuesday.parquet", *key, "--json").json["key"] == ["id", "name"]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "sql", "changes"])
def test_out_writes_each_format(command: Command, suffix: str) -> None:
    ran = command(
        "diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", f"out.{suffix}", "--sql-table", "orders"
    )
    assert ran.code == 1
    assert bytes_below(".")[f"out.{suffix}" if suffix != "changes" else "out.changes/manifest.json"]


@pytest.mark.parametrize("layout", ["changes", "column_by_column", "side_by_side", "sparse", "left", "right"])
def test_out_takes_each_layout(command: Command, layout: str) -> None:
    ran = command(
        "diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "out.jsonl", "--layout", layout, "--json"
    )
    assert ran.json["updated"] == 1
    assert all("_change" in json.loads(line) for line in Path("out.jsonl").read_text().splitlines())


def test_html_is_one_file_that_needs_no_network(command: Command) -> None:
    assert command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--html", "report.html").code == 1
    page = Path("report.html").read_text()
    assert "dinghy" in page
    assert "http:" not in page
    assert "https:" not in page


def test_raw_tells_the_windows_own_messages_one_on_a_line(command: Command) -> None:
    ran = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--raw")
    assert ran.code == 1
    kinds = sorted(json.loads(line)["_change"] for line in ran.out.splitlines())
    assert kinds == ["delete", "insert", "update"]
    assert "3 messages" in ran.err


def test_raw_as_json_is_one_object(command: Command) -> None:
    found = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--raw", "--json").json
    assert len(found["messages"]) == 3
    assert found["old_rows"] == found["new_rows"] == 3


def test_a_file_of_nothing_but_a_header_takes_the_types_of_the_other_side(command: Command) -> None:
    Path("full.csv").write_text("id,at,v\n1,2024-01-01,a\n2,2024-01-02,b\n")
    Path("empty.csv").write_text("id,at,v\n")
    for old, new, kind in (("full", "empty", "deleted"), ("empty", "full", "inserted")):
        found = command("diff", f"{old}.csv", f"{new}.csv", "-k", "id", "--json").json
        assert (found[kind], found["schema"]["retyped"]) == (2, [])
    assert "2 of 2 rows changed" in command("diff", "full.csv", "empty.csv", "-k", "id", "--fail-over", "30%").err
    nights = [("empty", 0, 0), ("full", 2, 0), ("empty", 0, 2), ("empty", 0, 0), ("full", 2, 0)]
    for name, inserted, deleted in nights:
        night = ("diff", f"{name}.csv", "-k", "id", "--state", "s")
        if deleted:
            assert command(*night, "--fail-over", "0.3").code == 2
        found = command(*night, "--json").json
        assert (found["inserted"], found["deleted"]) == (inserted, deleted)
    Path("full.csv").write_text("id,at,v\n1,2024-01-01,7\n")
    told = command("diff", "full.csv", "-k", "id", "--state", "s").err
    assert "column v was saved as string and is int64" in told


def test_same_is_what_the_exit_code_tells(command: Command) -> None:
    old = pa.table({"id": [1], "v": pa.array([1], pa.int32())})
    pq.write_table(old, "monday.parquet")
    for v, code in ((pa.array([1], pa.int64()), 0), (pa.array([2], pa.int64()), 1), (pa.array(["1"]), 1)):
        pq.write_table(pa.table({"id": [1], "v": v}), "tuesday.parquet")
        ran = command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--json")
        assert (ran.code, ran.json["same"]) == (code, code == 0)
        assert [each["name"] for each in ran.json["schema"]["retyped"]] == ["v"]


RAW = ("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--raw")


@pytest.mark.parametrize(
    "option",
    [
        *(("--out", "x.csv"), ("--append", "x.parquet"), ("--html", "x.html"), ("--fail-over", "1%"), ("--explain",)),
        *(("--algorithm", "hash"), ("--format", "csv"), ("--layout", "sparse"), ("--verify",), ("--limit", "2")),
        *(("--duplicates", "pair"), ("--duplicates", "count"), ("--keep-sorted", "x"), ("--runner", "spark")),
        *(("--save-state", "x"), ("--slices", "2"), ("--memory", "1GB"), ("--bits", "64"), ("--sql-table", "t")),
    ],
    ids=" ".join,
)
def test_raw_refuses_by_name_what_it_has_no_use_for(command: Command, option: tuple[str, ...]) -> None:
    ran = command(*RAW, *option)
    assert (ran.code, ran.out) == (2, "")
    assert f"{option[0]} can't be had with it" in ran.err
    assert not list(Path().glob("x*"))


def test_raw_heeds_comparators_drift_and_a_strict_schema(command: Command) -> None:
    old = pa.table({"id": [1, 2], "x": [1.0, 2.0], "s": ["a", "b"]})
    pq.write_table(old, "monday.parquet")
    pq.write_table(pa.table({"id": [1, 2], "x": [1.001, 2.5], "s": ["a ", "b"]}), "tuesday.parquet")
    ran = command(*RAW, "--compare", "x=abs:0.1", "--compare", "s=trim")
    assert [json.loads(line)["id"] for line in ran.out.splitlines()] == [2]
    assert "1 messages" in ran.err
    pq.write_table(old.append_column("new", old["s"]), "tuesday.parquet")
    ran = command(*RAW)
    assert (ran.code, ran.out) == (1, "")
    assert "Columns added: new." in ran.err
    assert "new was added" in command(*RAW, "--strict-schema").err


def test_raw_refuses_keys_that_stand_twice_and_tells_dates_of_any_year(command: Command) -> None:
    days = pa.array([0, -735161, 0], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"id": [1, 2, 2], "d": days}), "monday.parquet")
    pq.write_table(pa.table({"id": [2, 1], "d": days.take([0, 1])}), "tuesday.parquet")
    assert "the old side holds keys more than once: (id=2)" in command(*RAW).err
    pq.write_table(pa.table({"id": [1, 2], "d": days.take([0, 0])}), "monday.parquet")
    told = json.loads(command(*RAW).out)
    assert (told["_change"], told["id"]) == ("update", 1)


def test_nightly_runs_need_the_new_extract_and_the_state_alone(command: Command) -> None:
    first = command("diff", "monday.parquet", "--key", "id", "--state", "orders.state", "--json")
    assert (first.code, first.json["inserted"]) == (1, 3)
    Path("monday.parquet").unlink()
    second = command("diff", "tuesday.parquet", "--key", "id", "--state", "orders.state", "--json")
    assert second.code == 1
    found = second.json
    assert (found["inserted"], found["updated"], found["deleted"]) == (1, 1, 1)
    assert 0 < found["facts"]["miss_probability"] < 1e-15
    assert found["before_images"] is False
    third = command("diff", "tuesday.parquet", "--key", "id", "--state", "orders.state", "--json")
    assert (third.code, third.json["same"]) == (0, True)


def test_keep_sorted_leaves_the_new_side_in_key_order(command: Command) -> None:
    write("shuffled.parquet", rows("tuesday.parquet")[::-1])
    ran = command("diff", "monday.parquet", "shuffled.parquet", "-k", "id", "--keep-sorted", "sorted", "--json")
    assert (ran.code, ran.json["algorithm"]) == (1, "merge")
    assert pq.read_table("sorted")["id"].to_pylist() == [2, 3, 4]
    assert command("diff", "tuesday.parquet", "sorted", "-k", "id").code == 0


def test_part_files_may_differ_if_that_is_said(command: Command) -> None:
    Path("parts").mkdir()
    write("parts/0.parquet", rows("monday.parquet")[:2])
    write("parts/1.parquet", [{"id": 3, "name": "chain"}], pa.schema([("id", pa.int32()), ("name", pa.string())]))
    assert command("diff", "monday.parquet", "parts", "-k", "id").code == 2
    found = command("diff", "monday.parquet", "parts", "-k", "id", "--union-by-name", "--json").json
    assert (found["updated"], found["unchanged"]) == (1, 2)


def test_show_tells_what_a_saved_set_holds(command: Command) -> None:
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "tuesday.changes")
    ran = command("show", "tuesday.changes")
    assert ran.code == 0
    assert "1 inserted, 1 updated, 1 deleted" in ran.out
    assert "dinghy" in ran.out
    assert "dinghy" not in command("show", "tuesday.changes", "--limit", "0").out
    assert command("show", "tuesday.changes", "--json").json["inserted"] == 1


def test_apply_makes_the_new_side_of_the_old_one(command: Command) -> None:
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "tuesday.changes")
    ran = command("apply", "tuesday.changes", "monday.parquet", "--out", "again.parquet")
    assert (ran.code, ran.out) == (0, "")
    assert "3 changes applied to monday.parquet: 3 rows in again.parquet." in ran.err
    assert rows("again.parquet") == rows("tuesday.parquet")
    told = command("apply", "tuesday.changes", "monday.parquet", "--out", "more", "--json").json
    assert told == {"out": "more", "rows": 3, "applied": 3}


def test_lenient_applies_what_does_not_fit(command: Command) -> None:
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "tuesday.changes")
    refused = command("apply", "tuesday.changes", "tuesday.parquet", "--out", "again.parquet")
    assert refused.code == 2
    assert "(id=1)" in refused.err
    assert not Path("again.parquet").exists()
    assert command("apply", "tuesday.changes", "tuesday.parquet", "--out", "again.parquet", "--lenient").code == 0
    assert rows("again.parquet") == rows("tuesday.parquet")


def test_fill_has_the_column_s_type_and_is_not_needed_where_columns_only_went(command: Command) -> None:
    extracts()
    tables = [pq.read_table("monday.parquet"), pq.read_table("tuesday.parquet")]
    pq.write_table(tables[1].append_column("n", pa.array([1, 2, 3])), "wider.parquet")
    for old, new in (("monday", "wider"), ("wider", "tuesday"), ("tuesday", "monday")):
        command("diff", f"{old}.parquet", f"{new}.parquet", "-k", "id", "--out", f"{new}.changes")
    assert command("apply", "wider.changes", "monday.parquet", "--out", "w.parquet", "--fill", "n=5").code == 0
    assert pq.read_table("w.parquet")["n"].to_pylist() == [5, 5, 5]
    assert command("apply", "wider.changes", "monday.parquet", "--out", "nulls.parquet", "--fill", "n=").code == 0
    assert pq.read_table("nulls.parquet")["n"].null_count == 3
    assert "'n' can't be read as int64" in command("apply", "wider.changes", "x", "--out", "w", "--fill", "n=x").err
    assert command("compose", "tuesday.changes", "monday.changes", "--out", "both.changes").code == 0
    assert "--fill" in command("compose", "wider.changes", "tuesday.changes", "--out", "all.changes").err


def test_fill_says_what_an_added_column_holds(command: Command) -> None:
    wider = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64()), ("shade", pa.string())])
    write("wider.parquet", [{**row, "shade": "red"} for row in rows("tuesday.parquet")], wider)
    command("diff", "monday.parquet", "wider.parquet", "-k", "id", "--out", "wider.changes")
    assert command("apply", "wider.changes", "monday.parquet", "--out", "again.parquet").code == 2
    ran = command("apply", "wider.changes", "monday.parquet", "--out", "again.parquet", "--fill", "shade=red")
    assert ran.code == 0, ran.err
    assert rows("again.parquet") == rows("wider.parquet")


def test_invert_undoes(command: Command) -> None:
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "tuesday.changes")
    assert command("invert", "tuesday.changes", "--out", "undo.changes").code == 0
    command("apply", "undo.changes", "tuesday.parquet", "--out", "again.parquet")
    assert rows("again.parquet") == rows("monday.parquet")
    assert command("invert", "undo.changes", "--out", "redo.changes", "--json").json["inserted"] == 1


def test_compose_makes_one_set_of_several(command: Command) -> None:
    write("wednesday.parquet", [{"id": 9, "name": "net", "qty": 9}])
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "a.changes")
    command("diff", "tuesday.parquet", "wednesday.parquet", "-k", "id", "--out", "b.changes")
    ran = command("compose", "a.changes", "b.changes", "--out", "both.changes", "--json")
    assert ran.code == 0
    assert (ran.json["inserted"], ran.json["deleted"]) == (1, 3)
    command("apply", "both.changes", "monday.parquet", "--out", "again.parquet")
    assert rows("again.parquet") == rows("wednesday.parquet")


def test_quiet_silences_words_but_not_results(command: Command) -> None:
    command("diff", "monday.parquet", "tuesday.parquet", "-k", "id", "--out", "a.changes")
    assert command("invert", "a.changes", "--out", "u.changes", "--quiet").err == ""
    assert command("show", "a.changes", "--quiet").out
    assert command("create", "shop").err, "the next command of the process speaks again"


def test_bench_runs_what_stands_beside_the_source(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    ran_commands: list[list[str]] = []

    def run(arguments: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran_commands.append(arguments)
        return subprocess.CompletedProcess(arguments, 0, "a table\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert command("bench", "diff", "--rows", "1000", "--json").json == {
        "tables": {"diff": "a table\n"},
        "failed": False,
    }
    assert ran_commands[0][1:] == ["-m", "benchmarks.diff", "--rows", "1000"]


def test_the_demo_tells_a_story_and_its_figures(
    spark: Any, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("strandline.cli.demo_story.ORDERS", 2_000)
    found = command("demo", "--folder", tmp_path / "shop", "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json["conflicts"] == 1
    assert found.json["merged"] > 100
    assert found.json["analysts_bytes"] < found.json["analysts_full_bytes"]
    assert found.json["level_1_bytes"] > 0
    assert Path(found.json["report"]).exists()
    inline = command("demo", "--folder", tmp_path / "without", "--runner", "inline")
    assert inline.code == 0
    assert "Spark" not in inline.err
    again = command("demo", "--folder", tmp_path / "shop")
    assert again.code == 2
    assert "is not empty" in again.err
