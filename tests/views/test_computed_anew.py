"""Views that are computed anew: their copies get what they differ in, whatever the clock or chance said before."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import InputError, SqlError
from strandline.storage import MemoryStorage
from strandline.store import create_on
from strandline.views.change_feed import ChangeFeed

INSTANT = pa.timestamp("us", "UTC")


def until(moment: dt.datetime) -> None:
    """Waits for a moment that is near."""
    while dt.datetime.now(dt.UTC) <= moment:
        pass


FAR = dt.timedelta(days=1)
STEPS = st.sampled_from(["near", "near", "far", "past", "delete", "wait"])


@settings(max_examples=examples(15))
@given(st.lists(st.lists(STEPS, max_size=3), min_size=1, max_size=4))
def test_a_copy_holds_at_every_refresh_what_has_not_expired(rounds: list[list[str]]) -> None:
    """A model in plain Python knows when rows expire; what expires during a refresh may be there or not."""
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        store.create_table("e", pa.table({"k": pa.array([], pa.int64()), "at": pa.array([], INSTANT)}), key="k")
        copy = store.view("live", "select k from e where at > now()", strict=False).replicate(
            f"parquet:///{folder}/live"
        )
        expiry: dict[int, dt.datetime] = {}
        for steps in rounds:
            for step in steps:
                now = dt.datetime.now(dt.UTC)
                if step == "wait":
                    until(max([at for at in expiry.values() if at < now + FAR / 2], default=now))
                elif step == "delete":
                    store.table("e").delete(where="k = :k", params={"k": len(expiry) - 1})
                    expiry[len(expiry) - 1] = now - FAR
                else:
                    ahead = {"near": dt.timedelta(milliseconds=20), "far": FAR, "past": -FAR}[step]
                    number = len(expiry)
                    expiry[number] = now + ahead
                    store.table("e").insert([{"k": number, "at": expiry[number]}])
            began = dt.datetime.now(dt.UTC)
            done = copy.refresh()
            ended = dt.datetime.now(dt.UTC)
            held = set(pq.read_table(f"{folder}/live").column("k").to_pylist()) if copy.status()["rows"] else set()
            assert {k for k, at in expiry.items() if at > ended} <= held
            assert held <= {k for k, at in expiry.items() if at > began}
            assert not done.unequal


def test_a_row_that_expired_leaves_the_copy_though_the_base_changed_too(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
        late = soon + dt.timedelta(days=1)
        store.create_table("e", pa.table({"k": [1, 2], "at": pa.array([soon, late], INSTANT)}), key="k")
        view = store.view("live", "select k from e where at > now()", strict=False)
        copies = [view.replicate(f"sqlite:///{tmp_path}/a.db#live"), view.replicate(f"parquet:///{tmp_path}/rows")]
        until(soon)
        store.table("e").insert([{"k": 3, "at": late}])
        for copy in copies:
            done = copy.refresh()
            assert (done.method, done.unequal) == ("difference", "")
            assert copy.verify()
            assert copy.status()["rows"] == 2
            assert copy.refresh().method == "nothing"


@pytest.mark.parametrize("sql", ["select k, random() as r from t", "select k, current_timestamp as at from t"])
def test_what_chance_or_the_clock_gives_is_what_the_copy_gets(tmp_path: Path, sql: str) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2, 3]}), key="k")
        copy = store.view("v", sql, strict=False).replicate(f"duckdb:///{tmp_path}/copy.duckdb#v")
        assert copy.refresh().unequal == ""
        store.table("t").delete(where="k = 2")
        done = copy.refresh()
        assert done.unequal == ""
        assert copy.status()["rows"] == 2


@pytest.mark.parametrize(
    ("sql", "steady"),
    [
        ("select k, now() as n from t", False),
        ("select current_date as d, count(*) as n from t", False),
        ("select k, random() as r from t", False),
        ("select k, age(make_date(2020, 1, k)::timestamp) as n from t", False),
        ("select geomean(k) as n from t", True),
        ("select * from t using sample 2", False),
        ("select x, count(*) as n, max(k) as k from t group by x", True),
        ("select k, row_number() over (order by k) as n from t", True),
        ("select distinct coalesce(x, 0) as x from t", True),
    ],
)
def test_only_what_depends_on_tables_alone_has_a_feed(sql: str, steady: bool) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2, 3], "x": [1, 1, None]}), key="k")
        store.view("v", sql, strict=False)
        feed = ChangeFeed(store, "v")
        if steady:
            assert "x" in feed.schema().names or "n" in feed.schema().names
        else:
            with pytest.raises(InputError, match="does not depend on tables alone"):
                feed.schema()


@pytest.mark.parametrize("pivot", ["pivot t on x using sum(k)", "pivot t on x in (1), k using count(*)"])
def test_columns_that_follow_from_the_rows_are_refused(pivot: str) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2, 3], "x": [1, 1, 2]}), key="k")
        with pytest.raises(SqlError, match="follows from the rows"):
            store.view("v", f"select * from ({pivot})", strict=False)
        named = store.view("w", "select * from (pivot t on x in (1, 2) using sum(k))", strict=False)
        assert named.definition.regenerated
        assert named.to_arrow().to_pylist() == [{"1": 3, "2": 3}]


CALLS = ("now()", "random()", "current_date", "current_timestamp", "uuid()", "coalesce(now(), null)")
ROWS = st.dictionaries(st.integers(0, 5), st.sampled_from([1, 2, 3]), max_size=5)


def grouped(rows: dict[int, int], columns: list[str]) -> Counter[tuple[int, ...]]:
    """The oracle: what `select x, columns … group by x` gives, in plain Python."""
    groups = {x: [k for k in rows if rows[k] == x] for x in set(rows.values())}
    values: dict[str, Callable[[list[int]], int]] = {"count(*)": len, "max(k)": max, "min(k)": min}
    return Counter((x, *(values[column](keys) for column in columns)) for x, keys in groups.items())


@settings(max_examples=examples(25))
@given(
    columns=st.lists(st.sampled_from(["count(*)", "max(k)", "min(k)"]), min_size=1, max_size=2),
    call=st.sampled_from([None, *CALLS]),
    standing=st.booleans(),
    old=ROWS,
    new=ROWS,
)
def test_two_states_are_compared_by_what_depends_on_tables_alone(
    columns: list[str], call: str | None, standing: bool, old: dict[int, int], new: dict[int, int]
) -> None:
    """Also a view that stands on one that calls the clock or chance is refused."""
    with create_on(MemoryStorage()) as store:
        store.create_table("t", table_of(old), key="k")
        chosen = ", ".join(f"{column} as c{place}" for place, column in enumerate(columns))
        called = "" if call is None else f", {call} as called"
        view = store.view("v", f"select x, {chosen}{called} from t group by x", strict=False)
        view = store.view("w", "select * from v", strict=False) if standing else view
        store.snapshot("old")
        store.table("t").overwrite(table_of(new))
        if call is not None:
            with pytest.raises(InputError, match="does not depend on tables alone"):
                view.changes(since="old")
            return
        before, after = Counter(grouped(old, columns)), Counter(grouped(new, columns))
        for row in view.changes(since="old").to_arrow().to_pylist():
            key = (row["x"], *(row[f"c{place}"] for place in range(len(columns))))
            before[key] += row["_count"]
        assert +before == after


def table_of(rows: dict[int, int]) -> pa.Table:
    return pa.table({"k": pa.array(list(rows), pa.int64()), "x": pa.array(list(rows.values()), pa.int64())})


def test_nanoseconds_that_a_query_would_drop_are_refused() -> None:
    with create_on(MemoryStorage()) as store:
        instants = pa.array([1000, 1001], pa.timestamp("ns", "UTC"))
        store.create_table("t", pa.table({"k": [1, 2], "at": instants}), key="k")
        assert store.view("n", "select count(*) as n from t", strict=False).to_arrow().column("n").to_pylist() == [2]
        with pytest.raises(SqlError, match="nanoseconds"):
            store.view("v", "select at, count(*) as n from t group by at", strict=False).to_arrow()
