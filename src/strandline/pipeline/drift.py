"""Schema drift: an extract whose columns differ from the table's.

`add` takes new columns in and widens types; a column that vanished, or whose type does not hold the old values, stops
the step. `keep` also goes on without a vanished column: rows that stay keep what they hold. `refuse` stops at any
difference. The comparison is made as if the table had its new shape already.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.changes import ChangeSet
from strandline.changes.difference import difference
from strandline.errors import GuardTripped, SchemaError
from strandline.pipeline.found import Drift
from strandline.pipeline.settings import Source
from strandline.relations.encoding import plain_type
from strandline.relations.matching import match
from strandline.relations.meeting_types import Incomparable, common_type
from strandline.tables.record import Record, widened


def drift_of(source: Source, record: Record, schema: pa.Schema) -> Drift:
    """What an extract of `schema` asks of the table; what stops it stands in `refused`."""
    added = tuple(_plain(field) for field in schema if field.name not in record.names)
    gone = tuple(name for name in record.names if name not in schema.names)
    widening, refused = [], []
    for field in schema:
        if field.name not in record.names:
            continue
        old = record.schema.field(field.name).type
        new = plain_type(field.type)
        if common_type(old, new) == old or plain_type(old) == new:
            continue
        try:
            widened(record, field.name, new)
            widening.append(_plain(field))
        except SchemaError:
            if isinstance(common_type(old, new), Incomparable):
                refused.append(f"{field.name} was {old} and is {new}")
    if gone and (source.drift != "keep" or not source.key or set(gone) & set(source.key)):
        refused += [f"{name} is gone" for name in gone]
        gone = ()
    if source.drift == "refuse":
        refused += [f"{field.name} {field.type} is new" for field in added]
        refused += [f"{field.name} is {field.type} now" for field in widening]
    return Drift(added, tuple(widening), gone, tuple(refused))


def check_drift(source: Source, drift: Drift) -> None:
    if drift.refused:
        raise GuardTripped(
            f"the columns drifted: {'; '.join(drift.refused)}",
            doing=f"comparing the source {source.name!r} with the table {source.table!r}",
            hint='Mend the extract. To go on without columns that vanished say drift = "keep" (with a key); '
            "where the values of text are meant otherwise, say types",
        )


def difference_under_drift(source: Source, old: pa.Table, new: pa.Table, drift: Drift) -> ChangeSet:
    """What changed, with the table in its new shape: added columns null, widened ones cast, vanished ones kept."""
    for field in drift.added:
        old = old.append_column(field, pa.nulls(len(old), field.type))
    for field in drift.widened:
        place = old.schema.get_field_index(field.name)
        old = old.set_column(place, field, old.column(place).cast(field.type))
    if drift.kept:
        new = _with_kept(source, old, new, drift.kept)
    return difference(old, new.select(old.column_names), source.key or None)


def _with_kept(source: Source, old: pa.Table, new: pa.Table, kept: tuple[str, ...]) -> pa.Table:
    pairs = match(old.select(source.key), new.select(source.key))
    places = np.full(len(new), -1, dtype=np.int64)
    places[pairs.new] = pairs.old
    indices = pa.array(places, mask=places < 0)
    for name in kept:
        new = new.append_column(old.schema.field(name), old.column(name).take(indices))
    return new


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type))
