"""Fix-up and refresh as sets, inside the database: figures 3 and 7 in SQL that PostgreSQL and SQLite both run.

An *entry* is a row of the base with its annotations, which stand in a table beside it. `DELETED` are the annotations
whose rows are gone; they are removed first, and rows without annotations are entered, so that the annotations then are
the entries of the paper. `ExpectPrev` of an entry differs from its PrevAddr exactly when no entry that was there at the
last fix-up is left at PrevAddr; `LastAddr` is the greatest address below; `LastQual` is the greatest qualified one
below, and `Deletion` says that an unqualified, changed entry lies above that. So the pass of the pseudo code becomes:

1. `touched`: entries whose annotations are to be written. `by_scan` finds them with windows over all entries in address
   order; `by_lookup`, when few changed, by the annotations alone and look-ups along the address's index.
2. `fix_up`: one UPDATE of just these.
3. `sent`: the messages, by windows over qualified and changed entries alone; a last row without an address stands for
   the message that ends the refresh.

For PostgreSQL and the marked algorithm the messages are found without sorting the base. Between two changed entries
only the least and greatest qualified one matter. The entries that make messages (`met`) cut the addresses into runs.
Where they are few, `sent_by_lookup` finds LastQual of each, and the entry that a deletion makes known, along the
address's index. Where they are many, one unordered, parallel scan gives for each run its least and greatest qualified
address (`width_bucket` finds the run by binary search), and `sent_by_runs` does the rest.

The texts are the same for each refresh. What differs are numbers (`FixUpNumbers`), which are parameters of the
statements. Nothing is executed here: `program` keeps the texts and runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from strandline.replication.definition import PREFIX
from strandline.replication.senders.annotated.base_table import ADDRESS, GAP, PAPER, PREVIOUS, TIME, UNHELD, RowKey
from strandline.values import quoted, quoted_text

NONE = -1
"""In place of a bit: there is none."""
TOUCHED, SENT, MET, RUNS = (f"{PREFIX}{word}" for word in ("touched", "sent", "met", "runs"))
FRESH, DELETED, BROKEN, EVERY = (f"{PREFIX}{word}" for word in ("fresh", "deleted", "broken", "every"))
UNLIKE = f"{PREFIX}unlike"
"""The temporary tables."""
FILL_ROWS = 50_000
"""How many rows of a new base get annotations at a time; writers wait no longer than that."""


@dataclass(frozen=True)
class FixUpNumbers:
    """`now` is the time of this fix-up, `since` that of the copy (SnapTime); `start` the address before the first.

    `bit` is the copy's, unless it may hold any entry; `refreshing` the bit of the copy that will hold what qualifies.
    `tail_gap` is when entries above the greatest address last went, `last` what that was.
    """

    now: int = 0
    since: int = 0
    start: int = 0
    bit: int = NONE
    refreshing: int = NONE
    tail_gap: int = 0
    last: int = 0

    def values(self) -> Mapping[str, int]:
        """By name, in the order in which PostgreSQL numbers them."""
        return asdict(self)


_PLACES = {field.name: place for place, field in enumerate(fields(FixUpNumbers), 1)}


def number(dialect: str, name: str) -> str:
    """How a statement names one of them."""
    return f"CAST(${_PLACES[name]} AS bigint)" if dialect == "postgres" else f":{name}"


A, P, T, U = (quoted(f"{PREFIX}{letter}") for letter in "aptu")
INSERTED, CHANGED, EMPTIED, HELD = (quoted(f"{PREFIX}{word}") for word in ("inserted", "changed", "emptied", "held"))
GONE = quoted(f"{PREFIX}gone")
QUALIFIED, LAST_QUAL, LAST_DELETION = (quoted(f"{PREFIX}{word}") for word in ("q", "last_qual", "last_deletion"))
TRUE = "(1 = 1)"
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_A, _P, _T, _G, _U = (quoted(name) for name in (ADDRESS, PREVIOUS, TIME, GAP, UNHELD))


@dataclass(frozen=True)
class Statements:
    """The statements for one base, and for a copy of it with the condition `qualifies`.

    In the texts `b` is a row of the base and `s` its annotations. Columns of the user's are not qualified: no name of
    ours begins as theirs do.
    """

    dialect: str
    table: str
    annotations: str
    key: RowKey
    algorithm: str
    qualifies: str = TRUE

    @property
    def start(self) -> str:
        return self.number("start")

    def number(self, name: str) -> str:
        return number(self.dialect, name)

    @property
    def same(self) -> str:
        """That `b` and `s` belong together."""
        return " AND ".join(f"b.{quoted(name)} = s.{quoted(noted)}" for noted, name in self.key.noted.items())

    @property
    def annotated_rows(self) -> str:
        """What stands behind FROM: rows with their annotations."""
        return f"{self.annotations} s JOIN {self.table} b ON {self.same}"

    @property
    def rows(self) -> str:
        """The same where only the address is wanted of the annotations: the row may have it itself."""
        return self.annotated_rows if self.key.given else f"{self.table} b"

    @property
    def address(self) -> str:
        """The address in `rows`."""
        return f"s.{_A}" if self.key.given else f"b.{quoted(self.key.columns[0])}"

    @property
    def entries(self) -> str:
        """The annotations, and whether the row qualifies."""
        return f"(SELECT s.*, {self.qualifies} AS {QUALIFIED} FROM {self.annotated_rows})"

    def unlike(self) -> str:
        """`UNLIKE`: annotations whose rows are gone, rows without annotations, and what was noted of others.

        PostgreSQL finds them by one merge of the two; SQLite, which would have to look up each row, asks one by one.
        """
        row, s = f"b.{quoted(self.key.columns[0])}", f"s.{_A}"
        keys = ", ".join(f"b.{quoted(name)} AS {quoted(noted)}" for noted, name in self.key.noted.items())
        return (
            f"SELECT {s} AS {A}, s.{_P} AS {P}, {row} IS NULL AS {GONE}, {keys} "
            f"FROM {self.annotations} s FULL JOIN {self.table} b ON {self.same} "
            f"WHERE {row} IS NULL OR {s} IS NULL OR s.{_P} IS NULL OR s.{_T} IS NULL"
        )

    def deleted_of(self) -> str:
        """`DELETED`, of `UNLIKE`."""
        return f"SELECT {A} FROM {UNLIKE} WHERE {GONE}"

    def fresh_of(self) -> str:
        """`FRESH`, of `UNLIKE`, but for rows that have no annotations yet."""
        return f"SELECT {A}, {P} FROM {UNLIKE} WHERE NOT {GONE} AND {A} IS NOT NULL"

    def enter_of(self) -> str:
        """Annotations, still empty, for rows of `UNLIKE` that have none; they are `FRESH`."""
        noted = ", ".join(quoted(name) for name in self.key.noted)
        entering = f"INSERT INTO {self.annotations} ({noted}) SELECT {noted} FROM {UNLIKE} WHERE {A} IS NULL"
        return (
            f"WITH entered AS ({entering} RETURNING {_A}) "
            f"INSERT INTO {FRESH} SELECT {_A}, CAST(NULL AS bigint) FROM entered"
        )

    def deleted(self) -> str:
        """`DELETED`: annotations whose rows are gone."""
        row = f"SELECT 1 FROM {self.table} b WHERE {self.same}"
        return f"SELECT s.{_A} AS {A} FROM {self.annotations} s WHERE NOT EXISTS ({row})"

    def remove_deleted(self) -> str:
        return f"DELETE FROM {self.annotations} WHERE {_A} IN (SELECT {A} FROM {DELETED})"

    def row_count(self) -> str:
        """How many rows there are: more than annotations, once none of these is without a row, if rows lack them."""
        return f"SELECT count(*) FROM {self.table}"

    def enter(self) -> str:
        """Annotations, still empty, for rows that no trigger entered."""
        noted = ", ".join(quoted(name) for name in self.key.noted)
        return (
            f"INSERT INTO {self.annotations} ({noted}) SELECT {self._key} FROM {self.table} b WHERE {self._unentered}"
        )

    def enter_above(self) -> str:
        """The same for rows above all others, where most new ones are; no row has to be looked up."""
        greatest = f"coalesce((SELECT max({_A}) FROM {self.annotations}), {self.start})"
        rows = f"SELECT {self._key} FROM {self.table} b WHERE {self._key} > {greatest}"
        return f"INSERT INTO {self.annotations} ({_A}) {rows}"

    @property
    def _key(self) -> str:
        return ", ".join(f"b.{quoted(name)}" for name in self.key.columns)

    @property
    def _unentered(self) -> str:
        return f"NOT EXISTS (SELECT 1 FROM {self.annotations} s WHERE {self.same})"

    def unsettled(self) -> str:
        """Whether anything changed since the last fix-up, as far as triggers and keys tell."""
        noted = f"SELECT 1 FROM {self.annotations} WHERE {_T} IS NULL OR {_P} IS NULL"
        row = f"SELECT 1 FROM {self.table} b WHERE {self._unentered}"
        return f"SELECT EXISTS ({noted}) OR EXISTS ({self.deleted()}) OR EXISTS ({row})"

    def touch_all(self) -> str:
        return f"UPDATE {self.annotations} SET {_T} = NULL"

    def fill(self, restrictions: Mapping[int, str]) -> str:
        """Annotations, as fix-up would write them, for the next rows of a base that was never fixed up."""
        bits = " | ".join(["0", *(self._bit(bit, f"NOT {sql}") for bit, sql in sorted(restrictions.items()))])
        chosen = f"{self._key}, {bits} AS {U}" if self.key.given else f"{self._key} AS {A}, {bits} AS {U}"
        filled = f"(SELECT max({_A}) FROM {self.annotations} WHERE {_P} IS NOT NULL)"
        where, order = self._unentered, ""
        if not self.key.given:
            where, order = f"{where} AND {self._key} > coalesce({filled}, {self.start})", f" ORDER BY {self._key}"
        rows = f"SELECT {chosen} FROM {self.table} b WHERE {where}{order} LIMIT {FILL_ROWS}"
        if self.key.given:
            sequence = f"pg_get_serial_sequence({quoted_text(self.annotations)}, {quoted_text(ADDRESS)})"
            rows = f"SELECT *, nextval({sequence}) AS {A} FROM ({rows}) g"
        own = {_A: A, _P: f"lag({A}, 1, coalesce({filled}, {self.start})) OVER (ORDER BY {A})", _T: self.number("now")}
        own |= {quoted(noted): quoted(name) for noted, name in self.key.noted.items()} if self.key.given else {}
        own |= {_U: U} if self.algorithm != PAPER else {}
        return f"INSERT INTO {self.annotations} ({', '.join(own)}) SELECT {', '.join(own.values())} FROM ({rows}) f"

    def counts(self) -> str:
        """Rows, inserted ones, changed ones (those included), gone ones, the least and the greatest address, and
        whether the entry that was last at the last fix-up is still there."""
        return (
            f"SELECT count(*), count(*) - count({_P}), "
            f"sum(CASE WHEN {_P} IS NULL OR {_T} IS NULL THEN 1 ELSE 0 END), (SELECT count(*) FROM {DELETED}), "
            f"min({_A}), max({_A}), {self._has_last} FROM {self.annotations}"
        )

    def counts_of(self) -> str:
        """The same, of `FRESH`."""
        address = f"FROM {self.annotations}"
        return (
            f"SELECT (SELECT count(*) {address}), (SELECT count(*) FROM {FRESH} WHERE {P} IS NULL), "
            f"(SELECT count(*) FROM {FRESH}), (SELECT count(*) FROM {DELETED}), "
            f"(SELECT min({_A}) {address}), (SELECT max({_A}) {address}), {self._has_last}"
        )

    @property
    def _has_last(self) -> str:
        noted = f"{_A} = {self.number('last')} AND {_P} IS NOT NULL"
        return f"EXISTS (SELECT 1 FROM {self.annotations} WHERE {noted})"

    def by_scan(self) -> str:
        """`TOUCHED` by figure 7's pass with windows over every entry."""
        scan = (
            f"SELECT {QUALIFIED}, {_A} AS {A}, {_P} AS {P}, {_T} AS {T}, {self._unheld_of('e')} AS {U}, "
            f"lag({_A}, 1, {self.start}) OVER (ORDER BY {_A}) AS last_addr, "
            f"coalesce(max(CASE WHEN {_P} IS NOT NULL THEN {_A} END) OVER (ORDER BY {_A} {_BEFORE}), "
            f"{self.start}) AS expect_prev FROM {self.entries} e"
        )
        return (
            f"SELECT {A}, {QUALIFIED}, last_addr AS {PREVIOUS}, {P} IS NULL AS {INSERTED}, "
            f"({P} IS NULL OR {T} IS NULL) AS {CHANGED}, ({P} IS NOT NULL AND {P} <> expect_prev) AS {EMPTIED}, "
            f"{self.held(P, U)} AS {HELD} FROM ({scan}) w "
            f"WHERE {P} IS NULL OR {T} IS NULL OR {P} <> last_addr OR {P} <> expect_prev"
        )

    def by_lookup(self) -> dict[str, str]:
        """The same by look-ups: what each temporary table holds, in the order in which they are made.

        If no entry is gone (by count), broken chains are not looked for: `no_broken` instead of `BROKEN`.
        """
        behind = f"(SELECT min(x.{_A}) FROM {self.annotations} x WHERE x.{_A} > f.{A})"
        below = f"coalesce((SELECT max(y.{_A}) FROM {self.annotations} y WHERE y.{_A} < e.{A}), {self.start})"
        fresh = f"SELECT {_A} AS {A}, {_P} AS {P} FROM {self.annotations} WHERE {_P} IS NULL OR {_T} IS NULL"
        # An entry that came anew at its address is not the one to which its successor points.
        gone = f"SELECT {A} FROM {DELETED} UNION ALL SELECT {A} FROM {FRESH} WHERE {P} IS NULL"
        # Between what is gone and the entry that points to it stand new ones at the most.
        behind_gone = f"SELECT {behind} FROM ({gone}) f"
        broken = f"SELECT {_A} AS {A} FROM {self.annotations} WHERE {_A} IN ({behind_gone}) AND {_P} IN ({gone})"
        # An entry that was merely updated keeps its PrevAddr: only new ones, and those behind a change, look it up.
        # In order, look-ups and the UPDATE go along the table, not across it.
        every = (
            f"SELECT {A}, max(moved) AS moved FROM (SELECT {A}, CASE WHEN {P} IS NULL THEN 1 ELSE 0 END AS moved "
            f"FROM {FRESH} UNION ALL SELECT {A}, 1 FROM {BROKEN} UNION ALL "
            f"SELECT {behind}, 1 FROM {FRESH} f WHERE {P} IS NULL) u GROUP BY {A} ORDER BY {A}"
        )
        touched = (
            f"SELECT e.{A} AS {A}, x.{QUALIFIED}, CASE WHEN e.moved = 0 THEN x.{_P} ELSE {below} END AS {PREVIOUS}, "
            f"x.{_P} IS NULL AS {INSERTED}, (x.{_P} IS NULL OR x.{_T} IS NULL) AS {CHANGED}, "
            f"(x.{_P} IS NOT NULL AND r.{A} IS NOT NULL) AS {EMPTIED}, "
            f"{self.held(f'x.{_P}', self._unheld_of('x'))} AS {HELD} "
            f"FROM {EVERY} e {self._looked_up} LEFT JOIN {BROKEN} r ON r.{A} = e.{A}"
        )
        return {FRESH: fresh, BROKEN: broken, EVERY: every, TOUCHED: touched}

    @property
    def _looked_up(self) -> str:
        """The entry `x` of each `e`, found along indexes."""
        if self.dialect == "postgres":
            entry = f"SELECT s.*, {self.qualifies} AS {QUALIFIED} FROM {self.annotated_rows} WHERE s.{_A} = e.{A}"
            return f"CROSS JOIN LATERAL ({entry} OFFSET 0) x"
        return f"CROSS JOIN {self.entries} x ON x.{_A} = e.{A}"

    def no_broken(self) -> str:
        return f"SELECT {self.start} AS {A} WHERE 1 = 0"

    def _unheld_of(self, entry: str) -> str:
        return "0" if self.algorithm == PAPER else f"coalesce({entry}.{_U}, 0)"

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
        now = self.number("now")
        new = f"f.{CHANGED} OR f.{EMPTIED}" if self.algorithm == PAPER else f"f.{CHANGED}"
        sets = [f"{_P} = f.{PREVIOUS}", f"{_T} = CASE WHEN {new} THEN {now} ELSE s.{_T} END"]
        among, where = f"{TOUCHED} AS f", f"s.{_A} = f.{A}"
        if self.algorithm != PAPER:
            gap = f"CASE WHEN f.{INSERTED} THEN NULL WHEN f.{EMPTIED} THEN {now} ELSE s.{_G} END"
            bits = " | ".join(["0", *(self._unheld(bit, sql) for bit, sql in sorted(restrictions.items()))])
            if restrictions and self.dialect == "postgres":
                among, where = f"{among} CROSS JOIN {self.table} AS b", f"{where} AND {self.same}"
            elif restrictions:  # SQLite hides in an UPDATE where a row is stored
                rows = f"{TOUCHED} f CROSS JOIN {self.annotated_rows} AND {where}"
                among, bits = f"(SELECT f.*, {bits} AS {U} FROM {rows}) AS f", f"f.{U}"
            sets += [f"{_G} = {gap}", f"{_U} = CASE WHEN f.{CHANGED} THEN {bits} ELSE s.{_U} END"]
        return f"UPDATE {self.annotations} AS s SET {', '.join(sets)} FROM {among} WHERE {where}"

    def _unheld(self, bit: int, qualifies: str) -> str:
        known = f"f.{INSERTED} OR (coalesce(s.{_U}, 0) >> {bit}) & 1 = 1"
        return self._bit(bit, f"NOT {qualifies} AND ({self.number('refreshing')} = {bit} OR {known})")

    def _bit(self, bit: int, condition: str) -> str:
        value = f"CAST({1 << bit} AS bigint)" if self.dialect == "postgres" else str(1 << bit)
        return f"CASE WHEN {condition} THEN {value} ELSE 0 END"

    def sent(self) -> str:
        """Figure 3's pass: the messages, in a table of address (NULL: the end), LastQual, and whether a value goes."""
        since = self.number("since")
        paper = self.algorithm == PAPER
        changed = f"x.{_T} > {since}"
        emptied = "(1 = 0)" if paper else f"coalesce(x.{_G}, 0) > {since}"
        held = TRUE if paper else f"coalesce(f.{HELD}, {self.may_hold('x')})"
        scan = (
            f"SELECT x.{_A} AS {A}, {QUALIFIED}, {changed} AS {CHANGED}, {emptied} AS {EMPTIED}, "
            f"{held} AS {HELD} FROM {self.entries} x "
            f"LEFT JOIN (SELECT {A}, {HELD} FROM {TOUCHED} WHERE {CHANGED}) f ON f.{A} = x.{_A} "
            f"WHERE {QUALIFIED} OR {changed} OR {emptied}"
        )
        ends = TRUE if paper else f"({self.number('tail_gap')} > {since})"
        scan += f" UNION ALL SELECT NULL, (1 = 1), (1 = 0), {ends}, (1 = 0)"
        deletion = f"NOT {QUALIFIED} AND (({CHANGED} AND {HELD}) OR {EMPTIED})"
        order = f"OVER (ORDER BY {A} NULLS LAST {_BEFORE})"
        windows = (
            f"SELECT {A}, {QUALIFIED}, {CHANGED}, {EMPTIED}, "
            f"coalesce(max(CASE WHEN {QUALIFIED} THEN {A} END) {order}, {self.start}) AS {LAST_QUAL}, "
            f"max(CASE WHEN {deletion} THEN {A} END) {order} AS {LAST_DELETION} FROM ({scan}) m"
        )
        pending = f"({EMPTIED} OR coalesce({LAST_DELETION} > {LAST_QUAL}, (1 = 0)))"
        value = f"({CHANGED} OR {pending}) AND {A} IS NOT NULL" if paper else CHANGED
        return (
            f"SELECT {A}, {LAST_QUAL}, ({value}) AS {CHANGED} FROM ({windows}) w "
            f"WHERE {QUALIFIED} AND ({CHANGED} OR {pending})"
        )


_TELLING = f"({EMPTIED} OR ({CHANGED} AND ({QUALIFIED} OR {HELD})))"
"""Others changed without a trace in the copy: they neither qualify nor are held."""
_DELETION = f"(({EMPTIED} AND NOT ({QUALIFIED} AND {CHANGED})) OR (NOT {QUALIFIED} AND {CHANGED} AND {HELD}))"
_SENT = f"({QUALIFIED} AND {CHANGED})"


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
