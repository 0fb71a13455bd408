"""What changed and what is gone, by one unordered scan that sorts nothing. For PostgreSQL.

The scan leaves one row for each block of 64 addresses: bits that say which entries of it were there at the last fix-up
(`kept`), which are new (`inserted`) or changed (`updated`), and to which addresses of the block entries of it point
back (`expected`). An address that is expected and not kept is gone, so the chain is broken at the next kept entry; the
first kept entry of a block is broken if it does not point to the last one before the block. No entry is read twice.
"""

from __future__ import annotations

from strandline.detect.annotated.names import BLOCKS, PREVIOUS, TIME
from strandline.replicas.databases import quoted
from strandline.replicas.definition import PREFIX

A, P = (quoted(f"{PREFIX}{letter}") for letter in "ap")
BLOCK_BITS = 6
"""A block is 2 to this power addresses wide: as many as a bigint has bits."""
_WIDTH = 2**BLOCK_BITS


def survey(table: str, address: str, start: str) -> str:
    """The scan. `address` and `start` are expressions; the start, to which a first entry points, is no entry."""
    p, t = quoted(PREVIOUS), quoted(TIME)
    here = _bit(address)
    return (
        f"CREATE TEMP TABLE {BLOCKS} AS SELECT {address} >> {BLOCK_BITS} AS {A}, min({p}) AS first_previous, "
        f"bit_or({here}) FILTER (WHERE {p} IS NOT NULL) AS kept, "
        f"bit_or({_bit(p)}) FILTER (WHERE {p} >> {BLOCK_BITS} = {address} >> {BLOCK_BITS} AND {p} <> {start}) "
        f"AS expected, bit_or({here}) FILTER (WHERE {p} IS NULL) AS inserted, "
        f"bit_or({here}) FILTER (WHERE {t} IS NULL AND {p} IS NOT NULL) AS updated FROM {table} GROUP BY 1"
    )


def surveyed_counts(table: str, address: str) -> str:
    """Rows, inserted ones, changed ones (those included), the least and the greatest address."""
    kept, inserted, updated = (
        f"coalesce(sum(bit_count({_bits(name)})), 0)" for name in ("kept", "inserted", "updated")
    )
    sums = (f"{kept} + {inserted}", inserted, f"{inserted} + {updated}")
    totals = ", ".join(f"CAST({one} AS bigint)" for one in sums)
    ends = ", ".join(f"(SELECT {end}({address}) FROM {table})" for end in ("min", "max"))
    return f"SELECT {totals}, {ends} FROM {BLOCKS}"


def surveyed_fresh() -> str:
    """The inserted entries, without a PrevAddr, and the updated ones."""
    fresh = "(coalesce(inserted, 0) | coalesce(updated, 0))"
    return (
        f"SELECT ({A} << {BLOCK_BITS}) + byte + i AS {A}, "
        f"CASE WHEN (coalesce(inserted, 0) >> (byte + i)) & 1 = 0 THEN CAST(0 AS bigint) END AS {P} "
        f"FROM (SELECT {A}, inserted, updated, byte FROM {BLOCKS} CROSS JOIN generate_series(0, {_WIDTH - 8}, 8) byte "
        f"WHERE {fresh} <> 0 AND ({fresh} >> byte) & 255 <> 0) b CROSS JOIN generate_series(0, 7) i "
        f"WHERE ({fresh} >> (byte + i)) & 1 = 1"
    )


def surveyed_broken(start: str) -> str:
    """Entries that stand behind a deletion. Bit -1 stands for what is before the block."""
    last_kept = f"({A} << {BLOCK_BITS}) + {_WIDTH} - position(B'1' IN {_bits('kept')})"
    lagged = (
        f"SELECT {A}, kept, coalesce(expected, 0) & ~kept AS gone, "
        f"first_previous <> lag({last_kept}, 1, {start}) OVER (ORDER BY {A}) AS first_broken "
        f"FROM {BLOCKS} WHERE kept IS NOT NULL"
    )
    behind = f"(SELECT min(j) FROM generate_series(i + 1, {_WIDTH - 1}) j WHERE (kept >> j) & 1 = 1)"
    return (
        f"SELECT DISTINCT ({A} << {BLOCK_BITS}) + {behind} AS {A} "
        f"FROM (SELECT * FROM ({lagged}) l WHERE gone <> 0 OR first_broken) s "
        f"CROSS JOIN generate_series(-1, {_WIDTH - 1}) i "
        f"WHERE CASE WHEN i < 0 THEN first_broken ELSE (gone >> i) & 1 = 1 END"
    )


def _bits(name: str) -> str:
    return f"CAST({name} AS bit({_WIDTH}))"


def _bit(address: str) -> str:
    return f"CAST(1 AS bigint) << CAST({address} & {_WIDTH - 1} AS int)"
