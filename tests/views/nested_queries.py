"""Random queries of every kind that operators follow, nested as people nest them: groups over joins over unions …

A query's columns are numbers (`n0`, `n1`, …) and texts (`s0`, …), so that any query can stand inside any other. Every
order leaves no choice, as DuckDB's own answer is the oracle. What is drawn is the shape of a query; `CLAUSES` lists
every way of saying every operator, so that tests can ask for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from tests.views.histories import Relations

FILTERS = ("", " filter (where {n} > 1)", " filter (where {s} is null)")
ROWS_OF_OTHERS = " from {other} o where o.s = a.s0"
TYPED = "{n} < length(date '2024-01-02'::timestamp::varchar) - 17"
AGGREGATES = (
    *("count(*){f}", "count({n}){f}", "sum({n}){f}", "min({n}){f}", "max({n}){f}", "median({n}){f}", "count(){f}"),
    *("count(distinct {n}){f}", "sum(distinct {n}){f}", "max({n}, 2)[2]", "(list({n} order by {n} desc){f})[1]"),
    *("round(avg({n}){f}, 6)", "round(stddev({n}){f}, 6)", "round(variance({n}){f}, 6)", "sum({n}::double){f}"),
    *("round(avg({n}::double){f}, 4)", "bool_and({n} > 1){f}::int", "bool_or({n} > 1){f}::int"),
)
TEXTS = (
    *("min({s})", "max({s})", "string_agg({s}, ',' order by {s})", "any_value({s}) is null"),
    *("list({s} order by {s})", "string_agg(distinct {s}, ',' order by {s})"),
)
BY_TEXT = "a.s0"
"""What groups are made by where the rest of the query may read it."""
CORRELATED = (
    *("exists (select 1{met})", "min({n}) < (select max(o.x){met})", "count(*) > (select count(o.x){met})"),
    "max({n}) in (select o.y{met})",
)
PLACES = ("row_number()", "lag({n})", "lead({n})", "first_value({n})", "ntile(2)")
RANKS = ("rank()", "dense_rank()", "percent_rank()", "cume_dist()")
FRAMED = ("sum({n})", "min({n})", "count(*)")
FROM_CONSTANTS = (
    "(values (1, 'a'), (2, null), (null, 'b')) v(n, s)",
    "(select i as n, 'a' as s from range(3) r(i)) v",
)
SCALARS = (
    *("count(*)", "sum(b.n0)", "max(b.n0)", "2 * min(b.n0)", "coalesce(max(b.n0), 1)", "count(b.n0) + max(b.n0)"),
    *("count(*) filter (b.n0 > 1)", "count(distinct b.n0)", "avg(b.n0::decimal(9, 2))::decimal(18, 1)"),
)
LIMITED = (
    "select a.* from ({below}) a{end}",
    "(select a.* from ({below}) a){end}",
    "(select a.* from ({below}) a{end}) order by {names} limit 2",
    "(with w as ({below}) select * from w a) order by {names} limit 2",
    "(select a.* from ({below}) a order by {order}) limit 2",
)


@dataclass(frozen=True)
class Nested:
    """A query with its columns: how many numbers, and how many texts."""

    sql: str
    numbers: int
    texts: int

    def columns(self, alias: str = "") -> list[str]:
        place = f"{alias}." if alias else ""
        return [f"{place}n{one}" for one in range(self.numbers)] + [f"{place}s{one}" for one in range(self.texts)]


@dataclass(frozen=True)
class Clause:
    """One way of saying an operator: which, and an option for one of its pieces."""

    maker: str
    piece: str
    option: str


@dataclass(frozen=True)
class Pen:
    """What a maker draws with: how the pieces of its operator are chosen, and what it may read."""

    draw: st.DrawFn
    known: Relations
    depth: int
    clause: Clause

    def piece(self, name: str) -> str:
        """An option for a piece: the one that is asked for, or any."""
        if name == self.clause.piece:
            return self.clause.option
        return str(self.draw(st.sampled_from(PIECES[self.clause.maker][name])))

    def other(self) -> Nested:
        """Another query."""
        return self.draw(_query(self.known, self.depth - 1))

    def number(self, below: Nested, alias: str = "a") -> str:
        return f"{alias}.n{self.draw(st.integers(0, below.numbers - 1))}"


@st.composite
def nested_queries(draw: st.DrawFn, known: Relations, depth: int = 4, top: Clause | None = None) -> str:
    """One query of up to so many operators on top of each other; the uppermost is this clause, if one is given."""
    return draw(_query(known, depth, top)).sql


@st.composite
def _query(draw: st.DrawFn, known: Relations, depth: int, top: Clause | None = None) -> Nested:
    if depth == 0:
        name = draw(st.sampled_from(sorted(known.keys)))
        return Nested(f"select x as n0, y as n1, s as s0 from {name}", 2, 1)
    below = draw(_query(known, draw(st.integers(0, depth - 1))))
    clause = top or Clause(draw(st.sampled_from(sorted(MAKERS))), "", "")
    return MAKERS[clause.maker](Pen(draw, known, depth, clause), below)


def _where(pen: Pen, below: Nested) -> Nested:
    term = pen.piece("term").format(n=pen.number(below), s="a.s0")
    return Nested(f"select a.* from ({below.sql}) a where {term}", below.numbers, below.texts)


def _constants(pen: Pen, below: Nested) -> Nested:
    """Joined with rows that never change, and with a value of a SELECT without FROM, which may read the row."""
    number = pen.number(below)
    value = pen.piece("value").format(n=number)
    joined = f"({below.sql}) a {pen.piece('side')} join {pen.piece('rows')} on v.n = {number}"
    return Nested(f"select (select {value})::decimal(18, 2) as n0, v.n as n1, v.s as s0 from {joined}", 2, 1)


def _group(pen: Pen, below: Nested) -> Nested:
    correlated = pen.clause.piece == "correlated"
    by = BY_TEXT if correlated else pen.piece("by").format(n=pen.number(below))
    number = pen.number(below)
    value = pen.piece("value").format(n=number, f=pen.piece("filter").format(n=number, s="a.s0"))
    texts = (*TEXTS, "any_value({s})") if by == BY_TEXT else TEXTS
    text = pen.piece("text") if pen.clause.piece == "text" else str(pen.draw(st.sampled_from(texts)))
    having = pen.piece("having").format(n=pen.number(below))
    if correlated or (by == BY_TEXT and pen.clause.piece != "having" and pen.draw(st.booleans())):
        met = ROWS_OF_OTHERS.format(other=pen.draw(st.sampled_from(sorted(pen.known.keys))))
        having = " having " + pen.piece("correlated").format(n=pen.number(below), met=met)
    more = pen.piece("more").format(n=pen.number(below))
    shown = f"({by})::varchar as s0, ({value})::decimal(18, 2) as n0, ({text.format(s='a.s0')})::varchar as s1"
    return Nested(f"select {shown} from ({below.sql}) a group by {by}{more}{having}", 1, 2)


def _whole(pen: Pen, below: Nested) -> Nested:
    value = pen.piece("value").format(n=pen.number(below), f="")
    return Nested(f"select ({value})::decimal(18, 2) as n0, max(a.s0) as s0 from ({below.sql}) a", 1, 1)


def _distinct(pen: Pen, below: Nested) -> Nested:
    return Nested(f"select {pen.piece('word')} {pen.number(below)} as n0, a.s0 from ({below.sql}) a", 1, 1)


def _union(pen: Pen, below: Nested) -> Nested:
    sides = [
        f"select ({pen.number(one)})::decimal(18, 2) as n0, a.s0 from ({one.sql}) a" for one in (below, pen.other())
    ]
    return Nested(f"select * from ({sides[0]} {pen.piece('kind')} {sides[1]})", 1, 1)


def _outer(pen: Pen, below: Nested) -> Nested:
    other, side = pen.other(), pen.piece("side")
    terms = [f"{pen.number(below)} = {pen.number(other, 'b')}"]
    more = pen.piece("more").format(n=pen.number(below))
    terms += [more] if more and not (side == "full" and "<" in more) else []
    sql = f"select {pen.number(below)} as n0, {pen.number(other, 'b')} as n1, a.s0 as s0, b.s0 as s1"
    return Nested(f"{sql} from ({below.sql}) a {side} join ({other.sql}) b on {' and '.join(terms)}", 2, 2)


def _exists(pen: Pen, below: Nested) -> Nested:
    other, shown = pen.other(), "1" if pen.clause.piece == "having" else pen.piece("shown")
    terms = dict.fromkeys([pen.piece("term"), pen.piece("term")])
    met = " and ".join(one.format(n=pen.number(below)) for one in terms)
    having = "" if shown == "*" else pen.piece("having")
    asked = f"{pen.piece('word')} (select {shown} from ({other.sql}) b where {met}{having})"
    return Nested(f"select a.* from ({below.sql}) a where {asked}", below.numbers, below.texts)


def _within(pen: Pen, below: Nested) -> Nested:
    inside = f"(select b.n0 from ({pen.other().sql}) b{pen.piece('kept')})"
    term = f"{pen.number(below)} {pen.piece('word')} {inside}{pen.piece('more')}"
    return Nested(f"select a.* from ({below.sql}) a where {term}", below.numbers, below.texts)


def _scalar(pen: Pen, below: Nested) -> Nested:
    other, term = pen.other(), pen.piece("term").format(n=pen.number(below))
    asked = f"(select {pen.piece('value')} from ({other.sql}) b{term})::decimal(18, 2)"
    if pen.piece("place") == "shown":
        return Nested(f"select {pen.number(below)} as n0, {asked} as n1, a.s0 from ({below.sql}) a", 2, 1)
    sql = f"select a.* from ({below.sql}) a where {pen.number(below)} < {asked}"
    return Nested(sql, below.numbers, below.texts)


def _window(pen: Pen, below: Nested) -> Nested:
    by = pen.piece("by").format(n=pen.number(below))
    called = str(pen.draw(st.sampled_from(FRAMED))) if pen.clause.piece == "filter" else pen.piece("called")
    frame = pen.piece("frame")
    order = ", ".join(below.columns("a")) if called in PLACES or frame else pen.number(below)
    called += pen.piece("filter") if called in FRAMED else ""
    value = f"({called.format(n=pen.number(below), s='a.s0')} over ({by}order by {order}{frame}))::decimal(18, 2)"
    sql = f"select {value} as n0, {pen.number(below)} as n1, a.s0 from ({below.sql}) a"
    return Nested(sql + pen.piece("qualify").format(value=value), 2, 1)


def _top(pen: Pen, below: Nested) -> Nested:
    order = ", ".join(f"{one} {pen.draw(st.sampled_from(['asc', 'desc']))}" for one in below.columns("a"))
    end, names = f" order by {order} limit 3{pen.piece('offset')}", ", ".join(below.columns())
    query = pen.piece("query").format(below=below.sql, end=end, order=order, names=names)
    return Nested(f"select * from ({query}) z", below.numbers, below.texts)


def _with(pen: Pen, below: Nested) -> Nested:
    """A query that is read twice; one WITH in another."""
    other = pen.piece("with").format(below=below.sql)
    return Nested(f"{other} select a.n0, b.s0 from q a join q b on a.s0 = b.s0 where b.n0 is not null", 1, 1)


def _view(pen: Pen, below: Nested) -> Nested:
    """A query under a name of its own: a view that this one stands on."""
    name = f"view{len(pen.known.views)}"
    pen.known.views[name] = (below.sql, pen.piece("kept") == "stored")
    return Nested(f"select a.* from {name} a", below.numbers, below.texts)


MAKERS: dict[str, Callable[[Pen, Nested], Nested]] = {
    "where": _where,
    "constants": _constants,
    "group": _group,
    "whole": _whole,
    "distinct": _distinct,
    "union": _union,
    "outer": _outer,
    "exists": _exists,
    "within": _within,
    "scalar": _scalar,
    "window": _window,
    "top": _top,
    "with": _with,
    "view": _view,
}
PIECES: dict[str, dict[str, tuple[str, ...]]] = {
    "where": {"term": ("{n} < 2", "{n} is null", "{s} in ('a', 'u')", "not {n} = 1", TYPED)},
    "constants": {"side": ("", "left", "full"), "value": ("1", "{n} + 1"), "rows": FROM_CONSTANTS},
    "group": {
        "by": (BY_TEXT, "{n}", "coalesce({n}, 0) % 2"),
        "more": ("", ", {n}"),
        "value": AGGREGATES,
        "filter": FILTERS,
        "text": TEXTS,
        "having": ("", " having count(*) > 1", " having min({n}) is not null"),
        "correlated": CORRELATED,
    },
    "whole": {"value": AGGREGATES},
    "distinct": {"word": ("distinct",)},
    "union": {"kind": ("union all", "union", "except", "intersect", "except all", "intersect all")},
    "outer": {"side": ("left", "right", "full", ""), "more": ("", "a.s0 = b.s0", "{n} < 3")},
    "exists": {
        "word": ("exists", "not exists"),
        "term": ("b.n0 = {n}", "b.s0 = a.s0", "b.n0 > {n}", "b.n0 > 1"),
        "shown": ("1", "*", "count(*)", "max(b.n0)"),
        "having": ("", " having count(*) > 1", " having true"),
    },
    "within": {
        "word": ("in", "not in"),
        "more": ("", " or a.s0 is null", " and a.s0 is not null"),
        "kept": ("", " where b.n0 is not null", " where b.s0 = a.s0"),
    },
    "scalar": {
        "place": ("shown", "met"),
        "value": SCALARS,
        "term": (
            *("", " where b.s0 = a.s0", " where a.s0 || '' = b.s0 and b.n0 > 0", " where b.n0 <= {n}"),
            *(" where b.n0 = {n}", " where b.n0::bigint = {n}::bigint + 1 and b.s0 = a.s0"),
        ),
    },
    "window": {
        "by": ("partition by a.s0 ", "partition by {n} ", ""),
        "called": (*PLACES, *RANKS, *FRAMED),
        "frame": ("", " rows between 1 preceding and 1 following"),
        "filter": FILTERS,
        "qualify": ("", " qualify {value} <= 2"),
    },
    "top": {"query": LIMITED, "offset": ("", " offset 1")},
    "with": {"with": ("with q as ({below})", "with q as (with w as ({below}) select * from w)")},
    "view": {"kept": ("virtual", "stored")},
}
CLAUSES = tuple(
    Clause(maker, piece, option)
    for maker, pieces in PIECES.items()
    for piece, options in pieces.items()
    for option in options
)
