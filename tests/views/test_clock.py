"""Views with the clock in them: rows enter and leave as time passes, found from an order on the time column."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import InputError, SqlError
from strandline.pages import Environment
from strandline.storage import LocalStorage, MemoryStorage
from strandline.store import Store, create_on
from strandline.tables import Limits
from strandline.views import ChangeFeed, StoreState, TwoStates, instant_at, regenerate, state_now
from strandline.views.operator_delta import view_delta

DAY = 86400.0
START = dt.datetime(2024, 2, 27, tzinfo=dt.UTC).timestamp()
SMALL_PAGES = Limits(page_rows=8, cut_rows=6, join_rows=2, most_in_overlay=3, fewest_for_overlay=4)
INSTANT, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")
EVER = 2**63 - 1
"""DuckDB's infinity, in microseconds."""
EVENTS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("g", pa.int64()), ("t", INSTANT), ("p", PLAIN), ("d", pa.date32())]
)


class WallClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def store(self, **given: Any) -> Store:
        return create_on(MemoryStorage(), environment=Environment(now=lambda: self.time), **given)


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def store(clock: WallClock) -> Iterator[Store]:
    with clock.store() as made:
        yield made


def micros(steps: int) -> int:
    """An instant some quarters of a day after the start."""
    return int(START * 1e6) + steps * 21_600_000_000


def event(k: int, g: int | None, at: int | None) -> dict[str, Any]:
    """An event; None and ±99 quarters stand for no time at all, and for always."""
    if at is None:
        return {"k": k, "g": g, "t": None, "p": None, "d": None}
    whole = {99: EVER, -99: -EVER}.get(at, micros(at))
    day = {99: 2**31 - 1, -99: -(2**31 - 1)}.get(at, micros(at) // 86_400_000_000)
    return {"k": k, "g": g, "t": whole, "p": whole, "d": day}


def events(rows: list[dict[str, Any]]) -> pa.Table:
    numbers = {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("k", "g", "t", "p")}
    days = pa.array([row["d"] for row in rows], pa.int32())
    columns = [numbers["k"], numbers["g"], numbers["t"].cast(INSTANT), numbers["p"].cast(PLAIN), days.cast(pa.date32())]
    return pa.Table.from_arrays(columns, schema=EVENTS)


def by_duckdb(sql: str, instant: str, tables: dict[str, pa.Table]) -> Counter[str]:
    """The oracle: the query from scratch, the clock a constant."""
    fixed = re.sub(r"now\(\)|current_timestamp", f"TIMESTAMPTZ '{instant}'", sql)
    fixed = re.sub(r"current_date|today\(\)", f"CAST(TIMESTAMPTZ '{instant}' AS DATE)", fixed)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return texts(connection.sql(fixed).to_arrow_table())


def texts(rows: pa.Table) -> Counter[str]:
    """Rows as text: Python has no infinite time."""
    numbers = {"timestamp": pa.int64(), "date32[day]": pa.int32()}
    kept = rows.drop_columns([name for name in rows.column_names if name == "_count"])
    whole = [column.cast(numbers.get(str(column.type).partition("[us")[0], column.type)) for column in kept.columns]
    counts = rows.column("_count").to_pylist() if "_count" in rows.column_names else [1] * len(rows)
    found: Counter[str] = Counter()
    for row, count in zip(zip(*(column.to_pylist() for column in whole), strict=True), counts, strict=True):
        found[str(row)] += count
    return found


LENGTHS = st.sampled_from(["INTERVAL 6 HOUR", "INTERVAL 1 DAY", "INTERVAL 30 HOUR", "INTERVAL 0 DAY"])
MOMENTS = st.one_of(
    st.just("now()"),
    st.just("current_timestamp"),
    LENGTHS.map(lambda length: f"now() - {length}"),
    LENGTHS.map(lambda length: f"now() + {length}"),
    st.just("now() - INTERVAL 1 MONTH"),
    st.just("date_trunc('day', now())"),
    st.sampled_from(["current_date", "today()", "current_date - 1", "current_date + 1"]),
)
SIDES = st.sampled_from(["t", "p", "d", "t + INTERVAL 6 HOUR", "t - INTERVAL 1 DAY", "CAST(p AS DATE)", "d + 1"])
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "IS DISTINCT FROM"])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    side, moment, sign = draw(SIDES), draw(MOMENTS), draw(SIGNS)
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return f"{side} BETWEEN {moment} AND {draw(MOMENTS)}"
    if kind == 1:
        return f"{moment} BETWEEN {side} AND {draw(SIDES)}"
    if kind == 2:
        return f"{moment} {sign.replace('IS DISTINCT FROM', '<')} {side}"
    if kind == 3:
        return f"d IN (current_date, current_date - {draw(st.integers(1, 3))}, NULL)"
    if kind == 4:
        gone = draw(st.sampled_from(["now() - t", "t - now()", "CAST(now() AS TIMESTAMP) - p"]))
        return f"CASE WHEN isfinite(t) THEN {gone} {sign} {draw(LENGTHS)} END"
    if kind == 5:
        hours = draw(st.integers(-9, 9))
        return f"CASE WHEN isfinite(p) THEN date_diff('hour', p, CAST(now() AS TIMESTAMP)) > {hours} END"
    if kind == 6:  # the clock on both sides, or beside a column
        mixed = draw(st.sampled_from(["coalesce(t, {0})", "greatest(t, {0})", "least({0}, t)"]))
        other = draw(st.one_of(st.just("t"), st.sampled_from(["now()", "now() - INTERVAL 6 HOUR"])))
        return f"{mixed.format('now() - ' + draw(LENGTHS))} {sign} {other}"
    return f"{side} {sign} {moment}"


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda both: f"({both[0]}) AND ({both[1]})"),
        st.tuples(inner, inner).map(lambda both: f"({both[0]}) OR ({both[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
        inner.map(lambda one: f"({one}) AND g > 0"),
        inner.map(lambda one: f"CASE WHEN {one} THEN g = 1 ELSE g = 2 END"),
    ),
    max_leaves=3,
)
VIEWS = (
    "select k, t from e where {0}",
    "select k, {0} as b from e where {1}",
    "select g, count(*) as n, max(t) as last from e where {0} group by g",
    "select g, count(*) filter (where {0}) as n, sum(case when {1} then k else 0 end) as s from e group by g",
    "select g, max(p) as p, max(t) as t, min(d) as d from e group by g having count(*) > 1 and {0}",
    "select distinct g from e where {0}",
    "select k from e where {0} union select k + 100 from e where {1}",
    "select a.k, b.k as other from e a left join (select g, k, p, t, d from e where {0}) b on a.k = b.g",
    "select o.id, e.k from o left join e on o.id = e.g and {0}",
    "select o.id from o where exists (select 1 from e where e.g = o.id and ({0}))",
    "select o.id, e.k from o join e on o.id = e.g where ({0}) and ({1})",
    "select o.id from o where o.id < (select max(k) from e where e.g = o.id and ({0}))",
)
TIMES = st.one_of(st.none(), st.integers(-8, 12), st.sampled_from([99, -99]))
ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), TIMES), max_size=14)
MOVES = st.sampled_from([0.0, 0.25, 0.25, 0.5, 1.0, 1.0, 3.0, 31.0, -0.25, -1.0, 0.1])


