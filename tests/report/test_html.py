"""The HTML report: structure, escaping, and that it needs nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from tests.report.samples import counted, empty, orders

from strandline.changes.shape import BEFORE, CHANGED, ChangeSet, Counts
from strandline.changes.table_difference import difference
from strandline.report import RunFacts, html_report, positions_by_key
from strandline.report.positions import KeyPositions

EVIL = "</td><script>alert('x')</script><img src=x onerror=alert(1)> \"'&"
VOID = {"meta", "path", "rect", "line"}


class Page(HTMLParser):
    """What a browser would see: tags, attributes and text; every tag must be closed where it belongs."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(changes: ChangeSet, **more: Any) -> Page:
    return Page(html_report(changes.header, changes.rows, **more))


def evil_changes() -> ChangeSet:
    old = pa.table({"id": [EVIL, "gone"], EVIL: ["a", "b"], "removed" + EVIL: ["q", "q"]})
    new = pa.table({"id": [EVIL, EVIL + "2"], EVIL: [EVIL, EVIL]})
    changes = difference(old, new, ["id"])
    return ChangeSet(replace(changes.header, source=EVIL, target=EVIL), changes.rows)


def test_values_names_and_facts_are_text_and_never_markup() -> None:
    facts = RunFacts(algorithm=EVIL, reason=EVIL, runner=EVIL, warnings=(EVIL,), more={EVIL: EVIL})
    where = KeyPositions((1,), (1,), (1,), EVIL, EVIL)
    changes = evil_changes()
    page = Page(html_report(changes.header, changes.rows, facts, where=where, renames={EVIL: EVIL}))
    assert not {"script", "img", "iframe", "link", "object"} & {*page.tags}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<script>alert('x')</script>") >= 10


def test_the_page_loads_nothing() -> None:
    changes = orders()
    page = html_report(changes.header, changes.rows, RunFacts("merge"), where=positions_by_key(changes))
    assert not re.search(r"https?:|url\(|@import|src=|href=", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert 'name="viewport"' in page


def test_the_page_tells_counts_columns_examples_and_facts() -> None:
    changes = orders()
    facts = RunFacts("window", "the files fit", "inline", 0.2, miss_probability=1e-9, evictions=3, distance=2.5)
    text = page_of(changes, facts=facts, where=positions_by_key(changes)).text
    for words in ("2 + inserted", "3 ~ updated", "1 − deleted", "1 = unchanged", "of 3 updates", "address.zip"):
        assert words in text
    for words in ("Chance of a missed update 1.0e-9", "Evicted from the buffers 3 rows", "window"):
        assert words in text
    assert "1 column stayed the same" in text


@pytest.mark.parametrize("sample", [orders, counted, empty, evil_changes])
def test_every_kind_of_set_makes_a_well_formed_page(sample: Any) -> None:
    assert page_of(sample()).tags


def test_a_counted_set_shows_copies_added_and_removed() -> None:
    text = page_of(counted()).text
    assert "3 ×" in text
    assert "Added rows" in text
    assert "updated" not in text


def test_what_nobody_counted_is_shown_as_unknown() -> None:
    changes = orders()
    bare = replace(changes.header, has_before=False, has_changed=False, counts=Counts(2, 3, 1))
    page = Page(html_report(bare, changes.rows.drop_columns([BEFORE, CHANGED])))
    assert "– = unchanged (not counted)" in page.text
    assert "Before images are not known" in page.text
    assert "Deleted rows all" in page.text


def test_a_wide_table_shows_the_columns_that_changed_most_and_folds_the_rest() -> None:
    old = pa.table({"id": [1], **{f"c{n}": [0] for n in range(60)}})
    new = pa.table({"id": [1], **{f"c{n}": [1] for n in range(60)}})
    text = page_of(difference(old, new, ["id"])).text
    assert "44 more columns" in text
    assert "and 46 more" in text


def test_long_values_are_cut_around_their_difference_and_the_differing_words_are_marked() -> None:
    old, new = (pa.table({"id": [1], "note": ["same words " * 60 + word + " tail" * 90]}) for word in ("old", "new"))
    changes = difference(old, new, ["id"])
    page = html_report(changes.header, changes.rows)
    assert re.findall("<mark>(.*?)</mark>", page) == ["old", "new"]
    assert len(page) < 20_000


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [1, 5, None, 9]),
        (pa.timestamp("us", "UTC"), [1, 5, None, 9]),
        (pa.date32(), [1, 5, None, 9]),
        (pa.float64(), [1.0, float("nan"), None, float("inf")]),
        (pa.decimal128(5, 2), [1, 5, None, 9]),
    ],
)
def test_keys_that_can_be_measured_are_laid_along_their_values(type_: pa.DataType, values: list[Any]) -> None:
    new = pa.table({"k": pa.array(values, type_)})
    changes = difference(new.slice(0, 0), new, ["k"])
    where = positions_by_key(changes, 4)
    assert where is not None
    assert where.inserted[0] >= 1
    assert sum(where.inserted) == (1 if pa.types.is_floating(type_) else 3)


def test_keys_of_text_and_counted_sets_have_no_picture() -> None:
    text = pa.table({"k": ["a", "b"]})
    assert positions_by_key(difference(text.slice(0, 0), text, ["k"])) is None
    assert positions_by_key(counted()) is None
    assert positions_by_key(empty()) is None
    assert "svg" not in page_of(empty()).text
