"""The two forms of a change set, keyed and counted, made into each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.changes.consolidate import consolidate, net
from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    COUNT,
    COUNTED,
    KEYED,
    KINDS,
    ChangeSet,
    Header,
    after_table,
    before_table,
    check_key,
    image_struct,
    kinds,
    require_before,
    show,
)
from strandline.errors import ChangesError
from strandline.values import cast_rows, first_occurrences


def to_counted(changes: ChangeSet) -> ChangeSet:
    """The same changes as counts of rows: a delete is −1, an insert +1, an update both. Needs before images."""
    header = counted_again(changes.header)
    if changes.header.form == COUNTED:
        return changes
    kind = kinds(changes.rows)
    parts = []
    for table, chosen, sign in ((before_table(changes), kind < 2, -1), (after_table(changes), kind > 0, 1)):
        image = cast_rows(table, header.after_schema).filter(pa.array(np.asarray(chosen)))
        parts.append(image.append_column(COUNT, pa.array(np.full(len(image), sign, dtype=np.int64))))
    result = consolidate(ChangeSet(header, pa.concat_tables(parts)))
    return result.knowing(changes.header.counts.unchanged)


def counted_again(header: Header) -> Header:
    """The header of the counted form, once it is sure that there are before images."""
    require_before(header, "converting a change set to counts")
    return replace(header, form=COUNTED, key=(), has_before=False, has_changed=False)


def to_keyed(changes: ChangeSet, key: Sequence[str]) -> ChangeSet:
    """The same changes by key, with before images. Needs at most one −1 and one +1 for each key."""
    header = keyed_again(changes.header, key)
    if changes.header.form == KEYED:
        return changes
    rows = changes.rows
    counts = np.asarray(rows.column(COUNT), dtype=np.int64)
    group = first_occurrences(rows.select(key))
    signed = group * 2 + (counts > 0)
    many = (np.bincount(signed, minlength=1)[signed] > 1) | (np.abs(counts) != 1)
    if np.any(many):
        raise ChangesError(
            f"more than one row of a key was added or removed: {show(rows.select(key), np.flatnonzero(many))}",
            doing=f"converting counts to changes by {', '.join(key)}",
            hint="Choose a key that is unique in the relation, or stay with counts",
        )
    deletes = counts < 0
    place = np.arange(len(rows))
    columns = {CHANGE: pa.array(KINDS).take(pa.array(np.where(deletes, 0, 2)))}
    columns |= {name: rows.column(name) for name in header.key}
    columns |= {name: rows.column(name).take(pa.array(place, mask=deletes)) for name in header.values}
    if header.values:
        columns[BEFORE] = image_struct(cast_rows(rows.select(header.values), header.before_schema), header, deletes)
    # Removals stand before additions, so a key's pair collapses to an update.
    working = replace(header, has_changed=False)
    raw = cast_rows(pa.table(columns), working.rows_schema)
    result = net(header, ChangeSet(working, raw), np.ones(len(raw), dtype=bool))
    return result.knowing(changes.header.counts.unchanged)


def keyed_again(header: Header, key: Sequence[str]) -> Header:
    """The header of the keyed form, once the key is checked."""
    check_key(pa.schema([header.new_schema.field(name) for name in header.columns]), key)
    if header.form != COUNTED:
        if tuple(key) != header.key:
            raise ChangesError(
                f"the change set is keyed by {', '.join(header.key)}, not by {', '.join(key)}",
                doing="converting a change set to keyed form",
                hint="Convert it to counts first",
            )
        return header
    return replace(header, form=KEYED, key=tuple(key), has_before=True, has_changed=True)
