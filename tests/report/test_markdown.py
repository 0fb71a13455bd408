"""Markdown that shows values as they are, whatever they hold."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import strandline as sl
from strandline.changes.table_difference import difference
from strandline.report import RunFacts
from strandline.report.markdown import code, markdown_report

EVIL = "a|b`c``d <script>@me</script>\n**x** [l](u)"


def test_no_value_becomes_markup() -> None:
    old = pa.table({"id": [EVIL, "x"], EVIL: ["1", EVIL]})
    new = pa.table({"id": ["x", "y"], EVIL: ["2", EVIL]})
    page = markdown_report(difference(old, new, ["id"]), RunFacts(warnings=(EVIL,)))
    outside = re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", page)
    assert "@me" not in outside.replace("\\@me", "")
    assert "<script" not in outside.replace("\\<script", "")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "change" not in line]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows if line.count("|") > 5} == {4, 6}


@pytest.mark.parametrize(
    ("value", "span"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a|b", "`a\\|b`"), ("", "`''`"), ("a\nb", "`a↵b`")],
)
def test_a_value_is_one_code_span(value: str, span: str) -> None:
    assert code(value) == span


def test_the_page_of_a_counted_set_counts_copies() -> None:
    page = markdown_report(sl.diff(pa.table({"v": [1, 1]}), pa.table({"v": [2]}), runner="inline").to_set())
    assert "| added | removed | unchanged |" in page
    assert "| 2 × delete |" in page


def test_where_nothing_changed_there_is_nothing_to_show() -> None:
    same = pa.table({"id": [1], "v": [1]})
    page = markdown_report(difference(same, same, ["id"]))
    assert "No row changed" in page
    assert "Examples" not in page
