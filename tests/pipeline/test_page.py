"""The page of a run, opened in a browser: its figures are the run's, it is whole, readable, and asks for nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.browser import contrast, measured
from tests.pipeline.shop import Shop, orders

import strandline as sl
from strandline.pipeline import step
from strandline.pipeline.journal import Step
from strandline.pipeline.page import RunPage, write_page

FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
[replicas.copy]
of = "orders"
to = "sqlite:///copy.db#orders"
[replicas.away]
of = "orders"
to = "postgresql://me:${TOKEN}@127.0.0.1:1/none#t"
[dumps.backups]
to = "backups"
"""


@pytest.fixture
def ran(shop: Shop) -> Any:
    shop.environment = {"TOKEN": "hunter2secret"}
    shop.write(FILE)
    shop.extract("orders.parquet", orders(*range(500)))
    shop.run()
    with sl.open(shop.folder / "shop.store") as store:
        store.branch("idea <b>", at="shop-0001")
    shop.extract("orders.parquet", [*orders(*range(10, 500)), *orders(1000, 1001), *orders(5, price=3.0)])
    return shop.run()


def test_the_figures_on_the_page_are_those_of_the_run(ran: Any, tmp_path: Path) -> None:
    for width, dark in ((1000, False), (1000, True), (500, False)):
        seen = measured(Path(ran.report), tmp_path, width=width, dark=dark)
        assert seen["tiles"] == ["2", "1", "9", "490"]
        sent, full = seen["bars"]
        copy = ran.step.replicas["copy"]
        assert sent / full == pytest.approx(copy["bytes"] / copy["full_bytes"], abs=0.02)
        assert (seen["dots"], seen["trends"]) == (2, [1, 1, 1, 1])
        assert (seen["overflow"], seen["hidden"], seen["requests"]) == (0, 0, 0)
        ink, ground, soft = seen["colours"]
        assert contrast(ink, ground) > 10
        assert contrast(soft, ground) > 4
        assert (contrast(ground, "rgb(0, 0, 0)") < 2) == dark


def test_the_page_holds_no_script_no_link_and_no_secret(ran: Any) -> None:
    page = Path(ran.report).read_text("utf-8")
    assert not re.search(r"<script|<link|@import|url\(|src=", page)
    assert "hunter2secret" not in page
    assert "idea &lt;b&gt;" in page
    assert "Behind: away" in page


def test_what_a_copy_was_sent_earlier_is_not_counted_again(ran: Any, shop: Shop) -> None:
    shop.now += 86_400
    shop.extract("orders.parquet", [*orders(*range(10, 500)), *orders(1000, 1001), *orders(5, price=3.0)])
    page = Path(shop.run().report or "").read_text("utf-8")
    assert "nothing to send; the last that was sent, 2023-11-14" in page
    assert re.search(r"<b>0 B</b><span>bytes to copies", page)


def test_the_stages_stand_in_the_order_of_the_run(ran: Any) -> None:
    page = Path(ran.report).read_text("utf-8")
    told = re.findall(r'<span class="stage-\d+">(\w+) ', page)
    assert told == [name for name in step.STAGES if name in told]
    assert set(ran.stages) <= set(step.STAGES)


def test_each_step_has_its_page_and_the_latest_is_always_at_hand(ran: Any, shop: Shop) -> None:
    reports = shop.folder / "shop.work" / "reports"
    assert sorted(path.name for path in reports.iterdir()) == [
        "index.html",
        "latest.html",
        "step-0001.html",
        "step-0002-orders.html",
        "step-0002.html",
    ]
    again = shop.run()
    assert again.report == str(reports / "latest.html")
    assert "Nothing new came in" in Path(again.report).read_text("utf-8")


def test_a_page_is_written_though_the_name_of_an_extract_is_no_text(tmp_path: Path) -> None:
    step = Step("p", 1, 0.0, "p-0001", sources={"o": {"table": "o", "step": 1, "extract": "in/a\udcff.parquet"}})
    page = RunPage(step=step, history=[step], lines=[], started=0.0, seconds=1.0, new=True, stages={})
    assert "in/a\\udcff.parquet" in Path(write_page(page, str(tmp_path))).read_text("utf-8")
