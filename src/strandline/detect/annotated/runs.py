"""Figure 3 without sorting the base: between two changed entries only the least and greatest qualified one matter.

The changed entries (`MET`) cut the addresses into runs. One unordered, parallel scan gives for each run its least and
greatest qualified address (`width_bucket` finds the run by binary search); all else happens among changed entries and
runs: LastQual is the greatest before an entry, and the entry that a deletion makes known is the least from it on.
For PostgreSQL and the marked algorithm.
"""

from __future__ import annotations

from strandline.detect.annotated.names import GAP, MET, RUNS, SENT, TIME, TOUCHED
from strandline.detect.annotated.statements import CHANGED, EMPTIED, HELD, LAST_QUAL, QUALIFIED, A, Asked, Statements
from strandline.replicas.databases import quoted

_TELLING = f"({EMPTIED} OR ({CHANGED} AND ({QUALIFIED} OR {HELD})))"
"""Others changed without a trace in the copy: they neither qualify nor are held."""
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def met(base: Statements, asked: Asked) -> str:
    """The entries since `snap_time` that make messages: sent ones, and those by which something goes from the copy.

    If the last fix-up was this copy's own, no scan looks for them.
    """
    a, t, g = quoted(base.address), quoted(TIME), quoted(GAP)
    snap_time = asked.snap_time
    own = snap_time == base.now - 1
    if own:  # `TOUCHED` has it all
        chosen = f"{A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, {HELD}"
        return f"CREATE TEMP TABLE {MET} AS SELECT {chosen} FROM {TOUCHED} WHERE {_TELLING}"
    since = f"(x.{t} > {snap_time} OR x.{g} > {snap_time})"
    held = f"coalesce(f.{HELD}, {asked.held})"
    table = f"(SELECT *, {asked.qualifies} AS {QUALIFIED} FROM {base.table}) x"
    touched = f"(SELECT {A}, CASE WHEN {CHANGED} THEN {HELD} END AS {HELD} FROM {TOUCHED}) f"
    found = (
        f"SELECT CAST(x.{a} AS bigint) AS {A}, {QUALIFIED}, "
        f"x.{t} > {snap_time} AS {CHANGED}, coalesce(x.{g}, 0) > {snap_time} AS {EMPTIED}, {held} AS {HELD} "
        f"FROM {table} LEFT JOIN {touched} ON f.{A} = x.{a} WHERE {since}"
    )
    return f"CREATE TEMP TABLE {MET} AS SELECT * FROM ({found}) m WHERE {_TELLING}"


def runs(base: Statements, asked: Asked) -> str:
    """For each run its least and greatest qualified address; run 0 is before the first changed entry."""
    a = f"CAST({quoted(base.address)} AS bigint)"
    cuts = f"(SELECT coalesce(array_agg({A} ORDER BY {A}), '{{}}') FROM {MET})"
    return (
        f"CREATE TEMP TABLE {RUNS} AS SELECT width_bucket({a}, {cuts}) AS run, min({a}) AS least, max({a}) AS greatest "
        f"FROM {base.table} WHERE {asked.qualifies} GROUP BY 1"
    )


def runs_by_lookup(base: Statements, asked: Asked) -> str:
    """The same, where few entries changed: from both ends of each run along the address's index.

    A run without a qualified entry has NULLs here, which no minimum or maximum minds.
    """
    a, most = quoted(base.address), 2**63 - 1
    cuts = (
        f"SELECT row_number() OVER (ORDER BY {A}) AS run, {A} AS low, lead({A}) OVER (ORDER BY {A}) - 1 AS high "
        f"FROM {MET} "
        f"UNION ALL SELECT 0, CAST('{-(2**63)}' AS bigint), min({A}) - 1 FROM {MET}"
    )
    inside = f"{a} >= c.low AND {a} <= coalesce(c.high, {most}) AND {asked.qualifies}"
    first = f"(SELECT CAST({a} AS bigint) FROM {base.table} WHERE {inside} ORDER BY {a} LIMIT 1)"
    last = f"(SELECT CAST({a} AS bigint) FROM {base.table} WHERE {inside} ORDER BY {a} DESC LIMIT 1)"
    return f"CREATE TEMP TABLE {RUNS} AS SELECT run, {first} AS least, {last} AS greatest FROM ({cuts}) c"


def sent_by_runs(base: Statements, asked: Asked) -> str:
    """The messages, as `Statements.sent` gives them."""
    start = f"CAST('{base.start}' AS bigint)"
    places = (
        f"SELECT {A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, {HELD}, 2 * row_number() OVER (ORDER BY {A}) - 1 AS place, "
        f"CAST(NULL AS bigint) AS least, CAST(NULL AS bigint) AS greatest FROM {MET} "
        f"UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, 2 * run, least, greatest FROM {RUNS} "
        f"UNION ALL SELECT NULL, FALSE, FALSE, {asked.tail_gap > asked.snap_time}, FALSE, {2**63 - 1}, NULL, NULL"
    )
    neighbours = (
        f"SELECT *, coalesce(max(greatest) OVER (ORDER BY place {_BEFORE}), {start}) AS {LAST_QUAL}, "
        f"min(least) OVER (ORDER BY place DESC {_BEFORE}) AS next_qual FROM ({places}) p"
    )
    deletion = f"({EMPTIED} AND NOT ({QUALIFIED} AND {CHANGED})) OR (NOT {QUALIFIED} AND {CHANGED} AND {HELD})"
    return (
        f"CREATE TEMP TABLE {SENT} AS WITH known AS MATERIALIZED ({neighbours}) "
        f"SELECT {A}, {LAST_QUAL}, TRUE AS {CHANGED} FROM known WHERE {QUALIFIED} AND {CHANGED} "
        f"UNION ALL SELECT next_qual, max({LAST_QUAL}), FALSE FROM known k WHERE ({deletion}) AND NOT EXISTS "
        f"(SELECT 1 FROM {MET} m WHERE m.{A} = k.next_qual AND m.{QUALIFIED} AND m.{CHANGED}) GROUP BY next_qual"
    )
