"""Fix-up and figure 3 without sorting the base, for PostgreSQL: SQL texts for `program`, over `Statements`.

*What changed and what is gone*, by one unordered scan. It leaves one row for each block of 64 addresses: bits that say
which entries of it were there at the last fix-up (`kept`) and to which addresses of the block entries of it point back
(`expected`), and where changed entries are stored (`fresh`). An address that is expected and not kept is gone, so the
chain is broken at the next kept entry; the first kept entry of a block is broken if it does not point to the last one
before the block. Only what changed is read again.

*What is sent* (marked algorithm): between two changed entries only the least and greatest qualified one matter. The
entries that make messages (`MET`) cut the addresses into runs. Where they are few, `sent_by_lookup` finds LastQual of
each, and the entry that a deletion makes known, along the address's index. Where they are many, one unordered, parallel
scan gives for each run its least and greatest qualified address (`width_bucket` finds the run by binary search), and
`sent_by_runs` does the rest among these.
"""

from __future__ import annotations

from strandline.replication.senders.annotated.base_table import (
    BLOCKS,
    BROKEN,
    FRESH,
    GAP,
    MET,
    PREVIOUS,
    RUNS,
    TIME,
    TOUCHED,
)
from strandline.replication.senders.annotated.statements import (
    CHANGED,
    EMPTIED,
    HELD,
    HERE,
    INSERTED,
    LAST_QUAL,
    QUALIFIED,
    A,
    P,
    Statements,
    U,
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
    a, t, g, since = quoted(base.address), quoted(TIME), quoted(GAP), base.number("since")
    held = f"coalesce(f.{HELD}, {base.may_hold('x')})"
    touched = f"(SELECT {A}, CASE WHEN {CHANGED} THEN {HELD} END AS {HELD} FROM {TOUCHED}) f"
    found = (
        f"SELECT CAST(x.{a} AS bigint) AS {A}, {QUALIFIED}, "
        f"x.{t} > {since} AS {CHANGED}, coalesce(x.{g}, 0) > {since} AS {EMPTIED}, {held} AS {HELD} "
        f"FROM {base.entries()} x LEFT JOIN {touched} ON f.{A} = x.{a} WHERE (x.{t} > {since} OR x.{g} > {since})"
    )
    return f"SELECT * FROM ({found}) m WHERE {_TELLING}"


def runs(base: Statements) -> str:
    """For each run its least and greatest qualified address; run 0 is before the first changed entry."""
    cuts = f"(SELECT coalesce(array_agg({A} ORDER BY {A}), '{{}}') FROM {MET})"
    return (
        f"SELECT width_bucket({base.a}, {cuts}) AS run, min({base.a}) AS least, max({base.a}) AS greatest "
        f"FROM {base.table} WHERE {base.qualifies} GROUP BY 1"
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
    a, most = quoted(base.address), 2**63 - 1
    next_qual = f"(SELECT {base.a} FROM {base.table} WHERE {a} >= m.{A} AND {base.qualifies} ORDER BY {a} LIMIT 1)"
    ends = f"SELECT CAST(NULL AS bigint) WHERE {base.number('tail_gap')} > {base.number('since')}"
    last_qual = (
        f"coalesce((SELECT {base.a} FROM {base.table} WHERE {a} <= coalesce(s.{A} - 1, {most}) AND {base.qualifies} "
        f"ORDER BY {a} DESC LIMIT 1), {base.start})"
    )
    return (
        f"WITH known AS MATERIALIZED (SELECT {next_qual} AS {A} FROM {MET} m WHERE {_DELETION} UNION {ends}), "
        f"named AS MATERIALIZED (SELECT {A}, TRUE AS {CHANGED} FROM {MET} WHERE {_SENT} UNION ALL "
        f"SELECT k.{A}, FALSE FROM known k WHERE NOT EXISTS "
        f"(SELECT 1 FROM {MET} m WHERE m.{A} = k.{A} AND m.{QUALIFIED} AND m.{CHANGED})) "
        f"SELECT {A}, {last_qual} AS {LAST_QUAL}, {CHANGED} FROM named s"
    )


BLOCK_BITS = 6
"""A block is 2 to this power addresses wide: as many as a bigint has bits."""
_WIDTH = 2**BLOCK_BITS
BY_WORKERS, AS_USUAL = "SET LOCAL cpu_operator_cost = 0.05", "SET LOCAL cpu_operator_cost TO DEFAULT"
"""PostgreSQL takes every address for a group of its own, and would rather have one process group them all: with dearer
operators it lets each worker group what it reads, which takes half the time."""
_HALF = f"CAST({2**32 - 1} AS bigint)"


def survey(base: Statements) -> str:
    """The scan. The start, to which a first entry points, is no entry."""
    p, t, address = quoted(PREVIOUS), quoted(TIME), base.a
    return (
        f"SELECT {address} >> {BLOCK_BITS} AS {A}, count(*) AS entries, min({p}) AS first_previous, "
        f"bit_or({_bit(address)}) FILTER (WHERE {p} IS NOT NULL) AS kept, "
        f"bit_or({_bit(p)}) FILTER (WHERE {p} >> {BLOCK_BITS} = {address} >> {BLOCK_BITS} AND {p} <> {base.start}) "
        f"AS expected, array_agg(ctid) FILTER (WHERE {t} IS NULL OR {p} IS NULL) AS fresh FROM {base.table} GROUP BY 1"
    )


def surveyed_counts(base: Statements) -> str:
    """The same as `Statements.counts`, from the survey."""
    rows, kept = "coalesce(sum(entries), 0)", f"coalesce(sum(bit_count({_bits('kept')})), 0)"
    sums = (rows, f"{rows} - {kept}", "coalesce(sum(cardinality(fresh)), 0)")
    totals = ", ".join(f"CAST({one} AS bigint)" for one in sums)
    ends = ", ".join(f"(SELECT {end}({base.a}) FROM {base.table})" for end in ("min", "max"))
    return f"SELECT {totals}, {ends}, {base.has_last()} FROM {BLOCKS}"


def by_survey(base: Statements) -> dict[str, str]:
    """What each temporary table holds that leads to `TOUCHED`, in the order in which they are made."""
    p, t = quoted(PREVIOUS), quoted(TIME)
    read = (
        f"{base.a} AS {A}, ctid AS {HERE}, {base.qualifies} AS {QUALIFIED}, {p} AS {P}, "
        f"({p} IS NULL OR {t} IS NULL) AS {CHANGED}, {base.bits} AS {U}"
    )
    # `= ANY` of an array goes straight to where the entries are; a join might read the whole table again.
    fresh = f"SELECT {read} FROM {base.table} WHERE ctid = ANY (ARRAY (SELECT unnest(fresh) FROM {BLOCKS}))"
    return {FRESH: fresh, BROKEN: _broken(base), TOUCHED: _touched(base, read)}


def _touched(base: Statements, read: str) -> str:
    """Merely updated entries keep their PrevAddr; new ones, those behind a new one and broken ones look it up."""
    a = quoted(base.address)
    behind = f"(SELECT min(b.{a}) FROM {base.table} b WHERE b.{a} > f.{A})"
    moved = (
        f"SELECT {A}, bool_or(broken) AS broken FROM (SELECT {A}, FALSE AS broken FROM {FRESH} WHERE {P} IS NULL "
        f"UNION ALL SELECT {A}, TRUE FROM {BROKEN} "
        f"UNION ALL SELECT {behind}, FALSE FROM {FRESH} f WHERE {P} IS NULL) u GROUP BY {A}"
    )
    held = base.held(f"x.{P}", f"x.{U}")
    return (
        f"WITH moved AS MATERIALIZED ({moved}) "
        f"SELECT x.{A}, x.{HERE}, x.{QUALIFIED}, x.{P} AS {PREVIOUS}, FALSE AS {INSERTED}, TRUE AS {CHANGED}, "
        f"FALSE AS {EMPTIED}, {held} AS {HELD} FROM {FRESH} x "
        f"WHERE x.{P} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM moved m WHERE m.{A} = x.{A}) "
        f"UNION ALL SELECT x.{A}, x.{HERE}, x.{QUALIFIED}, {base.below('m')}, x.{P} IS NULL, x.{CHANGED}, "
        f"(x.{P} IS NOT NULL AND m.broken), {held} FROM moved m CROSS JOIN LATERAL "
        f"(SELECT {read} FROM {base.table} WHERE {a} = m.{A} OFFSET 0) x ORDER BY {HERE}"
    )


def _broken(base: Statements) -> str:
    """Entries that stand behind a deletion."""
    last_kept = f"({A} << {BLOCK_BITS}) + {_WIDTH} - position(B'1' IN {_bits('kept')})"
    first_broken = f"first_previous <> lag({last_kept}, 1, {base.start}) OVER (ORDER BY {A})"
    lagged = (
        f"SELECT {A}, kept, coalesce(expected, 0) & ~kept AS gone, {first_broken} AS first_broken "
        f"FROM {BLOCKS} WHERE kept IS NOT NULL"
    )
    # The lowest kept bit is the first kept entry; `-kept` overflows only for the sign bit alone, which is its own.
    first = f"CASE WHEN NOT first_broken THEN 0 WHEN kept = {_SIGN} THEN kept ELSE kept & -kept END"
    marked = f"SELECT {A}, ({first}) | ({_behind('gone')}) AS broken FROM ({lagged}) l WHERE gone <> 0 OR first_broken"
    return (
        f"SELECT ({A} << {BLOCK_BITS}) + byte + i AS {A} FROM ({marked}) m CROSS JOIN "
        f"generate_series(0, {_WIDTH - 8}, 8) byte CROSS JOIN generate_series(0, 7) i "
        f"WHERE (broken >> byte) & 255 <> 0 AND (broken >> (byte + i)) & 1 = 1"
    )


_SIGN = f"CAST('{-(2**63)}' AS bigint)"


def _behind(gone: str) -> str:
    """For each gone bit the next kept one above it: a carry runs through the bits that are not kept up to there.

    Added in two halves, since a bigint that overflows is an error.
    """
    low = f"((~kept & {_HALF}) + ({gone} & {_HALF}))"
    high = f"(((~kept >> 32) & {_HALF}) + (({gone} >> 32) & {_HALF}) + ({low} >> 32))"
    return f"kept & ((({high} & {_HALF}) << 32) | ({low} & {_HALF}))"


def _bits(name: str) -> str:
    return f"CAST({name} AS bit({_WIDTH}))"


def _bit(address: str) -> str:
    return f"CAST(1 AS bigint) << CAST({address} & {_WIDTH - 1} AS int)"
