"""Streams of changes: each batch is the net change between two kept states, read once, or again and the same."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import NotFound, SnapshotExpired, StateError
from strandline.spark_source import stream as stream_module
from strandline.spark_source.options import StreamRequest
from strandline.storage import LocalStorage
from strandline.store import Store, create_on
from strandline.tables import Limits
from strandline.views.change_feed import ChangeFeed, followers, forget, inserts


@pytest.fixture(scope="module")
def registered(spark: Any) -> Any:
    return sl.register(spark)


def stream(spark: Any, shop: Store, **options: str) -> Any:
    return spark.readStream.format("strandline").options(**options).load(shop.url)


class Sink:
    """Runs a stream until it has read what is there; keeps each batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.fails = False

    def run(self, frame: Any) -> None:
        def take(batch: Any, number: int) -> None:
            self.batches[number] = sorted(tuple(row) for row in batch.collect())
            if self.fails:
                raise RuntimeError("the sink is full")

        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(60)


CHOSEN = ("_change", "id", "qty")


def test_a_stream_goes_on_where_its_checkpoint_stands_and_a_failed_batch_comes_again(
    registered: Any, shop: Store, tmp_path: Path
) -> None:
    sink = Sink(tmp_path)
    orders = stream(registered, shop, table="orders", startingAt="now").select(*CHOSEN, "_before.qty", "_commit")
    sink.run(orders)
    assert not any(sink.batches.values()), "nothing has changed since now"
    sink.batches = {}
    shop.table("orders").update(where="id = 1", set={"qty": "7"})
    shop.table("orders").update(where="id = 1", set={"qty": "8"})
    shop.table("orders").delete(where="id = 2")
    commit = shop.log()[-1].commit
    sink.fails = True
    with pytest.raises(Exception, match="the sink is full"):
        sink.run(orders)
    expected = [("delete", 2, None, 100, commit), ("update", 1, 8, 100, commit)]
    assert list(sink.batches.values()) == [expected], "net: two updates are one"
    shop.table("orders").insert([{"id": 9000, "qty": 1, "name": "new"}])
    sink.fails, sink.batches = False, {}
    sink.run(orders)
    first, second = sink.batches.values()
    assert first == expected, "the failed batch came again, the same although more was committed"
    assert [row[:4] for row in second] == [("insert", 9000, 1, None)]
    assert len(followers(shop)) == 1
    assert shop.check().ok


def test_from_the_beginning_which_is_the_default_every_row_is_an_insert_and_views_can_be_followed(
    registered: Any, shop: Store, tmp_path: Path
) -> None:
    shop.view("few", "select id, qty from orders where id < 3")
    sink = Sink(tmp_path)
    few = stream(registered, shop, view="few").select(*CHOSEN)
    sink.run(few)
    assert sink.batches[0] == [("insert", 0, 100), ("insert", 1, 100), ("insert", 2, 100)]
    shop.table("orders").update(where="id in (2, 5)", set={"qty": "4"})
    sink.run(few)
    assert sink.batches[1] == [("update", 2, 4)]


