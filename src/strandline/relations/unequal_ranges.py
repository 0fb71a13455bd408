"""Two tables in PostgreSQL: which ranges of their keys differ, by checksums that the databases compute themselves.

Both databases count the rows of some thousand ranges of the key and add up hashes of them (64 bits of each row's text,
under settings that make the text of a value the same everywhere). Ranges whose count and sum agree are not read. Those
that differ are cut once more, and what differs still is read, from both sides. So a few short answers cross the
network, however large the tables are: the bounds, two rounds of checksums, and the rows around what changed.

Both sides use the same bounds, which the new side gives: keys of a sample for the first cut, and some of the keys in
between for the second. A key has to be unique and never null on both sides, so that no row hides in an equal range, and
the first of its columns of a type that all servers put in one order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline.relations.database_relation import DatabaseRelation
from strandline.relations.formats import SpooledRelation
from strandline.storage import together
from strandline.values import quoted

LEAST_BYTES = 4 << 20
"""Smaller tables are simply read."""
ROWS_OF_A_RANGE = 1200
MOST_RANGES = 4096
ROWS_OF_A_PIECE = 40
"""What a range that differs is cut into."""
LARGEST_SHARE = 0.5
"""Where more of the rows lie in pieces that differ, the tables are read whole."""
_ORDERED = ("smallint", "integer", "bigint", "uuid", "date", "timestamp", "numeric")
"""Types whose order no collation decides; timestamps with a zone too."""


_LOW, _HIGH = 'r."_strandline_low"', 'r."_strandline_high"'


@dataclass(frozen=True)
class EqualRanges:
    """What was not read: the rows of ranges that agreed, of one side, and how many ranges there were."""

    rows: int
    ranges: int
    unequal: int


@dataclass(frozen=True)
class UnequalRows:
    """The rows of ranges that differ, of both sides, and what was left out."""

    old: SpooledRelation
    new: SpooledRelation
    equal: EqualRanges


@dataclass(frozen=True)
class _Checksum:
    """One range on one side: its rows, the sum of their hashes, its least and greatest key as texts."""

    rows: int
    sum: str
    least: str
    greatest: str


@dataclass(frozen=True)
class _Side:
    """One table, the columns of its key and all that are compared, under their names there."""

    table: DatabaseRelation
    key: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The type of the key's first column."""
        return self.table.kinds[self.key[0]]

    @property
    def sql(self) -> str:
        address = self.table.address
        return quoted(address.schema, address.table)

    @property
    def first(self) -> str:
        return quoted(self.key[0])


def unequal_rows(
    old: DatabaseRelation, new: DatabaseRelation, columns: Sequence[tuple[str, str]], key: Sequence[tuple[str, str]]
) -> UnequalRows | None:
    """The rows to compare, both tables being read at their states; None where they have to be read whole.

    `columns` and `key` are pairs of names, of the old side and of the new one.
    """
    sides = (_side(old, columns, key, 0), _side(new, columns, key, 1))
    if not key or not _can_compare(*sides):
        return None
    bounds = _first_bounds(sides[1])
    sums = _both(sides, [None, None], bounds)
    ranges, rows = len(bounds) + 1, sum(each.rows for each in sums[0].values())
    unequal = _unequal(*sums)
    total = _rows_of(sums, {*sums[0], *sums[1]})
    if unequal:
        pieces = _second_bounds(sides, sums, unequal, bounds)
        sums = _both(sides, [_ranges(each, unequal) for each in sums], pieces)
        unequal = _unequal(*sums)
    if _rows_of(sums, unequal) > LARGEST_SHARE * total:
        return None
    left = sum(each.rows for place, each in sums[0].items() if place in unequal)
    read: dict[int, SpooledRelation] = {}

    def read_side(number: int) -> None:
        read[number] = _read_ranges(sides[number], _ranges(sums[number], unequal))

    together(read_side, range(2))
    return UnequalRows(read[0], read[1], EqualRanges(rows - left, ranges, len(unequal)))


def _side(
    table: DatabaseRelation, columns: Sequence[tuple[str, str]], key: Sequence[tuple[str, str]], place: int
) -> _Side:
    return _Side(table, tuple(pair[place] for pair in key), tuple(pair[place] for pair in columns))


def _can_compare(old: _Side, new: _Side) -> bool:
    """Whether equal checksums mean equal rows, and are worth computing."""
    sides = (old, new)
    if any(side.table.database.dialect != "postgres" or side.table.is_query for side in sides):
        return False
    kinds = [[side.table.kinds[name] for name in side.columns] for side in sides]
    if kinds[0] != kinds[1] or not new.kind.startswith(_ORDERED) or old.kind != new.kind:
        return False
    return all(side.table.stored_size[0] >= LEAST_BYTES and _is_unique(side) for side in sides)


def _is_unique(side: _Side) -> bool:
    """Whether an index sees to it that the key is there and unique; it must not wait for the end of transactions."""
    rows = side.table.database.execute(
        "SELECT array_agg(a.attname::text ORDER BY a.attname), bool_and(a.attnotnull) FROM pg_index i "
        "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(number, place) "
        "LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE i.indrelid = to_regclass(?) AND i.indisunique AND i.indisvalid AND i.indimmediate "
        "AND i.indpred IS NULL AND k.place <= i.indnkeyatts GROUP BY i.indexrelid",
        [side.sql],
    )
    return any(held and set(names or ()) <= set(side.key) for names, held in rows)


