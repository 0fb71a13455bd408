"""Random queries of every kind that operators follow, nested as people nest them: groups over joins over unions …

A query's columns are numbers (`n0`, `n1`, …) and texts (`s0`, …), so that any query can stand inside any other. Every
order leaves no choice, as DuckDB's own answer is the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from tests.views.histories import Relations

AGGREGATES = (
    *("count(*){f}", "count({n}){f}", "sum({n}){f}", "min({n}){f}", "max({n}){f}", "median({n}){f}", "count(){f}"),
    *("count(distinct {n}){f}", "sum(distinct {n}){f}", "max({n}, 2)[2]", "(list({n} order by {n} desc){f})[1]"),
    *("round(avg({n}){f}, 6)", "round(stddev({n}){f}, 6)", "round(variance({n}){f}, 6)"),
    *("bool_and({n} > 1){f}::int", "bool_or({n} > 1){f}::int"),
)
TEXTS = (
    *("min({s})", "max({s})", "string_agg({s}, ',' order by {s})", "any_value({s}) is null"),
    *("list({s} order by {s})", "string_agg(distinct {s}, ',' order by {s})"),
)
PLACES = ("row_number()", "lag({n})", "lead({n})", "first_value({n})", "ntile(2)")
RANKS = ("rank()", "dense_rank()", "percent_rank()", "cume_dist()")
TYPED = "{n} < length(date '2024-01-02'::timestamp::varchar) - 17"
FILTERS = ("", "", " filter (where {n} > 1)", " filter (where {s} is null)")


@dataclass(frozen=True)
class Nested:
    """A query with its columns: how many numbers, and how many texts."""

    sql: str
    numbers: int
    texts: int

    def columns(self, alias: str = "") -> list[str]:
        place = f"{alias}." if alias else ""
        return [f"{place}n{one}" for one in range(self.numbers)] + [f"{place}s{one}" for one in range(self.texts)]


@st.composite
def nested_queries(draw: st.DrawFn, known: Relations, depth: int = 4) -> str:
    """One query of up to so many operators on top of each other."""
    return draw(_query(known, depth)).sql


@st.composite
def _query(draw: st.DrawFn, known: Relations, depth: int) -> Nested:
    if depth == 0:
        name = draw(st.sampled_from(sorted(known.keys)))
        return Nested(f"select x as n0, y as n1, s as s0 from {name}", 2, 1)
    below = draw(_query(known, draw(st.integers(0, depth - 1))))
    makers = [
        _where,
        _group,
        _whole,
        _distinct,
        _union,
        _outer,
        _exists,
        _within,
        _scalar,
        _window,
        _top,
        _with,
        _constants,
    ]
    return draw(st.sampled_from(makers))(draw, known, below, depth)


def _number(draw: st.DrawFn, below: Nested, alias: str = "a") -> str:
    return f"{alias}.n{draw(st.integers(0, below.numbers - 1))}"


def _where(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    term = draw(st.sampled_from(["{n} < 2", "{n} is null", "{s} in ('a', 'u')", "not {n} = 1", TYPED]))
    term = term.format(n=_number(draw, below), s="a.s0")
    return Nested(f"select a.* from ({below.sql}) a where {term}", below.numbers, below.texts)


def _constants(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    """Joined with rows that never change, and with a value of a SELECT without FROM, which may read the row."""
    number = _number(draw, below)
    rows = ["(values (1, 'a'), (2, null), (null, 'b')) v(n, s)", "(select i as n, 'a' as s from range(3) r(i)) v"]
    side, value = draw(st.sampled_from(["", "left", "full"])), draw(st.sampled_from(["1", f"{number} + 1"]))
    joined = f"({below.sql}) a {side} join {draw(st.sampled_from(rows))} on v.n = {number}"
    return Nested(f"select (select {value})::decimal(18, 2) as n0, v.n as n1, v.s as s0 from {joined}", 2, 1)


def _group(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    by = draw(st.sampled_from(["a.s0", _number(draw, below), f"coalesce({_number(draw, below)}, 0) % 2"]))
    value, filtered = draw(st.sampled_from(AGGREGATES)), draw(st.sampled_from(FILTERS))
    number = _number(draw, below)
    value = value.format(n=number, f=filtered.format(n=number, s="a.s0"))
    text = draw(st.sampled_from((*TEXTS, "any_value({s})") if by == "a.s0" else TEXTS)).format(s="a.s0")
    other = draw(st.sampled_from(sorted(known.keys)))
    terms = ["", " having count(*) > 1", f" having min({_number(draw, below)}) is not null"]
    if by == "a.s0":
        met = f"from {other} o where o.s = a.s0"
        terms += [f" having exists (select 1 {met})", f" having min({_number(draw, below)}) < (select max(o.x) {met})"]
        terms += [f" having count(*) > (select count(o.x) {met})"]
    having = draw(st.sampled_from(terms))
    sql = f"select ({by})::varchar as s0, ({value})::decimal(18, 2) as n0, ({text})::varchar as s1 from ({below.sql}) a"
    more = draw(st.sampled_from(["", "", f", {_number(draw, below)}"]))
    return Nested(f"{sql} group by {by}{more}{having}", 1, 2)


def _whole(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    value = draw(st.sampled_from(AGGREGATES)).format(n=_number(draw, below), f="")
    return Nested(f"select ({value})::decimal(18, 2) as n0, max(a.s0) as s0 from ({below.sql}) a", 1, 1)


def _distinct(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    return Nested(f"select distinct {_number(draw, below)} as n0, a.s0 from ({below.sql}) a", 1, 1)


def _union(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    other = draw(_query(known, depth - 1))
    kind = draw(st.sampled_from(["union all", "union", "except", "intersect", "except all", "intersect all"]))
    sides = [f"select ({_number(draw, one)})::decimal(18, 2) as n0, a.s0 from ({one.sql}) a" for one in (below, other)]
    return Nested(f"select * from ({sides[0]} {kind} {sides[1]})", 1, 1)


def _outer(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    other = draw(_query(known, depth - 1))
    side = draw(st.sampled_from(["left", "right", "full", ""]))
    terms = [f"{_number(draw, below)} = {_number(draw, other, 'b')}"]
    terms += ["a.s0 = b.s0"] if draw(st.booleans()) else []
    terms += [f"{_number(draw, below)} < 3"] if draw(st.booleans()) and side != "full" else []
    sql = f"select {_number(draw, below)} as n0, {_number(draw, other, 'b')} as n1, a.s0 as s0, b.s0 as s1"
    return Nested(f"{sql} from ({below.sql}) a {side} join ({other.sql}) b on {' and '.join(terms)}", 2, 2)


def _exists(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    other = draw(_query(known, depth - 1))
    terms = [f"b.n0 = {_number(draw, below)}", "b.s0 = a.s0", f"b.n0 > {_number(draw, below)}", "b.n0 > 1"]
    term = " and ".join(draw(st.lists(st.sampled_from(terms), min_size=1, max_size=2, unique=True)))
    not_ = draw(st.sampled_from(["", "not "]))
    shown = draw(st.sampled_from(["1", "1", "*", "count(*)", "max(b.n0)"]))
    havings = (
        ["", "", " having count(*) > 1"] if "(" in shown else ["", "", "", " having true"] if shown == "1" else [""]
    )
    having = draw(st.sampled_from(havings))
    sql = (
        f"select a.* from ({below.sql}) a where {not_}exists (select {shown} from ({other.sql}) b where {term}{having})"
    )
    return Nested(sql, below.numbers, below.texts)


def _within(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    other = draw(_query(known, depth - 1))
    not_ = draw(st.sampled_from(["", "not "]))
    more = draw(st.sampled_from(["", " or a.s0 is null", " and a.s0 is not null"]))
    kept = draw(st.sampled_from(["", " where b.n0 is not null", " where b.s0 = a.s0"]))
    inside = f"(select b.n0 from ({other.sql}) b{kept})"
    sql = f"select a.* from ({below.sql}) a where {_number(draw, below)} {not_}in {inside}{more}"
    return Nested(sql, below.numbers, below.texts)


def _scalar(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    other = draw(_query(known, depth - 1))
    number = _number(draw, below)
    terms = ["", " where b.s0 = a.s0", " where a.s0 || '' = b.s0 and b.n0 > 0", f" where b.n0 <= {number}"]
    terms += [f" where b.n0 = {number}", f" where b.n0::bigint = {number}::bigint + 1 and b.s0 = a.s0"]
    term = draw(st.sampled_from(terms))
    values = [
        "count(*)",
        "sum(b.n0)",
        "max(b.n0)",
        "2 * min(b.n0)",
        "coalesce(max(b.n0), 1)",
        "count(b.n0) + max(b.n0)",
    ]
    value = draw(st.sampled_from([*values, "count(*) filter (b.n0 > 1)", "count(distinct b.n0)"]))
    asked = f"(select {value} from ({other.sql}) b{term})::decimal(18, 2)"
    if draw(st.booleans()):
        return Nested(f"select {_number(draw, below)} as n0, {asked} as n1, a.s0 from ({below.sql}) a", 2, 1)
    sql = f"select a.* from ({below.sql}) a where {_number(draw, below)} < {asked}"
    return Nested(sql, below.numbers, below.texts)


def _window(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    every = ", ".join(below.columns("a"))
    by = draw(st.sampled_from(["partition by a.s0 ", f"partition by {_number(draw, below)} ", ""]))
    called = draw(st.sampled_from([*PLACES, *RANKS, "sum({n})", "min({n})", "count(*)"]))
    frame = draw(st.sampled_from(["", " rows between 1 preceding and 1 following"]))
    order = every if called in PLACES or frame else _number(draw, below)
    if called in ("sum({n})", "min({n})", "count(*)"):
        called += draw(st.sampled_from(FILTERS))
    value = f"({called.format(n=_number(draw, below), s='a.s0')} over ({by}order by {order}{frame}))::decimal(18, 2)"
    sql = f"select {value} as n0, {_number(draw, below)} as n1, a.s0 from ({below.sql}) a"
    return Nested(sql + draw(st.sampled_from(["", f" qualify {value} <= 2"])), 2, 1)


def _top(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    order = ", ".join(f"{one} {draw(st.sampled_from(['asc', 'desc']))}" for one in below.columns("a"))
    end = f" order by {order} limit 3{draw(st.sampled_from(['', ' offset 1']))}"
    names = ", ".join(below.columns())
    queries = [f"select a.* from ({below.sql}) a{end}", f"(select a.* from ({below.sql}) a){end}"]
    queries += [f"(select a.* from ({below.sql}) a{end}) order by {names} limit 2"]
    queries += [f"(with w as ({below.sql}) select * from w a) order by {names} limit 2"]
    queries += [f"(select a.* from ({below.sql}) a order by {order}) limit 2"]
    return Nested(f"select * from ({draw(st.sampled_from(queries))}) z", below.numbers, below.texts)


def _with(draw: st.DrawFn, known: Relations, below: Nested, depth: int) -> Nested:
    sql = f"with q as ({below.sql}) select a.n0, b.s0 from q a join q b on a.s0 = b.s0 where b.n0 is not null"
    return Nested(sql, 1, 1)
