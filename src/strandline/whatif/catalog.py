"""Which what-ifs a store has: a hidden table, so that they are transactional, snapshotted and dumped like the rest.

A what-if stands on a table, known by its number (it may be renamed), through the what-ifs below it.
Columns of the table are known by their ids, so renaming or adding one leaves a what-if alone.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from strandline.errors import Damaged, NotFound, SchemaError
from strandline.pages import PARTIAL, ReadView, TableEntry, TableId
from strandline.relations import schema_from_text, schema_to_text
from strandline.tables import WHAT_IFS, PageCache, TableReader, TableSchema
from strandline.whatif.tuples import stored_name

CATALOG = WHAT_IFS
IDS = "_what_if_ids"
_PREFIX = "_what_if."
SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("below", pa.string()),
        pa.field("level", pa.int16()),
        pa.field("table", pa.int64()),
        pa.field("shape", pa.string()),
        pa.field("purged", pa.int64()),
        pa.field("indexed", pa.bool_()),
    ]
)


def is_of_what_ifs(table: str) -> bool:
    """Whether a table of the store is one of ours."""
    return table in (CATALOG, IDS) or table.startswith(_PREFIX)


@dataclass(frozen=True)
class SignedShape:
    """The columns that rows are signed with: their ids in order, each with its type; None where it was not kept."""

    types: Mapping[int, pa.DataType | None]

    @staticmethod
    def of(schema: TableSchema) -> SignedShape:
        return SignedShape({column.id: column.type for column in schema.columns})

    @property
    def encoded_types(self) -> str | None:
        if any(kind is None for kind in self.types.values()):
            return None
        schema = pa.schema([pa.field(str(number), kind) for number, kind in self.types.items()])
        return schema_to_text(schema)

    @staticmethod
    def decoded(ids: Sequence[int], types: str | None) -> SignedShape:
        if types is None:
            return SignedShape(dict.fromkeys(ids))
        schema = schema_from_text(types)
        return SignedShape({number: schema.field(str(number)).type for number in ids})


@dataclass(frozen=True)
class WhatIfDefinition:
    """One what-if: `below` is None on the table itself. `columns` leads from the table's column ids to D's columns.

    `shapes` lists the columns that rows were signed with, the present ones last. States before `purged` are gone.
    `indexed` says that the ids of all of D are kept beside it. `since` is a commit before the first that wrote to D;
    what-ifs of releases whose D does not tell the columns that changed have none.
    """

    name: str
    below: str | None
    level: int
    table: TableId
    columns: Mapping[int, str]
    shapes: tuple[SignedShape, ...]
    purged: int = 0
    indexed: bool = False
    since: int | None = None

    @property
    def differential(self) -> str:
        """The name of the table that holds D."""
        return _PREFIX + self.name

    def row(self) -> dict[str, Any]:
        shape = {
            "columns": {str(number): name for number, name in self.columns.items()},
            "shapes": [list(one.types) for one in self.shapes],
            "types": [one.encoded_types for one in self.shapes],
            "since": self.since,
        }
        return {
            "name": self.name,
            "below": self.below,
            "level": self.level,
            "table": int(self.table),
            "shape": json.dumps(shape),
            "purged": self.purged,
            "indexed": self.indexed,
        }

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> WhatIfDefinition:
        shape = json.loads(row["shape"])
        columns = {int(number): name for number, name in shape["columns"].items()}
        types = shape.get("types", [None] * len(shape["shapes"]))
        shapes = tuple(SignedShape.decoded(*each) for each in zip(shape["shapes"], types, strict=True))
        table = TableId(row["table"])
        facts = row["name"], row["below"], row["level"], table, columns, shapes, row["purged"], row["indexed"]
        return WhatIfDefinition(*facts, shape.get("since"))

    def reshaped(self, schema: TableSchema) -> WhatIfDefinition:
        """The definition once D has a column for each of the table's, in the table's type."""
        columns = dict(self.columns)
        for column in schema.columns:
            if column.id not in columns:
                columns[column.id] = stored_name(column.name, list(columns.values()))
        return replace(self, columns=columns, shapes=(*self.shapes, SignedShape.of(schema)))

    def fits(self, schema: TableSchema) -> bool:
        """Whether rows of the table as it is now are signed as they are, in columns that D has."""
        known = self.shapes[-1].types
        return all(column.id in known and known[column.id] in (None, column.type) for column in schema.columns)


def define(name: str, on: WhatIfChain, since: int) -> WhatIfDefinition:
    """A new what-if on another, or on a table, made by one that sees that commit."""
    below = on.top.name if on.definitions else None
    return WhatIfDefinition(name, below, on.level + 1, on.table.domain, {}, (), since=since).reshaped(on.schema)


@dataclass(frozen=True)
class WhatIfChain:
    """A what-if with all that it stands on: definitions from its own level down to 1, and the table."""

    definitions: tuple[WhatIfDefinition, ...]
    table: TableEntry
    schema: TableSchema

    @property
    def top(self) -> WhatIfDefinition:
        return self.definitions[0]

    @property
    def level(self) -> int:
        return len(self.definitions)

    @property
    def below(self) -> WhatIfChain:
        """The relation that it is defined on; a chain without definitions is the table."""
        return WhatIfChain(self.definitions[1:], self.table, self.schema)


_known: weakref.WeakKeyDictionary[PageCache, tuple[str, dict[str, WhatIfDefinition]]] = weakref.WeakKeyDictionary()
"""For each store's cache the catalog that was read last, by the name of its root, which is never used again."""


