"""Views declared by functions, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import InputError, NotFound, SqlError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on, order_of_views

TEXTS = {
    "a": "select k, x from t where x < 9",
    "b": "with a2 as (select * from A) select k, x from a2",
    "c": "select a.k, b.x from a join b on a.k = b.k",
}


@pytest.fixture
def store() -> Iterator[Store]:
    with create_on(MemoryStorage()) as made:
        made.create_table("t", pa.table({"k": range(10), "x": range(10)}), key="k")
        yield made


@pytest.mark.parametrize("order", list(permutations(TEXTS)), ids="".join)
def test_views_may_be_declared_in_any_order(store: Store, order: tuple[str, ...]) -> None:
    for name in order:
        text = TEXTS[name]
        sl.materialized_view(store, name=name, strict=False)(lambda text=text: text)  # type: ignore[misc]
    assert [one.name for one in store.views()] == ["a", "b", "c"]
    assert store.view("c").to_arrow().num_rows == 9
    assert order_of_views({name: TEXTS[name] for name in order}) == ["a", "b", "c"]


def test_a_function_is_a_view_with_its_name_and_its_words(store: Store, tmp_path: Path) -> None:
    @sl.materialized_view(store, to=f"sqlite:///{tmp_path}/f.db#small", target_lag="10m", refresh_policy="full")
    def small() -> str:
        """Those below nine.

        Nine is not.
        """
        return TEXTS["a"]

    (listed,) = store.views()
    assert (listed.name, listed.comment) == ("small", "Those below nine.\n\nNine is not.")
    assert (listed.refresh_policy, listed.copies) == ("full", 1)
    assert small.key == ("k",)
    assert store.copy("small").record.target_lag == 600
    before = store.log()[-1]
    sl.materialized_view(store, name="small", refresh_policy="full", comment=listed.comment)(lambda: TEXTS["a"])
    assert store.log()[-1] == before  # declared again, as it is: nothing is written


def test_a_declared_view_may_be_stored(store: Store) -> None:
    @sl.materialized_view(store, stored=True, maintain="deferred", target_lag="10m")
    def small() -> str:
        return TEXTS["a"]

    (listed,) = store.views()
    assert (listed.stored, listed.target_lag, store.tables()) == (True, 600.0, ["small", "t"])
    store.table("t").delete(where="k = 1")
    assert (store.refresh()["small"].messages, small.to_arrow().num_rows) == (1, 8)
    with pytest.raises(InputError, match="stored=True"):
        sl.materialized_view(store, name="n", target_lag="1h")(lambda: TEXTS["a"])


def test_what_is_missing_is_told_at_the_run(store: Store) -> None:
    late = sl.materialized_view(store, name="late")(lambda: "select k from tomorrow")
    with pytest.raises(NotFound, match="'late'"):
        late.to_arrow()
    with pytest.raises(NotFound, match="late waits for tomorrow"):
        store.refresh()
    store.create_table("tomorrow", [{"k": 1}], key="k")
    assert store.refresh() == {}
    assert late.to_arrow().num_rows == 1


def test_what_waits_keeps_nothing_from_being_refreshed(store: Store, tmp_path: Path) -> None:
    view = store.view("ready", TEXTS["a"])
    copy = view.replicate(f"sqlite:///{tmp_path}/r.db#r", name="ready", target_lag=1e-6)
    sl.materialized_view(store, name="late")(lambda: "select k from tomorrow")
    table = store.tables()[0]
    for refresh in (store.refresh, partial(store.refresh, due=True), partial(store.refresh, "ready", "late")):
        store.table(table).update(set={"x": "x + 1"})
        with pytest.raises(NotFound, match="late waits for tomorrow"):
            refresh()
        assert copy.status()["behind"] == 0
    assert set(store.refresh("ready")) == {"ready"}
    store.drop_view("late")
    assert set(store.refresh()) == {"ready"}
    for name, other in (("x", "y"), ("y", "x"), ("above", "x")):
        sl.materialized_view(store, name=name)(lambda other=other: f"select * from {other}")  # type: ignore[misc]
    with pytest.raises(NotFound, match="y and x read each other"):
        store.refresh()


def test_mistakes_are_told_where_they_are_declared(store: Store) -> None:
    with pytest.raises(InputError, match="gave NoneType"):
        sl.materialized_view(store, name="v")(lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(SqlError, match="is not SQL"):
        sl.materialized_view(store, name="v")(lambda: "select from from")
    with pytest.raises(InputError, match="target lag is that of a copy"):
        sl.materialized_view(store, name="v", target_lag="1h")(lambda: TEXTS["a"])
    with pytest.raises(InputError, match=r"Write @sl.materialized_view\(store\)"):
        sl.materialized_view(lambda: TEXTS["a"])  # type: ignore[arg-type]
    assert store.views() == []
    store.refresh()


def test_a_view_may_come_to_stand_on_a_younger_one(store: Store) -> None:
    for name in ("a", "b"):
        store.view(name, TEXTS["a"])
    store.view("above", "select k from a")
    store.view("a", "select k, x from b where x < 5")
    assert [one.name for one in store.views()] == ["b", "a", "above"]
    assert store.view("above").to_arrow().num_rows == 5
    with pytest.raises(InputError, match="it would stand on above, which stands on it"):
        store.view("b", "select k from above")
    with pytest.raises(NotFound, match="'b'"):
        store.view("b", "select k from b")
