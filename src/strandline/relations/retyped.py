"""A relation with other types for some columns: the same files, read as the other side of a comparison is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.relations.relation import Relation, Split
from strandline.relations.schema import with_types
from strandline.relations.statistics import same_order


@dataclass(frozen=True)
class RetypedRelation:
    """`base` with some columns cast when they are read; bounds stay where the cast keeps order."""

    base: Relation
    schema: pa.Schema

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def bytes(self) -> int:
        return self.base.bytes

    @property
    def rows(self) -> int | None:
        return self.base.rows

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        kept = {
            name
            for name in self.schema.names
            if same_order(self.base.schema.field(name).type, self.schema.field(name).type)
        }
        return [
            replace(
                part,
                scan=replace(part.scan, schema=self.schema),
                bounds={name: bounds for name, bounds in part.bounds.items() if name in kept},
            )
            for part in self.base.parts(columns)
        ]


def retype(relation: Relation, types: Mapping[str, pa.DataType]) -> Relation:
    """The relation with `types` for some of its columns; a value that a type can't hold is an error when it is read."""
    schema = with_types(relation.schema, types, relation.name)
    if schema == relation.schema:
        return relation
    base = relation.base if isinstance(relation, RetypedRelation) else relation
    return RetypedRelation(base, schema)