@settings(max_examples=examples(18))
@given(
    st.sampled_from(VIEWS),
    st.lists(CONDITIONS, min_size=2, max_size=2),
    ROWS,
    st.lists(st.tuples(MOVES, ROWS), min_size=1, max_size=3),
)
def test_what_a_view_was_with_its_difference_is_what_duckdb_makes_of_it_at_the_new_instant(
    shape: str, conditions: list[str], rows: list[Any], steps: list[Any]
) -> None:
    sql = shape.format(*conditions)
    note(sql)
    clock = WallClock()
    others = pa.table({"id": [0, 1, 2]})
    with clock.store(limits=SMALL_PAGES) as store:
        table = events([event(k, *row) for k, row in enumerate(rows)])
        store.create_table("e", table, key="k")
        store.create_table("o", others, key="id")
        view = store.view("v", sql)
        assert view.definition.reads_clock
        for move, new in steps:
            then, before = instant_at(clock.time), texts(view.to_arrow())
            assert before == by_duckdb(sql, then, {"e": table, "o": others})
            with store.snapshot() as since:
                clock.time += move * DAY
                if new:
                    changed = {k: event(k, *row) for k, row in enumerate(new)}
                    store.table("e").upsert(events(list(changed.values())))
                    table = store.table("e").to_arrow()
                with store.state(since) as older, store.state() as newer:
                    states = TwoStates(StoreState(older, store.cache, instant=then), state_now(store, newer))
                    change = view_delta(view.definition, states)
            truth = by_duckdb(sql, instant_at(clock.time), {"e": table, "o": others})
            before.update(texts(change))
            assert {row: count for row, count in before.items() if count} == truth


