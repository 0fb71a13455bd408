"""Steps beside a writer of another process: whatever slips in, and wherever, a step is its extract and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.pipeline.shop import Shop, orders

import strandline as sl
from strandline.errors import InputError
from strandline.pipeline.journal import Journal

FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
detect = "{detect}"
[sources.staff]
from = "staff.parquet"
key = "id"
"""
Prices = dict[int, float]
BEFORE = ("extract", "after extract", "detect", "detected orders", "detected staff", "after guard", "apply", "commit")
AFTER = ("after apply", "notice", "views", "replicas", "dumps", "finish")
FIRST, SECOND = {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, {1: 1.0, 2: 2.0, 3: 1.0, 5: 1.0}


@dataclass(frozen=True)
class Write:
    """One transaction of the other process: rows of a table that it puts and takes away, or the whole table."""

    table: str
    put: Mapping[int, float] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    dropped: bool = False

    def do(self, folder: Path) -> None:
        with sl.open(folder / "shop.store") as store, store.transaction("other") as transaction:
            if not transaction.has_table(self.table):
                return
            if self.dropped:
                transaction.drop_table(self.table)
                return
            transaction.upsert(self.table, priced(self.put))
            for key in self.taken:
                transaction.delete(self.table, where=f"id = {key}")

    def after(self, rows: Prices | None) -> Prices | None:
        """The model: what the table holds then."""
        if rows is None or self.dropped:
            return None
        return {key: price for key, price in {**rows, **self.put}.items() if key not in self.taken}


def priced(rows: Mapping[int, float]) -> list[dict[str, object]]:
    return [{"id": key, "state": "new", "price": price} for key, price in rows.items()]


def prices(rows: list[dict[str, object]]) -> Prices:
    return {row["id"]: row["price"] for row in rows}  # type: ignore[misc]


def stepped(rows: Prices | None, old: Prices, new: Prices, detect: str) -> Prices:
    """The model of a step: the extract; by signatures only what changed at the source, so what others did stays."""
    if rows is None or detect == "store":
        return new
    gone, put = old.keys() - new.keys(), {key: price for key, price in new.items() if old.get(key) != price}
    return {key: price for key, price in {**rows, **put}.items() if key not in gone}


KEYS = st.integers(0, 9)
ROWS = st.dictionaries(KEYS, st.sampled_from([1.0, 2.0, 3.0]), max_size=6)
WRITES = st.builds(
    Write,
    st.sampled_from(["orders", "staff"]),
    ROWS,
    st.frozensets(KEYS, max_size=2),
    st.sampled_from([False, False, False, False, True]),
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shops after two nights, by how they detect changes; there are signatures from the second on."""
    folders = {}
    for detect in ("store", "signatures"):
        shop = Shop(tmp_path_factory.mktemp(detect))
        shop.write(FILE.format(detect=detect))
        shop.extract("staff.parquet", priced(FIRST))
        for rows in (FIRST, SECOND):
            shop.extract("orders.parquet", priced(rows))
            shop.run()
        folders[detect] = shop.folder
    return folders


@settings(max_examples=examples(25))
@given(
    detect=st.sampled_from(["store", "signatures"]),
    night=ROWS,
    staff=ROWS,
    writes=st.lists(st.tuples(st.sampled_from((*BEFORE, *AFTER)), WRITES), max_size=4, unique_by=lambda one: one[0]),
)
def test_a_step_is_one_state_whatever_others_commit_between_detection_and_finish(
    prepared: dict[str, Path], detect: str, night: Prices, staff: Prices, writes: list[tuple[str, Write]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(shutil.copytree(prepared[detect], folder, dirs_exist_ok=True)))
        shop.extract("orders.parquet", priced(night))
        shop.extract("staff.parquet", priced(staff))
        now: dict[str, Prices | None] = {"orders": SECOND, "staff": FIRST}
        stepping = {"orders": (SECOND, night, detect), "staff": (FIRST, staff, "store")}
        waiting = dict(writes)
        wanted: dict[str, Prices | None] = {}

        def watch(point: str) -> None:
            if point == "after apply":
                now.update({table: stepped(now[table], *how) for table, how in stepping.items()})
                wanted.update(now)
            write = waiting.pop(point, None)
            if write is not None:
                write.do(shop.folder)
                now[write.table] = write.after(now[write.table])

        shop.run(watch)
        with sl.open(shop.folder / "shop.store") as store:
            assert [step.number for step in Journal(store, "shop").steps(9)][-1] == 3
            commits = [entry.commit for entry in store.log() if entry.message == "pipeline shop step 3"]
            assert [record.commit for record in store.snapshots() if record.name == "shop-0003"] == commits
            for table, rows in now.items():
                assert (table in store.tables()) == (rows is not None)
                if rows is not None:
                    assert prices(store.table(table).to_arrow().to_pylist()) == rows
            for table, rows in wanted.items():
                assert prices(store.table(table).to_arrow(at="shop-0003").to_pylist()) == rows
            assert store.check().ok


def test_a_row_that_the_step_does_not_touch_slips_in_nowhere(shop: Shop) -> None:
    """Between the check of the table and the transaction, where nothing that the step writes conflicts."""
    shop.write(FILE.format(detect="store"))
    shop.extract("staff.parquet", orders(1))
    shop.extract("orders.parquet", orders(1, 2))
    shop.run()
    for number, point in enumerate(("apply", "commit"), 2):
        shop.extract("orders.parquet", orders(1, 2, 10 + number))
        waiting = [Write("orders", {99: 1.0})]

        def watch(passed: str, point: str = point, waiting: list[Write] = waiting) -> None:
            if passed == point and waiting:
                waiting.pop().do(shop.folder)

        shop.run(watch)
        assert shop.rows() == shop.rows(at=f"shop-{number:04}") == orders(1, 2, 10 + number)


def test_a_step_is_refused_whose_snapshot_has_a_name_that_is_taken(shop: Shop) -> None:
    shop.write(FILE.format(detect="store"))
    shop.extract("staff.parquet", orders(1))
    shop.extract("orders.parquet", orders(1))
    shop.run()
    with sl.open(shop.folder / "shop.store") as store:
        store.snapshot("shop-0002")
    shop.extract("orders.parquet", orders(1, 2))
    with pytest.raises(InputError, match="there is a snapshot shop-0002 already"):
        shop.run()
    assert shop.rows() == orders(1)
    with sl.open(shop.folder / "shop.store") as store:
        store.drop_snapshot("shop-0002")
    shop.run()
    assert shop.rows(at="shop-0002") == orders(1, 2)
