"""Fix-up and refresh as sets, inside the database: figures 3 and 7 in SQL that PostgreSQL and SQLite both run.

`ExpectPrev` of an entry differs from its PrevAddr exactly when no entry that was there at the last fix-up is left at
PrevAddr; `LastAddr` is the greatest address below; `LastQual` is the greatest qualified one below, and `Deletion` says
that an unqualified, changed entry lies above that. So the pass of the pseudo code becomes:

1. `touched`: entries whose annotations are to be written. `by_scan` finds them with windows over the whole table in
   address order; `by_lookup`, when few entries are NULL, by one unordered scan and look-ups in the address's index
   (in PostgreSQL the scan is a `survey`, which gives the counts as well).
2. `fix_up`: one UPDATE of just these.
3. `sent`: the messages, by windows over qualified and changed entries alone; a last row without an address stands for
   the message that ends the refresh. `sent_by_runs` (PostgreSQL, the marked algorithm) sorts nothing but what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.detect.annotated.names import (
    BLOCKS,
    BROKEN,
    EVERY,
    FRESH,
    GAP,
    MET,
    PAPER,
    PREVIOUS,
    RUNS,
    SENT,
    TIME,
    TOUCHED,
    UNHELD,
)
from strandline.detect.annotated.survey import survey, surveyed_broken, surveyed_counts, surveyed_fresh
from strandline.replicas.databases import quoted
from strandline.replicas.definition import PREFIX

A, P, T, G, U = (quoted(f"{PREFIX}{letter}") for letter in "aptgu")
INSERTED, CHANGED, EMPTIED, HELD = (quoted(f"{PREFIX}{word}") for word in ("inserted", "changed", "emptied", "held"))
QUALIFIED, LAST_QUAL, LAST_DELETION = (quoted(f"{PREFIX}{word}") for word in ("q", "last_qual", "last_deletion"))
HERE = quoted(f"{PREFIX}here")
BLOCK_BITS = 7
"""A block of addresses, in which broken chains are looked for together, is 2 to this power wide (in SQLite)."""
TRUE = "(1 = 1)"
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


@dataclass(frozen=True)
class Asked:
    """What a copy asks of its base. Without a bit it may hold any entry."""

    qualifies: str
    snap_time: int
    bit: int | None
    tail_gap: int

    @property
    def held(self) -> str:
        """Whether it may hold the entry `x`, which this fix-up did not meet."""
        return "(1 = 1)" if self.bit is None else f"((coalesce(x.{quoted(UNHELD)}, 0) >> {self.bit}) & 1 = 0)"


@dataclass(frozen=True)
class Statements:
    """The statements for one base. `start` is the address before the first, `now` the time of this fix-up."""

    dialect: str
    table: str
    address: str
    algorithm: str
    start: int
    now: int

    @property
    def _a(self) -> str:
        return f"CAST({quoted(self.address)} AS bigint)" if self.dialect == "postgres" else quoted(self.address)

    @property
    def _start(self) -> str:
        return f"CAST('{self.start}' AS bigint)" if self.dialect == "postgres" else f"({self.start})"

    def survey(self) -> str | None:
        """PostgreSQL: one unordered scan that leaves in `BLOCKS` what is counted, changed or missing in the base."""
        if self.dialect != "postgres":
            return None
        return survey(self.table, self._a, self._start)

    def counts(self) -> str:
        """Rows, inserted ones, changed ones (those included), the least and the greatest address."""
        p, t = quoted(PREVIOUS), quoted(TIME)
        if self.dialect == "postgres":
            return surveyed_counts(self.table, self._a)
        return (
            f"SELECT count(*), count(*) - count({p}), sum(CASE WHEN {p} IS NULL OR {t} IS NULL THEN 1 ELSE 0 END), "
            f"min({quoted(self.address)}), max({quoted(self.address)}) FROM {self.table}"
        )

    def has_last(self, last: int) -> str:
        """Whether the entry that was last at the last fix-up is still there."""
        return f"SELECT 1 FROM {self.table} WHERE {quoted(self.address)} = {last} AND {quoted(PREVIOUS)} IS NOT NULL"

    def by_scan(self, bit: int | None, qualifies: str = TRUE) -> str:
        """Figure 7's pass with windows over every entry."""
        p, t = quoted(PREVIOUS), quoted(TIME)
        scan = (
            f"SELECT {self._here} AS {HERE}, {qualifies} AS {QUALIFIED}, {self._a} AS {A}, {p} AS {P}, {t} AS {T}, "
            f"{self._bits} AS {U}, "
            f"lag({self._a}, 1, {self._start}) OVER (ORDER BY {self._a}) AS last_addr, "
            f"coalesce(max(CASE WHEN {p} IS NOT NULL THEN {self._a} END) OVER (ORDER BY {self._a} {_BEFORE}), "
            f"{self._start}) AS expect_prev FROM {self.table}"
        )
        return (
            f"CREATE TEMP TABLE {TOUCHED} AS SELECT {A}, {HERE}, {QUALIFIED}, last_addr AS {PREVIOUS}, "
            f"{self._flags('expect_prev')}, {self._held(bit)} FROM ({scan}) s "
            f"WHERE {P} IS NULL OR {T} IS NULL OR {P} <> last_addr OR {P} <> expect_prev"
        )

    def by_lookup(self, bit: int | None, qualifies: str = TRUE, *, deletions: bool) -> dict[str, str]:
        """The same by look-ups: temporary tables by name, to be made in this order.

        Without `deletions` (none by count) nobody looks for broken chains.
        """
        p, t, a = quoted(PREVIOUS), quoted(TIME), quoted(self.address)
        below = f"coalesce((SELECT max(b.{a}) FROM {self.table} b WHERE b.{a} < e.{A}), {self._start})"
        behind = f"(SELECT min(b.{a}) FROM {self.table} b WHERE b.{a} > f.{A})"
        fresh = f"SELECT {self._a} AS {A}, {p} AS {P} FROM {self.table} WHERE {p} IS NULL OR {t} IS NULL"
        looking = {BLOCKS: self._blocks(), BROKEN: self._broken()}
        if self.dialect == "postgres":
            fresh, looking = surveyed_fresh(), {BROKEN: surveyed_broken(self._start)}
        # An entry that was merely updated keeps its PrevAddr: only new ones, and those behind a change, look it up.
        every = (
            f"SELECT {A}, max(moved) AS moved FROM (SELECT {A}, CASE WHEN {P} IS NULL THEN 1 ELSE 0 END AS moved "
            f"FROM {FRESH} UNION ALL SELECT {A}, 1 FROM {BROKEN} UNION ALL "
            f"SELECT {behind}, 1 FROM {FRESH} f WHERE {P} IS NULL) u GROUP BY {A}"
        )
        touched = (
            f"SELECT e.{A} AS {A}, x.{HERE}, x.{QUALIFIED}, "
            f"CASE WHEN e.moved = 0 THEN x.{p} ELSE {below} END AS {PREVIOUS}, "
            f"x.{p} IS NULL AS {INSERTED}, (x.{p} IS NULL OR x.{t} IS NULL) AS {CHANGED}, "
            f"(x.{p} IS NOT NULL AND r.{A} IS NOT NULL) AS {EMPTIED}, {self._held(bit, 'x.')} "
            f"FROM {EVERY} e JOIN (SELECT *, {self._here} AS {HERE}, {qualifies} AS {QUALIFIED} FROM {self.table}) x "
            f"ON x.{a} = e.{A} LEFT JOIN {BROKEN} r ON r.{A} = e.{A}"
        )
        none = f"SELECT {self._start} AS {A} WHERE 1 = 0"
        looking = looking if deletions else {BROKEN: none}
        made = {FRESH: fresh, **looking, EVERY: every, TOUCHED: touched}
        return {name: f"CREATE TEMP TABLE {name} AS {sql}" for name, sql in made.items()}

    def _blocks(self) -> str:
        """For each block of addresses what tells whether entries in it, or just before it, are gone.

        The steps from PrevAddr to address of the entries that are not new add up to the way from the last such entry
        before the block to its last one, unless entries between them are gone: then they add up to less.
        """
        p = quoted(PREVIOUS)
        return (
            f"SELECT {self._a} >> {BLOCK_BITS} AS {A}, sum({self._step}) AS steps, max({self._a}) AS last_one, "
            f"count(*) AS kept FROM {self.table} WHERE {p} IS NOT NULL GROUP BY 1"
        )

    @property
    def _step(self) -> str:
        """From PrevAddr to the address. Far ones are left out, so that none overflows: such a block is looked at."""
        a, p = quoted(self.address), quoted(PREVIOUS)
        near = f"({a} >> 1) - ({p} >> 1) < 1000000000"
        return f"CASE WHEN {near} THEN CAST({a} - {p} AS int) ELSE -1 END"

    def _broken(self) -> str:
        """Entries that stand behind a deletion: only blocks with a break in or before them are looked at closely."""
        p, a = quoted(PREVIOUS), quoted(self.address)
        before = f"lag(last_one, 1, {self._start}) OVER (ORDER BY {A}) AS before"
        lagged = f"SELECT {A}, steps, last_one, {before} FROM {BLOCKS} WHERE kept > 0"
        suspect = f"SELECT * FROM ({lagged}) l WHERE steps <> CAST(last_one AS numeric) - before"
        expected = f"coalesce(lag(x.{a}) OVER (PARTITION BY s.{A} ORDER BY x.{a}), s.before)"
        first, last = f"s.{A} << {BLOCK_BITS}", f"(s.{A} << {BLOCK_BITS}) + {2**BLOCK_BITS - 1}"
        close = (
            f"SELECT x.{a} AS {A}, x.{p} AS {P}, {expected} AS expect_prev "
            f"FROM ({suspect}) s CROSS JOIN {self.table} x "
            f"WHERE x.{a} >= {first} AND x.{a} <= {last} AND x.{p} IS NOT NULL"
        )
        return f"SELECT {A} FROM ({close}) c WHERE {P} <> expect_prev"

    @property
    def _bits(self) -> str:
        return "0" if self.algorithm == PAPER else f"coalesce({quoted(UNHELD)}, 0)"

    def _flags(self, expected: str) -> str:
        return (
            f"{P} IS NULL AS {INSERTED}, ({P} IS NULL OR {T} IS NULL) AS {CHANGED}, "
            f"({P} IS NOT NULL AND {P} <> {expected}) AS {EMPTIED}"
        )

    def _held(self, bit: int | None, source: str = "") -> str:
        """Whether the copy may hold the entry, as its bit said before this fix-up."""
        if self.algorithm == PAPER or bit is None:
            return f"(1 = 1) AS {HELD}"
        p, u = (f"{source}{quoted(PREVIOUS)}", f"{source}{quoted(UNHELD)}") if source else (P, U)
        return f"({p} IS NOT NULL AND (coalesce({u}, 0) >> {bit}) & 1 = 0) AS {HELD}"

    def fix_up(self, restrictions: Mapping[int, str], refreshing: int | None) -> str:
        """One UPDATE of the touched entries. `restrictions`: each copy's condition, by its bit."""
        t, g = quoted(TIME), quoted(GAP)
        new = f"{CHANGED} OR {EMPTIED}" if self.algorithm == PAPER else CHANGED
        sets = [
            f"{quoted(PREVIOUS)} = f.{quoted(PREVIOUS)}",
            f"{t} = CASE WHEN {new} THEN {self.now} ELSE {t} END",
        ]
        if self.algorithm != PAPER:
            gap = f"CASE WHEN {INSERTED} THEN NULL WHEN {EMPTIED} THEN {self.now} ELSE {g} END"
            bits = " | ".join(["0", *(self._unheld(b, sql, b == refreshing) for b, sql in restrictions.items())])
            sets += [
                f"{g} = {gap}",
                f"{quoted(UNHELD)} = CASE WHEN {CHANGED} THEN ({bits}) ELSE {quoted(UNHELD)} END",
            ]
        renamed = f"SELECT {HERE}, {PREVIOUS} AS {P}, {INSERTED}, {CHANGED}, {EMPTIED} FROM {TOUCHED}"
        sets[0] = f"{quoted(PREVIOUS)} = f.{P}"
        here = f"{self.table}.{self._here} = f.{HERE}"
        return f"UPDATE {self.table} SET {', '.join(sets)} FROM ({renamed}) AS f WHERE {here}"

    @property
    def _here(self) -> str:
        """Where an entry is stored, which stays as long as the base is locked; in SQLite the address serves."""
        return "ctid" if self.dialect == "postgres" else quoted(self.address)

    def _unheld(self, bit: int, qualifies: str, refreshing: bool) -> str:
        known = f"{INSERTED} OR (coalesce({quoted(UNHELD)}, 0) >> {bit}) & 1 = 1"
        one = f"CAST({1 << bit} AS bigint)" if self.dialect == "postgres" else str(1 << bit)
        return f"CASE WHEN NOT {qualifies} AND ({'1 = 1' if refreshing else known}) THEN {one} ELSE 0 END"

    def sent(self, asked: Asked) -> str:
        """Figure 3's pass: the messages, in a table of address (NULL: the end), LastQual, and whether a value goes."""
        a, t, g = quoted(self.address), quoted(TIME), quoted(GAP)
        qualifies, snap_time = asked.qualifies, asked.snap_time
        paper = self.algorithm == PAPER
        changed = f"x.{t} > {snap_time}"
        emptied = "(1 = 0)" if paper else f"coalesce(x.{g}, 0) > {snap_time}"
        held = "(1 = 1)" if paper else f"coalesce(f.{HELD}, {asked.held})"
        scan = (
            f"SELECT CAST(x.{a} AS bigint) AS {A}, {QUALIFIED}, {changed} AS {CHANGED}, {emptied} AS {EMPTIED}, "
            f"{held} AS {HELD} FROM (SELECT *, {qualifies} AS {QUALIFIED} FROM {self.table}) x "
            f"LEFT JOIN (SELECT {A}, {HELD} FROM {TOUCHED} WHERE {CHANGED}) f ON f.{A} = x.{a} "
            f"WHERE {QUALIFIED} OR {changed} OR {emptied}"
        )
        ends = f"(1 = {1 if paper or asked.tail_gap > snap_time else 0})"
        scan += f" UNION ALL SELECT NULL, (1 = 1), (1 = 0), {ends}, (1 = 0)"
        deletion = f"NOT {QUALIFIED} AND (({CHANGED} AND {HELD}) OR {EMPTIED})"
        order = f"OVER (ORDER BY {A} NULLS LAST {_BEFORE})"
        windows = (
            f"SELECT {A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, "
            f"coalesce(max(CASE WHEN {QUALIFIED} THEN {A} END) {order}, {self._start}) AS {LAST_QUAL}, "
            f"max(CASE WHEN {deletion} THEN {A} END) {order} AS {LAST_DELETION} FROM ({scan}) s"
        )
        pending = f"({EMPTIED} OR coalesce({LAST_DELETION} > {LAST_QUAL}, (1 = 0)))"
        value = f"({CHANGED} OR {pending}) AND {A} IS NOT NULL" if paper else CHANGED
        return (
            f"CREATE TEMP TABLE {SENT} AS SELECT {A}, {LAST_QUAL}, ({value}) AS {CHANGED} FROM ({windows}) w "
            f"WHERE {QUALIFIED} AND ({CHANGED} OR {pending})"
        )

    def drop(self) -> tuple[str, ...]:
        names = (TOUCHED, SENT, MET, RUNS, FRESH, BLOCKS, BROKEN, EVERY)
        if self.dialect == "postgres":
            return (f"DROP TABLE IF EXISTS {', '.join(f'pg_temp.{name}' for name in names)}",)
        return tuple(f"DROP TABLE IF EXISTS {name}" for name in names)

    def give_addresses(self, first: int) -> str:
        """Addresses, from a sequence, for entries of a base that has no integer key and were inserted since."""
        a = quoted(self.address)
        row = "ctid" if self.dialect == "postgres" else "rowid"
        numbered = (
            f"SELECT {row} AS here, {first} - 1 + row_number() OVER () AS number FROM {self.table} WHERE {a} IS NULL"
        )
        return f"UPDATE {self.table} SET {a} = n.number FROM ({numbered}) n WHERE {self.table}.{row} = n.here"
