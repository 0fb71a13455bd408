"""Fix-up and refresh as sets, inside the database: figures 3 and 7 in SQL that PostgreSQL and SQLite both run.

`ExpectPrev` of an entry differs from its PrevAddr exactly when no entry that was there at the last fix-up is left at
PrevAddr; `LastAddr` is the greatest address below; `LastQual` is the greatest qualified one below, and `Deletion` says
that an unqualified, changed entry lies above that. So the pass of the pseudo code becomes:

1. `touched`: entries whose annotations are to be written. `by_scan` finds them with windows over the whole table in
   address order; `by_lookup`, when few entries are NULL, by one unordered scan and look-ups in the address's index
   (`survey` does that for PostgreSQL).
2. `fix_up`: one UPDATE of just these.
3. `sent`: the messages, by windows over qualified and changed entries alone; a last row without an address stands for
   the message that ends the refresh. `runs` finds them in PostgreSQL, for the marked algorithm, without such a sort.

The texts are the same for each refresh. What differs are numbers (`Numbers`), which are parameters of the statements.
Nothing is executed here: `program` keeps the texts and runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from strandline.replication.definition import PREFIX
from strandline.replication.senders.annotated.base_table import (
    BLOCKS,
    BROKEN,
    EVERY,
    FRESH,
    GAP,
    PAPER,
    PREVIOUS,
    TIME,
    TOUCHED,
    UNHELD,
)
from strandline.values import quoted

NONE = -1
"""In place of a bit: there is none."""


@dataclass(frozen=True)
class Numbers:
    """`now` is the time of this fix-up, `since` that of the copy (SnapTime); `start` the address before the first.

    `bit` is the copy's, unless it may hold any entry; `refreshing` the bit of the copy that will hold what qualifies.
    `tail_gap` is when entries above the greatest address last went, `last` what that was, `first` the next new one.
    """

    now: int = 0
    since: int = 0
    start: int = 0
    bit: int = NONE
    refreshing: int = NONE
    tail_gap: int = 0
    last: int = 0
    first: int = 1

    def values(self) -> Mapping[str, int]:
        """By name, in the order in which PostgreSQL numbers them."""
        return asdict(self)


_PLACES = {field.name: place for place, field in enumerate(fields(Numbers), 1)}


def number(dialect: str, name: str) -> str:
    """How a statement names one of them."""
    return f"CAST(${_PLACES[name]} AS bigint)" if dialect == "postgres" else f":{name}"


A, P, T, G, U = (quoted(f"{PREFIX}{letter}") for letter in "aptgu")
INSERTED, CHANGED, EMPTIED, HELD = (quoted(f"{PREFIX}{word}") for word in ("inserted", "changed", "emptied", "held"))
QUALIFIED, LAST_QUAL, LAST_DELETION = (quoted(f"{PREFIX}{word}") for word in ("q", "last_qual", "last_deletion"))
HERE = quoted(f"{PREFIX}here")
BLOCK_BITS = 7
"""A block of addresses, in which broken chains are looked for together, is 2 to this power wide (in SQLite)."""
TRUE = "(1 = 1)"
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


@dataclass(frozen=True)
class Statements:
    """The statements for one base, and for a copy of it with the condition `qualifies`."""

    dialect: str
    table: str
    address: str
    algorithm: str
    qualifies: str = TRUE

    @property
    def a(self) -> str:
        """The address as an expression."""
        return f"CAST({quoted(self.address)} AS bigint)" if self.dialect == "postgres" else quoted(self.address)

    @property
    def start(self) -> str:
        return self.number("start")

    def number(self, name: str) -> str:
        return number(self.dialect, name)

    @property
    def here(self) -> str:
        """Where an entry is stored, which stays as long as the base is locked; in SQLite the address serves."""
        return "ctid" if self.dialect == "postgres" else quoted(self.address)

    def counts(self) -> str:
        """Rows, inserted ones, changed ones (those included), the least and the greatest address, and whether the
        entry that was last at the last fix-up is still there."""
        p, t = quoted(PREVIOUS), quoted(TIME)
        return (
            f"SELECT count(*), count(*) - count({p}), sum(CASE WHEN {p} IS NULL OR {t} IS NULL THEN 1 ELSE 0 END), "
            f"min({quoted(self.address)}), max({quoted(self.address)}), {self.has_last()} FROM {self.table}"
        )

    def has_last(self) -> str:
        a = quoted(self.address)
        return (
            f"EXISTS (SELECT 1 FROM {self.table} WHERE {a} = {self.number('last')} AND {quoted(PREVIOUS)} IS NOT NULL)"
        )

    def by_scan(self) -> str:
        """`TOUCHED` by figure 7's pass with windows over every entry."""
        p, t = quoted(PREVIOUS), quoted(TIME)
        scan = (
            f"SELECT {self.here} AS {HERE}, {self.qualifies} AS {QUALIFIED}, {self.a} AS {A}, {p} AS {P}, {t} AS {T}, "
            f"{self.bits} AS {U}, "
            f"lag({self.a}, 1, {self.start}) OVER (ORDER BY {self.a}) AS last_addr, "
            f"coalesce(max(CASE WHEN {p} IS NOT NULL THEN {self.a} END) OVER (ORDER BY {self.a} {_BEFORE}), "
            f"{self.start}) AS expect_prev FROM {self.table}"
        )
        return (
            f"SELECT {A}, {HERE}, {QUALIFIED}, last_addr AS {PREVIOUS}, {P} IS NULL AS {INSERTED}, "
            f"({P} IS NULL OR {T} IS NULL) AS {CHANGED}, ({P} IS NOT NULL AND {P} <> expect_prev) AS {EMPTIED}, "
            f"{self.held(P, U)} AS {HELD} FROM ({scan}) s "
            f"WHERE {P} IS NULL OR {T} IS NULL OR {P} <> last_addr OR {P} <> expect_prev"
        )

    def by_lookup(self) -> dict[str, str]:
        """The same by look-ups, for SQLite: what each temporary table holds, in the order in which they are made.

        If no entry is gone (by count), nobody looks for broken chains: `no_broken` instead of `BLOCKS` and `BROKEN`.
        """
        p, t, a = quoted(PREVIOUS), quoted(TIME), quoted(self.address)
        behind = f"(SELECT min(b.{a}) FROM {self.table} b WHERE b.{a} > f.{A})"
        fresh = f"SELECT {self.a} AS {A}, {p} AS {P} FROM {self.table} WHERE {p} IS NULL OR {t} IS NULL"
        # An entry that was merely updated keeps its PrevAddr: only new ones, and those behind a change, look it up.
        # In order, look-ups and the UPDATE go along the table, not across it.
        every = (
            f"SELECT {A}, max(moved) AS moved FROM (SELECT {A}, CASE WHEN {P} IS NULL THEN 1 ELSE 0 END AS moved "
            f"FROM {FRESH} UNION ALL SELECT {A}, 1 FROM {BROKEN} UNION ALL "
            f"SELECT {behind}, 1 FROM {FRESH} f WHERE {P} IS NULL) u GROUP BY {A} ORDER BY {A}"
        )
        touched = (
            f"SELECT e.{A} AS {A}, x.{HERE}, x.{QUALIFIED}, "
            f"CASE WHEN e.moved = 0 THEN x.{p} ELSE {self.below('e')} END AS {PREVIOUS}, "
            f"x.{p} IS NULL AS {INSERTED}, (x.{p} IS NULL OR x.{t} IS NULL) AS {CHANGED}, "
            f"(x.{p} IS NOT NULL AND r.{A} IS NOT NULL) AS {EMPTIED}, {self.held(f'x.{p}', self._unheld_of('x'))} "
            f"AS {HELD} FROM {EVERY} e JOIN {self.entries()} x ON x.{a} = e.{A} LEFT JOIN {BROKEN} r ON r.{A} = e.{A}"
        )
        return {FRESH: fresh, BLOCKS: self._blocks(), BROKEN: self._broken(), EVERY: every, TOUCHED: touched}

    def no_broken(self) -> str:
        return f"SELECT {self.start} AS {A} WHERE 1 = 0"

    def entries(self) -> str:
        """The table with two more columns: where an entry is, and whether it qualifies."""
        return f"(SELECT *, {self.here} AS {HERE}, {self.qualifies} AS {QUALIFIED} FROM {self.table})"

    def below(self, entry: str) -> str:
        """LastAddr of an entry: the greatest address below it."""
        a = quoted(self.address)
        return f"coalesce((SELECT max(b.{a}) FROM {self.table} b WHERE b.{a} < {entry}.{A}), {self.start})"

    def _blocks(self) -> str:
        """For each block of addresses what tells whether entries in it, or just before it, are gone.

        The steps from PrevAddr to address of the entries that are not new add up to the way from the last such entry
        before the block to its last one, unless entries between them are gone: then they add up to less.
        """
        p = quoted(PREVIOUS)
        return (
            f"SELECT {self.a} >> {BLOCK_BITS} AS {A}, sum({self._step}) AS steps, max({self.a}) AS last_one, "
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
        before = f"lag(last_one, 1, {self.start}) OVER (ORDER BY {A}) AS before"
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
    def bits(self) -> str:
        return "0" if self.algorithm == PAPER else f"coalesce({quoted(UNHELD)}, 0)"

    def _unheld_of(self, entry: str) -> str:
        return "0" if self.algorithm == PAPER else f"coalesce({entry}.{quoted(UNHELD)}, 0)"

    def held(self, previous: str, bits: str) -> str:
        """Whether the copy may hold the entry, as its bit said before this fix-up."""
        if self.algorithm == PAPER:
            return TRUE
        return f"({self.number('bit')} < 0 OR ({previous} IS NOT NULL AND {self._has_no(bits)}))"

    def may_hold(self, entry: str) -> str:
        """The same of an entry that this fix-up did not meet."""
        return f"({self.number('bit')} < 0 OR {self._has_no(self._unheld_of(entry))})"

    def _has_no(self, bits: str) -> str:
        return f"({bits} >> CAST({self.number('bit')} AS int)) & 1 = 0"

    def fix_up(self, restrictions: Mapping[int, str]) -> str:
        """One UPDATE of the touched entries. `restrictions`: each copy's condition, by its bit."""
        t, g, now = quoted(TIME), quoted(GAP), self.number("now")
        new = f"{CHANGED} OR {EMPTIED}" if self.algorithm == PAPER else CHANGED
        sets = [f"{quoted(PREVIOUS)} = f.{P}", f"{t} = CASE WHEN {new} THEN {now} ELSE {t} END"]
        if self.algorithm != PAPER:
            gap = f"CASE WHEN {INSERTED} THEN NULL WHEN {EMPTIED} THEN {now} ELSE {g} END"
            bits = " | ".join(["0", *(self._unheld(bit, sql) for bit, sql in sorted(restrictions.items()))])
            sets += [
                f"{g} = {gap}",
                f"{quoted(UNHELD)} = CASE WHEN {CHANGED} THEN ({bits}) ELSE {quoted(UNHELD)} END",
            ]
        renamed = f"SELECT {HERE}, {PREVIOUS} AS {P}, {INSERTED}, {CHANGED}, {EMPTIED} FROM {TOUCHED}"
        here = f"{self.table}.{self.here} = f.{HERE}"
        return f"UPDATE {self.table} SET {', '.join(sets)} FROM ({renamed}) AS f WHERE {here}"

    def _unheld(self, bit: int, qualifies: str) -> str:
        known = f"{INSERTED} OR (coalesce({quoted(UNHELD)}, 0) >> {bit}) & 1 = 1"
        one = f"CAST({1 << bit} AS bigint)" if self.dialect == "postgres" else str(1 << bit)
        return f"CASE WHEN NOT {qualifies} AND ({self.number('refreshing')} = {bit} OR {known}) THEN {one} ELSE 0 END"

    def sent(self) -> str:
        """Figure 3's pass: the messages, in a table of address (NULL: the end), LastQual, and whether a value goes."""
        a, t, g, since = quoted(self.address), quoted(TIME), quoted(GAP), self.number("since")
        paper = self.algorithm == PAPER
        changed = f"x.{t} > {since}"
        emptied = "(1 = 0)" if paper else f"coalesce(x.{g}, 0) > {since}"
        held = TRUE if paper else f"coalesce(f.{HELD}, {self.may_hold('x')})"
        scan = (
            f"SELECT CAST(x.{a} AS bigint) AS {A}, {QUALIFIED}, {changed} AS {CHANGED}, {emptied} AS {EMPTIED}, "
            f"{held} AS {HELD} FROM {self.entries()} x "
            f"LEFT JOIN (SELECT {A}, {HELD} FROM {TOUCHED} WHERE {CHANGED}) f ON f.{A} = x.{a} "
            f"WHERE {QUALIFIED} OR {changed} OR {emptied}"
        )
        ends = TRUE if paper else f"({self.number('tail_gap')} > {since})"
        scan += f" UNION ALL SELECT NULL, (1 = 1), (1 = 0), {ends}, (1 = 0)"
        deletion = f"NOT {QUALIFIED} AND (({CHANGED} AND {HELD}) OR {EMPTIED})"
        order = f"OVER (ORDER BY {A} NULLS LAST {_BEFORE})"
        windows = (
            f"SELECT {A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, "
            f"coalesce(max(CASE WHEN {QUALIFIED} THEN {A} END) {order}, {self.start}) AS {LAST_QUAL}, "
            f"max(CASE WHEN {deletion} THEN {A} END) {order} AS {LAST_DELETION} FROM ({scan}) s"
        )
        pending = f"({EMPTIED} OR coalesce({LAST_DELETION} > {LAST_QUAL}, (1 = 0)))"
        value = f"({CHANGED} OR {pending}) AND {A} IS NOT NULL" if paper else CHANGED
        return (
            f"SELECT {A}, {LAST_QUAL}, ({value}) AS {CHANGED} FROM ({windows}) w "
            f"WHERE {QUALIFIED} AND ({CHANGED} OR {pending})"
        )

    def give_addresses(self) -> str:
        """Addresses, from a sequence, for entries of a base that has no integer key and were inserted since."""
        a, first = quoted(self.address), self.number("first")
        row = "ctid" if self.dialect == "postgres" else "rowid"
        numbered = (
            f"SELECT {row} AS here, {first} - 1 + row_number() OVER () AS number FROM {self.table} WHERE {a} IS NULL"
        )
        return f"UPDATE {self.table} SET {a} = n.number FROM ({numbered}) n WHERE {self.table}.{row} = n.here"
