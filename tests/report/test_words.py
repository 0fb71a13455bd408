"""The summary in words and as JSON."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from tests.report.samples import counted, empty, orders

from strandline.changes.shape import BEFORE, CHANGED, ChangeSet, Counts, Header
from strandline.changes.table_difference import difference
from strandline.report import RunFacts, pick_examples, summary_json, summary_view, summary_words
from strandline.report.examples import Example, one_line, shortened_pair
from strandline.report.html import html_report
from strandline.report.run_facts import describe_facts, format_probability, format_seconds

FACTS = RunFacts(
    algorithm="kb",
    reason="the last run's signatures are at hand",
    runner="spark",
    seconds=1.94,
    bytes_read=157_286_400,
    rows_before=5_000_000,
    rows_after=5_010_000,
    miss_probability=5.4e-13,
    runs_to_first_miss=math.inf,
    warnings=("the state is three days old",),
    more={"signature": "sl2"},
)


def drawn(header: Header, found: list[Example], *, terminal: bool = False, width: int = 100) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system="standard" if terminal else None)
    console.print(summary_view(header, FACTS, examples=found))
    return out.getvalue()


def test_the_paragraph_tells_rows_columns_algorithm_and_certainty() -> None:
    words = summary_words(replace(orders().header, source="a.parquet", target="b.parquet"), FACTS)
    assert words == (
        "From a.parquet to b.parquet. 6 rows changed: 2 inserted, 3 updated, 1 deleted; 1 unchanged "
        "(80 % of the old rows changed or went). Updates touched 5 of 6 columns, most often customer (1), qty (1), "
        "price (1). Compared with kb on Spark within 1.94 s, 157.3 MB read. The "
        "chance that an update was missed is 5.4e-13. Warning: the state is three days old."
    )


def test_nothing_changed_is_said_in_a_sentence() -> None:
    assert summary_words(empty().header) == "No row changed; 1 row the same."


def test_a_counted_set_tells_rows_added_and_removed() -> None:
    assert summary_words(counted().header).startswith("6 rows changed: 4 added, 2 removed; 2 unchanged")


def test_drift_is_told_with_types_and_suggested_renames() -> None:
    old = pa.table({"id": [1], "gone": ["x"], "n": pa.array([1], pa.int32()), "w": [1.0]})
    new = pa.table({"id": [1], "come": ["x"], "n": pa.array([1], pa.int64()), "w": [True]})
    header = difference(old, new, ["id"]).header
    words = summary_words(header, renames={"gone": "come"})
    assert "Added: come (string). Removed: gone (string)." in words
    assert "Retyped: n from int32 to int64. Retyped: w from double to bool, which can't be compared." in words
    assert "Perhaps renamed: gone → come." in words
    schema = summary_json(header, renames={"gone": "come"})["schema"]
    assert schema["renames"] == [{"before": "gone", "after": "come"}]
    assert [(each["name"], each["compared"]) for each in schema["retyped"]] == [("n", True), ("w", False)]


def test_examples_show_only_what_differs_before_and_after() -> None:
    lines = [line.rstrip() for line in drawn(orders().header, pick_examples(orders())).splitlines()]
    assert lines[lines.index("~ id=3") : lines.index("~ id=3") + 3] == [
        "~ id=3",
        "    address.zip: 150 → 151",
        "    tags['b']: 2 → 3",
    ]
    assert "    customer: customer 4 → null" in lines


def test_colours_are_for_terminals_alone() -> None:
    found = pick_examples(orders())
    assert "\x1b[" in drawn(orders().header, found, terminal=True)
    assert "\x1b[" not in drawn(orders().header, found)


def test_values_can_neither_steer_the_terminal_nor_be_taken_for_markup() -> None:
    old = pa.table({"id": ["[red]k[/red]"], "v": ["[bold]x"]})
    new = pa.table({"id": ["[red]k[/red]"], "v": ["\x1b[31mred\x07\u202eright to left\nline"]})
    changes = difference(old, new, ["id"])
    out = drawn(changes.header, pick_examples(changes))
    assert "[red]k[/red]" in out
    assert "[bold]x → \\u001b[31mred\\u0007\\u202eright to left↵line" in out


def test_a_wide_table_of_long_text_is_drawn_within_the_terminal() -> None:
    names = [f"a_rather_long_column_name_{n:02d}" for n in range(60)]
    old = pa.table({"id": [1], **{name: ["same " * 100 + "old"] for name in names}})
    new = pa.table({"id": [1], **{name: ["same " * 100 + "new"] for name in names}})
    changes = difference(old, new, ["id"])
    out = drawn(changes.header, pick_examples(changes), width=80)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "and 48 more columns" in out
    assert "and 52 more" in out
    assert "old" in out


def test_text_is_cut_around_the_place_where_it_differs() -> None:
    before, after = shortened_pair("x" * 200 + "A" + "y" * 200, "x" * 200 + "B" + "y" * 200, 30)
    assert len(before) == len(after) == 30
    assert "A" in before
    assert "B" in after
    assert shortened_pair("ab", "ac", 30) == ("ab", "ac")
    assert one_line("naïve 日本 👩‍🔬") == "naïve 日本 👩‍🔬"


def test_without_before_images_examples_show_the_after_side_alone() -> None:
    full = orders()
    header = replace(full.header, has_before=False)
    changes = ChangeSet(header, full.rows.drop_columns([BEFORE]))
    out = drawn(header, pick_examples(changes))
    assert "    qty: 40" in out.replace(" \n", "\n")
    assert "→" not in out
    unnamed = ChangeSet(replace(header, has_changed=False), changes.rows.drop_columns([CHANGED]))
    assert "customer 2" in drawn(unnamed.header, pick_examples(unnamed))
    assert "can't be inverted" in summary_words(header)


@pytest.mark.parametrize("sample", [orders, counted, empty])
def test_the_json_object_is_valid_and_has_the_counts_on_top(sample: Any) -> None:
    header = sample().header
    record = summary_json(header, FACTS)
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again == record
    assert [again[name] for name in ("inserted", "updated", "deleted", "unchanged")] == [
        header.counts.inserted,
        header.counts.updated,
        header.counts.deleted,
        header.counts.unchanged,
    ]
    assert again["algorithm"] == "kb"
    assert again["facts"]["runs_to_first_miss"] is None
    assert again["facts"]["signature"] == "sl2"


def test_json_says_null_for_what_nobody_counted() -> None:
    header = replace(orders().header, counts=Counts(inserted=1))
    record = summary_json(header)
    assert record["unchanged"] is None
    assert record["columns"] is None
    assert record["algorithm"] is None
    assert not record["same"]
    assert summary_json(empty().header)["same"]


def test_numbers_are_told_in_the_units_that_people_use() -> None:
    assert "157.3 MB" in dict(describe_facts(FACTS)).values()
    assert [format_seconds(s) for s in (0.0123, 1.5, 125.0, 9000.0)] == ["12.3 ms", "1.5 s", "2 min 5 s", "2 h 30 min"]
    assert [format_probability(p) for p in (0.0, 0.25, 5.4e-13, 3e-5)] == ["0", "0.25", "5.4e-13", "3.0e-5"]
    told = dict(describe_facts(FACTS))
    assert told["Runs to the first miss, on average"] == "never"
    assert told["Rows read"] == "5,000,000 before, 5,010,000 after"
    assert "Shuffled" not in told


def test_a_null_an_empty_text_and_the_text_null_are_three_keys() -> None:
    old, new = (pa.table({"id": [None, "", "null"], "v": values}) for values in ([1, 1, 1], [2, 2, 2]))
    found = difference(old, new, ["id"])
    examples = pick_examples(found)
    assert sorted((name, value or repr(value)) for each in examples for name, value in each.key) == [
        ("id", "''"),
        ("id", "None"),
        ("id", "null"),
    ]
    words, page = drawn(found.header, examples), html_report(found.header, found.rows)
    assert words.count("id=null") == 2
    assert "id=''" in words
    assert '<span class="v null">null</span>' in page
    assert '<span class="v null">empty</span>' in page