def hours(store: Store, count: int = 100, key: str = "k") -> None:
    """Events of which one is due each hour from the start on; by `t` they stand in order of time."""
    rows = pa.table({"k": range(count), "t": pa.array([micros(0) + n * 3_600_000_000 for n in range(count)], INSTANT)})
    store.create_table("e", rows.slice(0, 1), key=key)
    store.table("e").insert(rows.slice(1))


def test_a_copy_follows_the_clock_and_says_as_of_when_it_is_true(
    store: Store, clock: WallClock, tmp_path: Path
) -> None:
    hours(store)
    view = store.view("due", "select k, t from e where t > now() - interval 3 hour and t <= now()")
    assert view.key == ("k",)
    copy = view.replicate(f"sqlite:///{tmp_path}/due.db#due")
    for move, rows in ((1, 2), (1, 3), (0, 3), (5.5, 3), (-2, 3), (-9, 0), (9, 3)):
        clock.time += move * 3600
        done = copy.refresh()
        assert (done.method, done.unequal) == ("difference" if move else "nothing", "")
        assert done.as_of == instant_at(clock.time)
        assert copy.status()["rows"] == rows == view.to_arrow().num_rows
    told = copy.explain()
    assert told.as_of == copy.status()["as_of"] == instant_at(clock.time)
    assert f"as of {instant_at(clock.time)}" in str(told)
    clock.time += 7200
    assert copy.verify()  # it is true as of the instant that it says
    assert store.table("e").update(where="k = 5", set={"t": "t - interval 1 day"})
    assert not copy.verify()


def test_an_operator_above_follows_the_clock_through_copies(store: Store, clock: WallClock, tmp_path: Path) -> None:
    hours(store)
    week = store.view(
        "week", "select k % 2 as odd, count(*) as n from e where t >= now() - interval 1 day group by all"
    )
    late = store.view("late", "select odd, n from week where n < 60")
    copies = [one.replicate(f"duckdb:///{tmp_path}/r.duckdb#{one.name}") for one in (week, late)]
    for number in range(3):
        clock.time += 30 * 3600
        store.table("e").delete(where="k = :k", params={"k": 90 + number})
        done = store.refresh()
        assert {one.method for one in done.values()} == {"difference"}
        assert len({one.as_of for one in done.values()}) == 1  # copies that are refreshed together show one instant
        assert all(copy.verify() for copy in copies)


