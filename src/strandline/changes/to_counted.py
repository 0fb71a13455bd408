"""From keyed to counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.changes.consolidate import consolidate
from strandline.changes.matching import Room
from strandline.changes.require import require_before
from strandline.changes.shape import COUNT, COUNTED, ChangeSet, Header, after_table, before_table, kinds
from strandline.relations.encoding import restore


def to_counted(changes: ChangeSet, *, room: Room | None = None) -> ChangeSet:
    """The same changes as counts of rows: a delete is −1, an insert +1, an update both. Needs before images."""
    header = counted_again(changes.header)
    if changes.header.form == COUNTED:
        return changes
    kind = kinds(changes.rows)
    parts = []
    for table, chosen, sign in ((before_table(changes), kind < 2, -1), (after_table(changes), kind > 0, 1)):
        image = restore(table, header.after_schema).filter(pa.array(np.asarray(chosen)))
        parts.append(image.append_column(COUNT, pa.array(np.full(len(image), sign, dtype=np.int64))))
    result = consolidate(ChangeSet(header, pa.concat_tables(parts)), room=room)
    counts = replace(result.header.counts, unchanged=changes.header.counts.unchanged)
    return ChangeSet(replace(result.header, counts=counts), result.rows)


def counted_again(header: Header) -> Header:
    """The header of the counted form, once it is sure that there are before images."""
    require_before(header, "converting a change set to counts")
    return replace(header, form=COUNTED, key=(), has_before=False, has_changed=False)