def _first_bounds(side: _Side) -> list[str]:
    """Keys that cut the table into ranges of about one size, by a sample of its blocks; in order."""
    rows = max(side.table.stored_size[1], 1)
    count = min(max(rows // ROWS_OF_A_RANGE, 2), MOST_RANGES)
    share = min(100.0, 100.0 * 20 * count / rows)
    bounds = side.table.database.execute(
        f"SELECT k::text FROM (SELECT DISTINCT unnest(percentile_disc((SELECT array_agg(n::float8 / {count}) "
        f"FROM generate_series(1, {count - 1}) n)) WITHIN GROUP (ORDER BY {side.first})) AS k "
        f"FROM {side.sql} TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (0)) AS s WHERE k IS NOT NULL ORDER BY s.k"
    )
    return [str(bound) for (bound,) in bounds]


_Sums = Mapping[int, _Checksum]


def _both(sides: Sequence[_Side], ranges: Sequence[list[tuple[str, str]] | None], bounds: list[str]) -> list[_Sums]:
    """The checksums of both sides, computed at the same time; of the rows inside `ranges`, or of all."""
    sums: dict[int, _Sums] = {}

    def one(number: int) -> None:
        sums[number] = _checksums(sides[number], ranges[number], bounds)

    together(one, range(2))
    return [sums[0], sums[1]]


def _checksums(side: _Side, ranges: list[tuple[str, str]] | None, bounds: list[str]) -> _Sums:
    if ranges is not None and not ranges:
        return {}
    columns = ", ".join(f"t.{quoted(name)}" for name in side.columns)
    source, params = f"{side.sql} AS t", [_array_text(bounds)]
    if ranges is not None:
        source = f"{_range_rows(side.kind)} JOIN {source} ON t.{side.first} BETWEEN {_LOW} AND {_HIGH}"
        params = [*_range_params(ranges), *params]
    rows = side.table.database.execute(
        # The offset keeps the hashes in the inner query, which workers of the server then share.
        "SELECT place, count(*), sum(hash)::text, min(k)::text, max(k)::text FROM ("
        f"SELECT width_bucket(t.{side.first}, (SELECT ${len(params)}::text::{side.kind}[])) AS place, "
        f'hashtextextended(ROW({columns})::text COLLATE "C", 0) AS hash, t.{side.first}::{_least(side.kind)} AS k '
        f"FROM {source} OFFSET 0) AS s GROUP BY place",
        _numbered(params),
    )
    return {int(place): _Checksum(int(count), *map(str, rest)) for place, count, *rest in rows}


def _least(kind: str) -> str:
    """The type in which least and greatest values are found: uuid has none before version 18, its text has."""
    return 'text COLLATE "C"' if kind == "uuid" else kind


def _unequal(old: _Sums, new: _Sums) -> set[int]:
    return {
        place
        for place in {*old, *new}
        if place not in old
        or place not in new
        or (old[place].rows, old[place].sum) != (new[place].rows, new[place].sum)
    }


def _rows_of(sums: Sequence[_Sums], places: set[int]) -> int:
    return sum(each[place].rows for each in sums for place in places if place in each)


def _ranges(sums: _Sums, places: set[int]) -> list[tuple[str, str]]:
    """The keys from the first to the last of each of these ranges, on one side: both inclusive."""
    return [(sums[place].least, sums[place].greatest) for place in sorted(places) if place in sums]


def _second_bounds(sides: Sequence[_Side], sums: Sequence[_Sums], unequal: set[int], bounds: list[str]) -> list[str]:
    """Bounds inside the ranges that differ, with the bounds of these: so no range spans one that was equal."""
    side, known = sides[1], sums[1]
    inside: dict[int, list[str]] = {place: [] for place in unequal}
    if ranges := _ranges(known, unequal):
        params = [_array_text([str(place) for place in sorted(unequal) if place in known]), *_range_params(ranges)]
        rows = side.table.database.execute(
            f"SELECT place, k::text FROM (SELECT r.place, t.{side.first} AS k, "
            f"row_number() OVER (PARTITION BY r.place ORDER BY t.{side.first}) AS n "
            f"FROM unnest($1::text::int[], $2::text::{side.kind}[], $3::text::{side.kind}[]) AS r(place, low, high) "
            f"JOIN {side.sql} AS t ON t.{side.first} BETWEEN r.low AND r.high) AS s "
            f"WHERE n % {ROWS_OF_A_PIECE} = 0 ORDER BY place, s.k",
            _numbered(params),
        )
        for place, key in rows:
            inside[int(place)].append(str(key))
    pieces: list[str] = []
    for place in sorted(unequal):
        pieces += [*bounds[max(place - 1, 0) : place], *inside[place], *bounds[place : place + 1]]
    return pieces


def _read_ranges(side: _Side, ranges: list[tuple[str, str]]) -> SpooledRelation:
    # The names can't meet a user's, and the ranges not each other.
    inside = f"JOIN {_range_rows(side.kind)} ON {side.first} BETWEEN {_LOW} AND {_HIGH}"
    return side.table.fetch_rows(side.columns, inside, _range_params(ranges))


def _numbered(params: Sequence[str]) -> dict[str, str]:
    return {f"${place}": text for place, text in enumerate(params, 1)}


def _array_text(values: Sequence[str]) -> str:
    """PostgreSQL's text of an array of texts.

    >>> print(_array_text(['1', 'say "x"']))
    {"1","say \\"x\\""}
    """
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in escaped) + "}"


def _range_rows(kind: str) -> str:
    """Ranges of keys as rows `r` of a least and a greatest key; the parameters are `_range_params`."""
    return f"unnest($1::text::{kind}[], $2::text::{kind}[]) AS r({_LOW[2:]}, {_HIGH[2:]})"


def _range_params(ranges: Sequence[tuple[str, str]]) -> list[str]:
    return [_array_text([low for low, _ in ranges]), _array_text([high for _, high in ranges])]