def definitions(view: ReadView, cache: PageCache) -> dict[str, WhatIfDefinition]:
    """All what-ifs of a state, by name."""
    table = view.held(CATALOG)
    if table is None or table.root is None:
        return {}
    root, listed = _known.get(cache, ("", {}))
    if root != table.root.name:
        rows = TableReader(view, CATALOG, cache).to_arrow().to_pylist()
        listed = {row["name"]: WhatIfDefinition.from_row(row) for row in rows}
        _known[cache] = (table.root.name, listed)
    return dict(listed)


def is_what_if(view: ReadView, cache: PageCache, name: str) -> bool:
    """Whether a state has a what-if of that name; a table of that name comes first."""
    return view.find_domain(name) is None and name in definitions(view, cache)


def children(known: Mapping[str, WhatIfDefinition], name: str) -> list[str]:
    """The what-ifs that stand on one, directly or not, the lowest first."""
    direct = [what_if.name for what_if in known.values() if what_if.below == name]
    return [*direct, *(deeper for child in direct for deeper in children(known, child))]


def chain_of(view: ReadView, cache: PageCache, name: str) -> WhatIfChain:
    """A what-if of a state; says what is missing when it or its table is gone."""
    known = definitions(view, cache)
    definition = known.get(name)
    if definition is None:
        hint = f"The what-ifs are {', '.join(sorted(known)[:20])}" if known else "There are none yet"
        hint = hint if known or not view.is_partial else PARTIAL
        raise NotFound(f"there is no what-if {name}", doing="opening a what-if", hint=hint)
    chosen = [definition]
    while chosen[-1].below is not None:
        chosen.append(known[chosen[-1].below])
    table = view.domain(definition.table)
    if table is None:
        raise NotFound(
            f"the table that {name} stands on was dropped",
            doing=f"opening the what-if {name}",
            hint="Drop the what-if, or restore the table from a snapshot",
        )
    schema = TableSchema.from_bytes(view.record(table.domain))
    return WhatIfChain(tuple(chosen), table, schema)


def differential_table(view: ReadView, definition: WhatIfDefinition) -> TableEntry:
    """The table of a state that holds D."""
    table = view.find_domain(definition.differential)
    if table is None:
        raise Damaged(
            f"the what-if {definition.name} has no differential relation", doing="opening a what-if", hint="Run check"
        )
    return table


def in_table_shape(rows: pa.Table, definition: WhatIfDefinition, schema: TableSchema, names: list[str]) -> pa.Table:
    """Columns of D's tuples under the names and in the types of the table, which may have changed its shape since."""
    columns, there = {}, set(rows.column_names)
    for name in names:
        column = schema.column(name)
        stored = definition.columns.get(column.id)
        if stored is None or stored not in there:
            columns[name] = column.filled(len(rows))
            continue
        held = rows.column(stored)
        try:
            columns[name] = held if held.type == column.type else held.cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"column {name!r} is {column.type} now, and {definition.name} holds {held.type}: {error}",
                doing=f"reading the what-if {definition.name}",
                hint="Change the column back, or drop the what-if",
            ) from None
    return pa.table(columns) if columns else rows.select([])