def test_a_batch_comes_in_pieces_or_in_files_if_it_is_large(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = ChangeFeed(shop, "orders")
    start = following.latest(following.beginning())
    shop.table("orders").update(where="id < 1000", set={"qty": "-1"})
    end = following.latest(start)
    expected = following.changes(start, end).rows
    columns, request = following.schema(), StreamRequest(shop.url, "table", "orders", "now")
    monkeypatch.setattr(stream_module, "PARTITION_BYTES", expected.nbytes // 3)
    for limit, least in ((expected.nbytes, 3), (expected.nbytes - 1, 1)):
        monkeypatch.setattr(stream_module, "CARRIED_BYTES", limit)
        reader = stream_module.ChangeStream(request, shop.url, columns.append(pa.field("_commit", pa.int64())), columns)
        parts = reader.partitions(start.to_json(), end.to_json())
        task = pickle.loads(pickle.dumps(reader))
        rows = pa.Table.from_batches([batch for part in parts for batch in task.read(part)])
        assert len(parts) >= least
        assert rows["id"].to_pylist() == expected["id"].to_pylist()
        assert set(rows["qty"].to_pylist()) == {-1}
        reader.stop()
    with pytest.raises(SnapshotExpired, match="STRANDLINE_SPOOL"):
        list(task.read(parts[0]))


def test_mistakes_are_told_when_the_stream_is_made(registered: Any, shop: Store) -> None:
    def told(**options: str) -> str:
        with pytest.raises(Exception) as error:
            stream(registered, shop, **options)
        return str(error.value)

    assert "the option 'table' or 'view' is missing" in told(startingAt="now")
    assert "there is no view items" in told(view="items", startingAt="now")
    assert "The tables are orders" in told(table="items", startingAt="now")
    assert "there is no option 'where'" in told(table="orders", startingAt="now", where="id = 1")


def test_of_a_table_without_a_start_the_words_say_what_to_write(registered: Any, shop: Store, tmp_path: Path) -> None:
    rows = stream(registered, shop, table="orders")
    with pytest.raises(Exception, match=r"startingAt tells its changes from its rows.*Say view instead"):
        Sink(tmp_path).run(rows)


def test_the_first_batch_comes_in_pieces_that_are_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.views.change_feed.SPLIT_BYTES", 1)
    with create_on(LocalStorage(tmp_path / "shop"), limits=Limits(page_rows=8, cut_rows=6, join_rows=2)) as store:
        store.create_table("c", pa.table({"id": range(3), "name": ["ann", None, "cy"]}), key="id")
        store.create_table("o", pa.table({"id": pa.array([], pa.int64()), "c": pa.array([], pa.int64())}), key="id")
        store.table("o").insert([{"id": number, "c": number % 4} for number in range(50)])
        store.view("v", "select o.id, c.name, o.id * 2 as twice from o join c on o.c = c.id where o.id <> 7")
        for name, least in (("o", 7), ("v", 2)):
            following = ChangeFeed(store, name)
            begin = following.beginning()
            end = following.latest(begin)
            pieces = following.first_splits(end)
            assert pieces is not None
            assert len(pieces) >= least
            found = pa.concat_tables(inserts(one) for one in pieces)
            assert found.sort_by("id").equals(following.changes(begin, end).rows.sort_by("id"))


def test_marks_can_be_read_again_until_a_later_one_is_confirmed(shop: Store) -> None:
    following = ChangeFeed(shop, "orders")
    start = following.latest(following.beginning())
    assert following.latest(start) == start
    shop.table("orders").delete(where="id = 1")
    end = following.latest(start)
    once, again = (following.changes(start, end) for _ in range(2))
    assert once.rows.equals(again.rows)
    following.confirm(end)
    with pytest.raises(sl.StrandlineError, match="was let go"):
        following.changes(start, end)
    assert end.position is not None
    assert followers(shop)[0].commit == end.position.commit
    assert forget(shop, end.follower) == 1
    assert followers(shop) == []
    with pytest.raises(NotFound, match="The followers are: none"):
        forget(shop, end.follower)


def test_a_changed_table_ends_the_stream_with_the_reason(shop: Store) -> None:
    following = ChangeFeed(shop, "orders")
    start = following.latest(following.beginning())
    shop.drop_table("orders")
    shop.create_table("orders", [{"id": 1, "other": 2}], key="id")
    with pytest.raises(StateError, match="the columns or the definition of 'orders' have changed"):
        following.latest(start)


def test_a_table_without_a_key_gives_counts(shop: Store) -> None:
    shop.create_table("log", [{"line": "a"}, {"line": "a"}])
    following = ChangeFeed(shop, "log")
    assert following.schema().names == ["line", "_count"]
    begin = following.beginning()
    assert following.changes(begin, following.latest(begin)).rows.to_pylist() == [{"line": "a", "_count": 2}]
