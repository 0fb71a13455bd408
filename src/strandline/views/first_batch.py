"""The first batch of a stream: all rows of a view as inserts, in pieces that Spark's tasks compute side by side.

A join distributes over the rows of its largest relation, so each piece is the query over a stretch of that one. Where
the view has a key, the pieces' rows differ from each other, and each is an insert as it stands. Rows without a key are
counted, and equal ones may come out of several pieces: those are made in one, as are what-ifs and views that are
computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from strandline.changes.shape import CHANGE, INSERT
from strandline.engine import WorkItem
from strandline.relations.no_rows import no_rows
from strandline.relations.scan import schema_from_text, schema_to_text
from strandline.views.definition import Definition
from strandline.views.joining import Join
from strandline.views.running import Running, joined_item, whole_items
from strandline.views.site import Site
from strandline.views.subscription import subscription

PIECE_BYTES = 32 << 20
"""How much of the largest relation one piece should have."""


@dataclass(frozen=True)
class Piece:
    """One piece, as plain values: it travels to the task that computes it. `schema` is that of change rows."""

    item: WorkItem
    schema: str


def first_pieces(definition: Definition, site: Site, running: Running) -> list[Piece] | None:
    """The pieces of a view at a state that stays readable; None where rows must be made in one."""
    if definition.regenerated or not definition.key or running.storage is None:
        return None
    if not all(site.is_table(relation) for relation in definition.relations):
        return None
    whole = {one.alias: (site, one.relation) for one in definition.occurrences}
    items = whole_items(Join.of(definition), whole, running, PIECE_BYTES)
    empty = subscription(definition, None, None).change_set(no_rows(Join.of(definition).rows_schema))
    return [Piece(item, schema_to_text(empty.header.rows_schema)) for item in items]


def inserts(piece: Piece) -> pa.Table:
    """A piece's rows as change rows."""
    rows, _ = joined_item(piece.item)
    schema = schema_from_text(piece.schema)
    given = {CHANGE: pa.array([INSERT] * len(rows), schema.field(CHANGE).type)}
    columns = [
        given[field.name]
        if field.name in given
        else rows.column(field.name)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
