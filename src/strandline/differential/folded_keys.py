"""Keys that are matched trimmed or without regard to case: both sides are written out with folded keys first.

So every algorithm, state and statistic sees the folded keys, and the result has them. Rows of one side whose keys
become one by folding are refused by naming them, unless duplicates are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import show
from strandline.differential.comparators import Comparator
from strandline.engine import Spool
from strandline.errors import KeysError
from strandline.relations import DatabaseRelation, Relation, read_relation, relation_batches, share_state, spool_batches

Folding = Mapping[str, Comparator]


def fold_relations(
    sides: Sequence[Relation], rules: Sequence[Mapping[str, Comparator]], spool: Spool
) -> list[Relation]:
    """The sides with their keys folded, each by its own rules. Tables of databases are read whole, at one state."""
    tables = [side for side in sides if isinstance(side, DatabaseRelation)]
    if len(tables) == 2:
        share_state(*tables)
    try:
        read = [side.fetch() if isinstance(side, DatabaseRelation) else side for side in sides]
    finally:
        for table in tables:
            table.close()
    return [
        spool_batches(_folded(side, rule), side.name, side.schema, spool)
        for side, rule in zip(read, rules, strict=True)
    ]


def _folded(relation: Relation, rules: Folding) -> Iterator[pa.RecordBatch]:
    for batch in relation_batches(relation):
        yield from _fold(pa.Table.from_batches([batch]), rules).to_batches()


def _fold(table: pa.Table, rules: Folding) -> pa.Table:
    for name, rule in rules.items():
        place = table.schema.get_field_index(name)
        kind = table.schema.field(place).type
        table = table.set_column(place, table.schema.field(place), rule.normalised(table.column(place)).cast(kind))
    return table


def keys_made_one(
    side: str, relation: Relation, key: Sequence[str], rules: Mapping[str, Comparator]
) -> KeysError | None:
    """Different keys of a side that are one once they are folded, named; None if there are none."""
    if isinstance(relation, DatabaseRelation):
        relation = relation.fetch()
    given = read_relation(relation, list(key)).group_by(list(key)).aggregate([]).select(list(key))
    folded = _fold(given, rules)
    numbers = folded.append_column("number", pa.array(np.arange(len(folded))))
    groups = numbers.group_by(list(key)).aggregate([("number", "list")]).column("number_list")
    several = groups.filter(pc.greater(pc.list_value_length(groups), 1)).to_pylist()
    if not several:
        return None
    alike = [number for group in several for number in group]
    shown = " ".join(f"{name}={rule}" for name, rule in rules.items())
    return KeysError(
        f"the {side} side holds keys that are one by {shown}: {show(given, alike)}",
        doing=f"matching rows by {', '.join(key)}",
        hint="Mend these rows, leave that rule out, or say what to do with duplicates: "
        "'count' compares them as a multiset, 'pair' matches them by likeness",
    )
