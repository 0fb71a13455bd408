"""When an extract is the one of the last step: its files, wherever the reader finds them, and how they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xlsxwriter
from tests.pipeline.shop import Shop, orders

FILE = """
store = "shop.store"
[sources.orders]
from = "{place}"
pick = "{pick}"
key = "id"
"""


@pytest.fixture
def night(shop: Shop) -> Shop:
    """A shop whose extracts lie in folders of folders, one of them behind a link."""
    shop.extract("extracts/a/orders.parquet", orders(1))
    shop.extract("elsewhere/orders.parquet", orders(2))
    (shop.folder / "extracts" / "linked").symlink_to(shop.folder / "elsewhere")
    return shop


def ids(shop: Shop) -> list[int]:
    return [row["id"] for row in shop.rows()]


def aged(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("place", ["extracts", "extracts/**/*.parquet", "extracts/**", "extracts/*"])
@pytest.mark.parametrize("name", ["extracts/new.parquet", "extracts/a/b/c/new.parquet", "elsewhere/new.parquet"])
def test_a_file_is_seen_wherever_the_reader_finds_it(night: Shop, place: str, name: str) -> None:
    night.write(FILE.format(place=place, pick="all"))
    night.run()
    assert ids(night) == [1, 2]
    assert night.run().step is None
    night.extract(name, orders(3))
    night.run()
    assert ids(night) == [1, 2, 3]


def test_a_link_that_leads_elsewhere_now_is_another_extract(night: Shop) -> None:
    night.write(FILE.format(place="extracts", pick="all"))
    night.run()
    night.extract("tonight/orders.parquet", orders(2, 3))
    (night.folder / "extracts" / "linked").unlink()
    (night.folder / "extracts" / "linked").symlink_to(night.folder / "tonight")
    night.run()
    assert ids(night) == [1, 2, 3]


def test_a_link_among_what_is_no_data_may_lead_back(night: Shop) -> None:
    (night.folder / "extracts" / "_old").mkdir()
    (night.folder / "extracts" / "_old" / "up").symlink_to(night.folder / "extracts")
    night.write(FILE.format(place="extracts", pick="all"))
    night.run()
    assert ids(night) == [1, 2]


@pytest.mark.parametrize("name", ["extracts/new.parquet", "extracts/a/b/c/new.parquet", "elsewhere/new.parquet"])
def test_the_latest_is_looked_for_at_every_depth(night: Shop, name: str) -> None:
    night.write(FILE.format(place="extracts/**/*.parquet", pick="latest"))
    for old in ("extracts/a", "elsewhere"):
        aged(night.folder / old / "orders.parquet", 1000)
    aged(night.extract("extracts/a/_temporary/orders.parquet", orders(8)), 3000)
    aged(night.extract(name, orders(9)), 2000)
    night.run()
    assert ids(night) == [9]


@pytest.mark.parametrize(
    ("option", "states"), [('nulls = "none"', [None, "Ã©"]), ('encoding = "latin-1"', ["none", "Ã\x83Â©"])]
)
def test_the_same_file_read_otherwise_is_another_extract(shop: Shop, option: str, states: list[str | None]) -> None:
    (shop.folder / "orders.csv").write_text("id,state\n1,none\n2,Ã©\n", "utf-8")
    file = FILE.format(place="orders.csv", pick="all")
    shop.write(file)
    shop.run()
    assert [row["state"] for row in shop.rows()] == ["none", "Ã©"]
    shop.write(f"{file}{option}\n")
    shop.run()
    assert [row["state"] for row in shop.rows()] == states
    assert shop.run().step is None


def test_another_sheet_is_another_extract(shop: Shop) -> None:
    with xlsxwriter.Workbook(shop.folder / "book.xlsx") as book:
        for sheet, id_ in (("May", 5), ("June", 6)):
            book.add_worksheet(sheet).write_column(0, 0, ["id", id_])
    for sheet, id_ in (("May", 5), ("June", 6)):
        shop.write(FILE.format(place=f"book.xlsx#{sheet}", pick="all"))
        shop.run()
        assert ids(shop) == [id_]
        assert shop.run().step is None
