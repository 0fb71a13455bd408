"""Figure 3 without sorting the base, for PostgreSQL and the marked algorithm: SQL texts for `program`.

Between two changed entries only the least and greatest qualified one matter. The entries that make messages (`MET`) cut
the addresses into runs. Where they are few, `sent_by_lookup` finds LastQual of each, and the entry that a deletion
makes known, along the address's index. Where they are many, one unordered, parallel scan gives for each run its least
and greatest qualified address (`width_bucket` finds the run by binary search), and `sent_by_runs` does the rest.
"""

from __future__ import annotations

from strandline.replication.senders.annotated.base_table import ADDRESS, GAP, TIME
from strandline.replication.senders.annotated.statements import (
    CHANGED,
    EMPTIED,
    HELD,
    LAST_QUAL,
    MET,
    QUALIFIED,
    RUNS,
    TOUCHED,
    A,
    Statements,
)
from strandline.values import quoted

_TELLING = f"({EMPTIED} OR ({CHANGED} AND ({QUALIFIED} OR {HELD})))"
"""Others changed without a trace in the copy: they neither qualify nor are held."""
_DELETION = f"(({EMPTIED} AND NOT ({QUALIFIED} AND {CHANGED})) OR (NOT {QUALIFIED} AND {CHANGED} AND {HELD}))"
_SENT = f"({QUALIFIED} AND {CHANGED})"
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def met() -> str:
    """The entries that make messages, where the last fix-up was this copy's own: `TOUCHED` has it all."""
    return f"SELECT {A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, {HELD} FROM {TOUCHED} WHERE {_TELLING}"


def met_since(base: Statements) -> str:
    """The same by a scan: sent entries, and those by which something goes from the copy, since its last refresh."""
    a, t, g, since = quoted(ADDRESS), quoted(TIME), quoted(GAP), base.number("since")
    held = f"coalesce(f.{HELD}, {base.may_hold('x')})"
    touched = f"(SELECT {A}, CASE WHEN {CHANGED} THEN {HELD} END AS {HELD} FROM {TOUCHED}) f"
    entries = (
        f"SELECT x.{a} AS {A}, {QUALIFIED}, "
        f"x.{t} > {since} AS {CHANGED}, coalesce(x.{g}, 0) > {since} AS {EMPTIED}, {held} AS {HELD} "
        f"FROM {base.entries} x LEFT JOIN {touched} ON f.{A} = x.{a} WHERE (x.{t} > {since} OR x.{g} > {since})"
    )
    return f"SELECT * FROM ({entries}) m WHERE {_TELLING}"


def runs(base: Statements) -> str:
    """For each run its least and greatest qualified address; run 0 is before the first changed entry."""
    cuts = f"(SELECT coalesce(array_agg({A} ORDER BY {A}), '{{}}') FROM {MET})"
    a = f"CAST({base.address} AS bigint)"
    return (
        f"SELECT width_bucket({a}, {cuts}) AS run, min({a}) AS least, max({a}) AS greatest "
        f"FROM {base.rows} WHERE {base.qualifies} GROUP BY 1"
    )


def sent_by_runs(base: Statements) -> str:
    """The messages, as `Statements.sent` gives them."""
    ends = f"{base.number('tail_gap')} > {base.number('since')}"
    places = (
        f"SELECT {A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, {HELD}, 2 * row_number() OVER (ORDER BY {A}) - 1 AS place, "
        f"CAST(NULL AS bigint) AS least, CAST(NULL AS bigint) AS greatest FROM {MET} "
        f"UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, 2 * run, least, greatest FROM {RUNS} "
        f"UNION ALL SELECT NULL, FALSE, FALSE, {ends}, FALSE, {2**63 - 1}, NULL, NULL"
    )
    neighbours = (
        f"SELECT *, coalesce(max(greatest) OVER (ORDER BY place {_BEFORE}), {base.start}) AS {LAST_QUAL}, "
        f"min(least) OVER (ORDER BY place DESC {_BEFORE}) AS next_qual FROM ({places}) p"
    )
    return (
        f"WITH known AS MATERIALIZED ({neighbours}) "
        f"SELECT {A}, {LAST_QUAL}, TRUE AS {CHANGED} FROM known WHERE {_SENT} "
        f"UNION ALL SELECT next_qual, max({LAST_QUAL}), FALSE FROM known k WHERE {_DELETION} AND NOT EXISTS "
        f"(SELECT 1 FROM {MET} m WHERE m.{A} = k.next_qual AND m.{QUALIFIED} AND m.{CHANGED}) GROUP BY next_qual"
    )


def sent_by_lookup(base: Statements) -> str:
    """The same, each along the address's index. Deletions that make the same entry known are one message."""
    a, most = base.address, 2**63 - 1
    qualified = f"SELECT CAST({a} AS bigint) FROM {base.rows} WHERE {base.qualifies}"
    next_qual = f"({qualified} AND {a} >= m.{A} ORDER BY {a} LIMIT 1)"
    ends = f"SELECT CAST(NULL AS bigint) WHERE {base.number('tail_gap')} > {base.number('since')}"
    last_qual = (
        f"coalesce(({qualified} AND {a} <= coalesce(k.{A} - 1, {most}) ORDER BY {a} DESC LIMIT 1), {base.start})"
    )
    return (
        f"WITH known AS MATERIALIZED (SELECT {next_qual} AS {A} FROM {MET} m WHERE {_DELETION} UNION {ends}), "
        f"named AS MATERIALIZED (SELECT {A}, TRUE AS {CHANGED} FROM {MET} WHERE {_SENT} UNION ALL "
        f"SELECT k.{A}, FALSE FROM known k WHERE NOT EXISTS "
        f"(SELECT 1 FROM {MET} m WHERE m.{A} = k.{A} AND m.{QUALIFIED} AND m.{CHANGED})) "
        f"SELECT {A}, {last_qual} AS {LAST_QUAL}, {CHANGED} FROM named k"
    )
