"""The sides of a differential as they are read, and what is told of sides that are one and the same source.

Of keys that are matched trimmed or without regard to case, both sides are written out with folded keys first: so every
algorithm, state and statistic sees the folded keys, and the result has them. Rows of one side whose keys become one by
folding are refused by naming them, unless duplicates are allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import show
from strandline.differential.comparators import Comparator
from strandline.differential.comparison import Side
from strandline.differential.options import DiffOptions
from strandline.differential.signatures import rename_fields
from strandline.engine import Spool
from strandline.errors import InputError, KeysError
from strandline.relations import (
    DatabaseRelation,
    Relation,
    Scan,
    Split,
    database_address,
    flowing_frame,
    is_database_url,
    read_relation,
    relation_batches,
    share_state,
    shown_stream,
    split_sheet,
    spool_batches,
    stream_identity,
)
from strandline.values import parse_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Input:
    """One side: the relation and the side that reads it whole; kernels read it through `with_scans`."""

    relation: Relation
    side: Side
    _pieces: dict[tuple[str, ...], list[Split]] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def frame(self) -> DataFrame | None:
        """The DataFrame whose rows flow into the exchange as they come: they are in no files."""
        return flowing_frame(self.relation)

    @property
    def bytes(self) -> int:
        """Size on storage, as read; 0 for a DataFrame, which tells none."""
        return 0 if self.frame is not None else self.relation.bytes

    def file_names(self) -> dict[str, str]:
        """For each name that the comparison uses, what the column is called in the relation."""
        return dict(zip(self.side.names, self.side.columns, strict=True))

    def parts(self, columns: Sequence[str]) -> list[Split]:
        """The pieces with the bounds of `columns`, which are the comparison's names, not the file's.

        They are looked up once: bounds come from the statistics of every piece, or from its rows.
        """
        if self.frame is not None:
            return []
        asked = tuple(columns)
        if asked not in self._pieces:
            here = self.file_names()
            self._pieces[asked] = [
                replace(part, bounds={name: part.bounds[here[name]] for name in columns if here[name] in part.bounds})
                for part in self.relation.parts([here[name] for name in columns])
            ]
        return self._pieces[asked]

    def scans(self) -> tuple[Scan, ...]:
        if self.frame is not None:
            return ()
        known = next(iter(self._pieces.values()), None)
        return tuple(part.scan for part in (self.relation.parts([]) if known is None else known))


def read_through(
    relation: Relation,
    schema: pa.Schema,
    options: DiffOptions,
    rename: Mapping[str, str],
    kept: Sequence[str] = (),
) -> Input:
    """A side that reads the columns of `schema`, those that the condition speaks of, and those that are kept."""
    renamed = rename_fields(relation.schema, rename)
    where = None
    names = list(dict.fromkeys([*schema.names, *kept]))
    if options.where is not None:
        condition = parse_condition(options.where, renamed, options.params)
        where = condition.sql
        names += [name for name in condition.columns if name not in names]
    back = {new: old for old, new in rename.items()}
    columns = tuple(back.get(name, name) for name in names)
    return Input(relation, Side((), columns, tuple(names), schema, where))


def note_of_one_source(old: Any, new: Any, options: DiffOptions) -> str:
    """What to tell a user who compares a file or folder with itself; nothing where the versions differ."""
    if not (isinstance(old, (str, os.PathLike)) and isinstance(new, (str, os.PathLike))):
        return ""
    if is_database_url(name := os.fspath(old)):
        same, name = old == new, database_address(name, options.reading_old.query).shown
    else:
        same = os.path.realpath(old) == os.path.realpath(new) and os.path.exists(split_sheet(name)[0])
    if not same or options.reading_old != options.reading_new:
        return ""
    return f"both sides are {name}"


def check_two_streams(old: Any, new: Any) -> None:
    """Refuses one stream as both sides: it can be read once."""
    if isinstance(old, (str, os.PathLike)) and isinstance(new, (str, os.PathLike)):
        streams = [stream_identity(os.fspath(side)) for side in (old, new)]
        if streams[0] is not None and streams[0] == streams[1]:
            raise InputError(
                f"both sides are {shown_stream(os.fspath(old))}, which can be read once",
                doing="comparing two extracts",
                hint="Put one of them into a file, or name another pipe: <(…)",
            )


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