def test_pages_that_the_clock_has_not_passed_are_not_read(clock: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select k, t from e where t between now() - interval 2 hour and now()"
    for key in ("t", "k"):
        with clock.store(limits=SMALL_PAGES) as store:
            clock.time = START
            hours(store, key=key)
            definition = store.view("v", sql).definition
            for passed in range(5):
                clock.time += 3600
                store.cache.opened = 0
                with store.state() as view, monkeypatch.context() as patched:
                    patched.setattr(store.cache, "remember", lambda *page: None)
                    store.cache._kept.clear()
                    then = StoreState(view, store.cache, instant=instant_at(clock.time - 3600))
                    change = view_delta(definition, TwoStates(then, state_now(store, view)))
                assert change.column("k").to_pylist() == [passed - 2, passed + 1][passed < 2 :]
                # Of a column that is no key the bounds are learned by reading it once.
                assert (store.cache.opened > 10) == (key == "k" and passed == 0)


def test_the_clock_is_one_of_several_things_that_change(store: Store, clock: WallClock, tmp_path: Path) -> None:
    """A row that is irrelevant now may become relevant, and the other way round."""
    hours(store, 10)
    view = store.view("v", "select k from e where t < now() and k < 5")
    copy = view.replicate(f"sqlite:///{tmp_path}/v.db#v")
    later = {"k": 3, "t": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}
    (told,) = view.why(later)
    assert told.relevant
    assert not view.why({**later, "k": 7})[0].relevant
    store.table("e").upsert([later, {**later, "k": 4}])
    clock.time += DAY
    store.table("e").upsert([{"k": 4, "t": dt.datetime.fromtimestamp(clock.time - 1, dt.UTC)}])
    assert copy.refresh().messages == 4
    clock.time = dt.datetime(2030, 1, 1, tzinfo=dt.UTC).timestamp() + 1
    assert copy.refresh().messages == 1
    assert copy.verify()


def test_changes_of_a_view_compare_tables_at_one_instant_and_a_feed_follows_the_clock(
    store: Store, clock: WallClock
) -> None:
    hours(store, 10)
    view = store.view("v", "select k from e where t <= now()")
    store.snapshot("then")
    feed = ChangeFeed(store, "v")
    start = feed.latest(feed.beginning())
    assert feed.latest(start) == start
    clock.time += 1800
    assert feed.latest(start) == start  # nothing has come due
    clock.time += 3 * 3600
    store.table("e").delete(where="k = 2")
    assert view.changes(since="then").summary().deleted == 1
    end = feed.latest(start)
    assert sorted(feed.changes(start, end).rows.column("k").to_pylist()) == [1, 3]
    assert feed.changes(start, end) == feed.changes(start, end)


def test_target_lag_counts_from_the_instant_that_a_copy_shows(store: Store, clock: WallClock, tmp_path: Path) -> None:
    hours(store)
    store.view("v", "select k from e where t < now()").replicate(f"sqlite:///{tmp_path}/v.db#v", target_lag="10m")
    clock.time += 300
    assert store.refresh(due=True) == {}
    clock.time += 301
    assert list(store.refresh(due=True)) == ["v"]
    assert store.refresh(due=True) == {}


def test_a_view_of_the_clock_is_never_kept_at_commits(store: Store, clock: WallClock, tmp_path: Path) -> None:
    hours(store)
    with pytest.raises(InputError, match="clock, which moves between commits"):
        store.view("v", "select k from e where t < now()", maintain="eager")
    store.view("below", "select k, t from e where k < 50")
    copy = store.view("v", "select k from below", maintain="eager").replicate(f"sqlite:///{tmp_path}/v.db#v")
    store.view("below", "select k, t from e where t < now()")
    for _ in range(3):
        clock.time += 5 * 3600
        store.table("e").delete(where="k = :k", params={"k": int(clock.time) % 7})
        assert copy.refresh().unequal == ""
        assert copy.verify()
    assert copy.explain().maintain.maintain == "deferred"  # type: ignore[union-attr]


def test_stored_rows_follow_the_clock_at_refreshes(store: Store, clock: WallClock) -> None:
    hours(store)
    with pytest.raises(InputError, match="clock, which moves between commits"):
        store.view("v", "select k from e where t < now()", stored=True, maintain="eager")
    view = store.view("v", "select count(*) as n from e where t < now()", stored=True)
    over = store.view("w", "select n + 1 as more from v", stored=True)
    for n in (10, 15):
        before = view.to_arrow().to_pylist()
        clock.time = START + n * 3600
        assert view.to_arrow().to_pylist() == before, "as of the last refresh"
        assert store.refresh()["v"].method == "difference"
        assert view.to_arrow().to_pylist() == [{"n": n}]
        assert over.to_arrow().to_pylist() == [{"more": n + 1}]
        assert view.verify()
        assert over.verify()
    store.autocommit(lambda tx: tx.add_column("e", "late", "int64"))
    clock.time = START + 12 * 3600
    store.refresh()
    assert view.to_arrow().to_pylist() == [{"n": 12}], "a clock that was set back"


def test_spark_reads_the_clock_of_the_store(clock: WallClock, spark: object, tmp_path: Path) -> None:
    with create_on(LocalStorage(tmp_path / "e"), environment=Environment(now=lambda: clock.time)) as store:
        hours(store)
        view = store.view("v", "select count(*) as n from e where t < now()")
        for n, by in ((7, "kernels"), (11, "sql")):
            clock.time = START + n * 3600
            assert view.to_spark(by=by).toArrow().to_pylist() == [{"n": n}]


@pytest.mark.parametrize(
    "sql",
    [
        "select k, now() as n from e",
        "select k, now() - t as n from e",
        "select count(*) as n, current_date as d from e",
        "select k from e where t < now() and random() < 0.5",
        "select max(now()) as n from e",
        "select k from e where t::time < current_localtime()",
        "select k, row_number() over (order by t - now(), k) as n from e",
    ],
)
def test_what_can_not_be_followed_is_refused(store: Store, sql: str) -> None:
    hours(store, 5)
    with pytest.raises(SqlError, match="strict=False"):
        store.view("v", sql)


def test_the_outline_says_how_rows_are_found(store: Store) -> None:
    hours(store, 5)
    assert "found by the order of t" in store.view("v", "select k from e where t < now() - interval 1 day").explain()
    through = store.view("v", "select k from e where date_diff('day', t, now()) > 3").explain()
    assert "all rows are looked through" in through


def test_a_query_and_a_regenerated_view_read_the_same_clock(store: Store, clock: WallClock) -> None:
    hours(store)
    view = store.view("v", "select k from e where t < current_timestamp")
    clock.time += 10 * 3600
    assert store.query("select count(*) as n from v").to_pylist() == [{"n": 10}]
    with store.state() as state:
        assert len(regenerate(view.definition, state_now(store, state), store.running())) == 10
