"""Extracts of text, which hold no types: what is guessed over tonight's values gives way to what the table has.

An empty column, codes that happen to be numbers tonight, a file without a row: the guess is another type than that of
the nights before, and nothing drifted. So where the guess differs, the table's type is tried; the guess stays where a
value does not fit it, and that is drift.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from strandline.errors import StrandlineError
from strandline.pipeline.extracts import Extract, with_types
from strandline.relations.encoding import plain_type
from strandline.relations.meeting_types import common_type
from strandline.relations.spooled import SpooledRelation
from strandline.tables.record import Record


def typed_as_the_table(extract: Extract, record: Record | None) -> Extract:
    """The extract, its columns of the table's types where all values have them. Only text is looked at again."""
    if record is None or extract.path is None or not isinstance(extract.relation, SpooledRelation):
        return extract
    other = _guessed_otherwise(extract, record)
    if not other:
        return extract
    with suppress(StrandlineError):
        return with_types(extract, other)
    fitting = {name: kind for name, kind in other.items() if _fits(extract, name, kind)}
    return with_types(extract, fitting) if fitting else extract


def _guessed_otherwise(extract: Extract, record: Record) -> dict[str, pa.DataType]:
    found = {}
    for field in extract.schema:
        if field.name in record.names and field.name not in extract.source.reading.types:
            kind = record.schema.field(field.name).type
            if plain_type(field.type) != plain_type(kind) and common_type(kind, field.type) != kind:
                found[field.name] = kind
    return found


def _fits(extract: Extract, name: str, kind: pa.DataType) -> bool:
    try:
        with_types(extract, {name: kind})
    except StrandlineError:
        return False
    return True
