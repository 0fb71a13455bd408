"""The figures of the documentation, the papers' and the goals', made of their results files alone."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import goals, growth
from benchmarks.charts import Axes, Curve, chart
from benchmarks.papers import BEGIN, section

DOCS = Path(__file__).parents[1] / "docs"


def test_the_section_of_the_papers_page_is_made_of_the_results_file() -> None:
    results = json.loads((DOCS / "figures" / "papers.json").read_text("utf-8"))
    page = (DOCS / "papers.md").read_text("utf-8")
    assert page[page.index(BEGIN) :].rstrip() == section(results)
    pictures = {figure["picture"] for figure in results["figures"]} - {""}
    assert pictures == {file.name for file in (DOCS / "figures").glob("*.svg") if not file.match("goals-*")}


def test_the_sections_of_the_goals_and_of_growth_are_made_of_the_results_file() -> None:
    results = json.loads((DOCS / "figures" / "benchmarks.json").read_text("utf-8"))
    page = (DOCS / "benchmarks.md").read_text("utf-8")
    assert goals.section(results) in page
    assert growth.section(results) in page
    pictures = {f"goals-{table}.svg" for table in results["tables"]}
    assert pictures == {file.name for file in (DOCS / "figures").glob("goals-*.svg")}


def test_a_chart_has_a_dot_for_each_measured_point_and_a_line_for_each_curve() -> None:
    curves = [Curve("a < b", [(0, 1), (2, 100)]), Curve("seen", [(0, 1), (1, 10), (2, 100)], measured=True)]
    for decades in (0, 2):
        picture = ElementTree.fromstring(chart("t & t", Axes("x", "y", decades), curves))
        kinds = [element.tag.rpartition("}")[2] for element in picture]
        assert (kinds.count("circle"), kinds.count("polyline")) == (3, 1)
        heights = [float(element.attrib["cy"]) for element in picture if element.tag.endswith("circle")]
        assert heights == sorted(heights, reverse=True)
        if decades:
            assert heights[0] - heights[1] == heights[1] - heights[2]
