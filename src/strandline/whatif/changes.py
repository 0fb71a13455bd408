"""What changed in a what-if from one state of the store to another, whichever level changed it.

In a table with a key, only keys are compared at which something happened: where a row of the base changed, and where a
tuple of some differential relation came, went, or lost its validity. What happened elsewhere can't be seen here, with
one exception: a tuple that a level has released (its changes were merged, or given up) follows the relation below
again, and may have got another key there long before. Such a tuple is looked for at the keys that are known; where it
is not found, and in tables without a key, the two states are compared as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.changes import ChangeSet
from strandline.pages import ReadView, TableId
from strandline.tables import (
    ALL,
    ROW,
    PageCache,
    RowShape,
    TableSchema,
    changed_rows,
    changes_of_shapes,
    common_shape,
    encode_keys,
    in_shape,
    net_rows,
)
from strandline.values import Flags, no_rows
from strandline.whatif.catalog import WhatIfChain, WhatIfDefinition, chain_of, differential_table
from strandline.whatif.placement import place_keys
from strandline.whatif.scan import PageSpan, WhatIfReader
from strandline.whatif.tuples import LEVEL, MAXDATE, MINDATE, PLACE, STORED, TUPNUM
from strandline.whatif.writes import bounds_of

Tname = tuple[int, int]


@dataclass(frozen=True)
class LevelChanges:
    """What changed in one relation of a chain: keys, the tuples themselves, and those that it hides no longer."""

    keys: frozenset[bytes]
    tnames: frozenset[Tname]
    released: frozenset[Tname] = frozenset()


@dataclass(frozen=True)
class RowsBetween:
    """Rows of a what-if at two states that hold all that differ; `whole`: they are all that there are.

    `shapes` are those of the table at the two states; `same` says that it is one table, and that the older rows are in
    the common shape.
    """

    old: pa.Table
    new: pa.Table
    shapes: tuple[TableSchema, TableSchema]
    same: bool
    whole: bool


def rows_between(cache: PageCache, name: str, older: ReadView, newer: ReadView) -> RowsBetween:
    """The rows of a what-if that can differ between two states, as both have them."""
    before, after = (
        WhatIfReader(chain_of(view, cache, name), view, cache, scan=int(view.commit)) for view in (older, newer)
    )
    keys = _keys(cache, before, after)
    old, new = (reader.to_arrow() if keys is None else _rows_at(reader, keys) for reader in (before, after))
    shapes = before.schema, after.schema
    is_one = before.chain.table.domain == after.chain.table.domain
    shape = common_shape(after.schema, before.schema) if is_one else None
    if shape is not None:
        old = in_shape(old, before.schema, shape)
    return RowsBetween(old, new, shapes, shape is not None, keys is None)


def changes_between(cache: PageCache, name: str, older: ReadView, newer: ReadView) -> ChangeSet:
    """The change set that leads from a what-if at one state to the same at another, with before images."""
    sides = rows_between(cache, name, older, newer)
    changes = changes_of_shapes(sides.old, sides.new, sides.shapes, same=sides.same)
    if sides.whole:
        return changes
    return changes.knowing(None)


def _keys(cache: PageCache, older: WhatIfReader, newer: WhatIfReader) -> list[bytes] | None:
    """The keys, in order, outside of which nothing has changed; None when that is not known."""
    if not newer.schema.key or older.schema != newer.schema or _table_ids(older) != _table_ids(newer):
        return None
    happened = [_in_base(cache, older, newer)]
    for definition in reversed(newer.chain.definitions):
        level_changes = _in_differential(cache, older, newer, definition)
        if level_changes is None:
            return None
        happened.append(level_changes)
    keys = sorted(frozenset().union(*(level_changes.keys for level_changes in happened)))
    for level, level_changes in enumerate(happened):
        below = frozenset().union(*(lower.tnames for lower in happened[:level]))
        if not _are_found(newer, level, level_changes.released - below, keys):
            return None
    return keys


def _table_ids(reader: WhatIfReader) -> list[TableId | None]:
    """The tables that a what-if is made of: a what-if that was dropped and made again has others."""
    tables = [reader.view.find_domain(definition.differential) for definition in reader.chain.definitions]
    return [reader.chain.table.domain, *(table.domain if table is not None else None for table in tables)]


def _in_base(cache: PageCache, older: WhatIfReader, newer: WhatIfReader) -> LevelChanges:
    schema = newer.schema
    rows = changed_rows(cache, older.base_view, newer.base_view, newer.chain.table.domain, RowShape(schema))
    net = net_rows(*rows, schema)
    keys = frozenset(key for side in net for key in encode_keys(side, schema.key))
    return LevelChanges(keys, frozenset((0, row) for side in net for row in side.column(ROW).to_pylist()))


def _in_differential(
    cache: PageCache, older: WhatIfReader, newer: WhatIfReader, definition: WhatIfDefinition
) -> LevelChanges | None:
    table_id = differential_table(newer.view, definition).domain
    shapes = [TableSchema.from_bytes(view.record(table_id)) for view in (older.view, newer.view)]
    if shapes[0] != shapes[1]:
        return None
    net = net_rows(*changed_rows(cache, older.view, newer.view, table_id, RowShape(shapes[1])), shapes[1])
    keys = frozenset(key for side in net for key in place_keys(side.column(STORED[PLACE])))
    valid = [
        _tnames(side.filter(pa.array(_valid(side, reader.scan))))
        for side, reader in zip(net, (older, newer), strict=True)
    ]
    released = frozenset(tname for tname in valid[0] - valid[1] if tname[0] != definition.level)
    return LevelChanges(keys, _tnames(net[0]) | _tnames(net[1]), released)


def _are_found(reader: WhatIfReader, level: int, released: frozenset[Tname], keys: Sequence[bytes]) -> bool:
    """Whether tuples that a level released all stand at these keys in the relation below it."""
    if not released:
        return True
    chain = reader.chain
    below = WhatIfChain(chain.definitions[chain.level - level + 1 :], chain.table, chain.schema)
    lower = WhatIfReader(below, reader.view, reader.cache, scan=reader.scan)
    visible = lower.select(None, bounds_of(keys)).visible
    return released <= frozenset(zip(visible.level.tolist(), visible.tupnum.tolist(), strict=True))


def _rows_at(reader: WhatIfReader, keys: Sequence[bytes]) -> pa.Table:
    """The rows with these keys (in order): the ranges are read in which there are any."""
    names = list(reader.schema.shown)
    schema = pa.schema([reader.schema.arrow_schema.field(name) for name in names])
    parts = [no_rows(schema), *(reader.rows_within(span, names) for span in _spans(reader, keys))]
    rows = pa.concat_tables(parts)
    wanted = {*keys}
    return rows.filter(pa.array([key in wanted for key in encode_keys(rows, reader.schema.key)], pa.bool_()))


def _spans(reader: WhatIfReader, keys: Sequence[bytes]) -> list[PageSpan]:
    """The runs of the base's pages that hold such keys."""
    separators = [separator for separator, _ in reader.base_pages(ALL)]
    places = sorted({bisect_right(separators, key) - 1 for key in keys})
    ends: list[tuple[int, int]] = []
    for place in places:
        if ends and ends[-1][1] == place:
            ends[-1] = (ends[-1][0], place + 1)
        else:
            ends.append((place, place + 1))
    return [PageSpan(separators[start], separators[end] if end < len(separators) else None) for start, end in ends]


def _tnames(tuples: pa.Table) -> frozenset[Tname]:
    level, tupnum = (tuples.column(STORED[name]).to_pylist() for name in (LEVEL, TUPNUM))
    return frozenset(zip(level, tupnum, strict=True))


def _valid(tuples: pa.Table, scan: int) -> Flags:
    since, until = (np.asarray(tuples.column(STORED[name]), dtype=np.int64) for name in (MINDATE, MAXDATE))
    is_valid: Flags = (since <= scan) & (scan < until)
    return is_valid
