"""Schema drift: refusing it when asked to, and guessing which new name an old column may have got."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strandline.changes.shape import Header
from strandline.detect.question import Input, Question
from strandline.errors import SchemaError
from strandline.relations.matching import match
from strandline.relations.meeting_types import Incomparable, common_type
from strandline.relations.read import read_scan
from strandline.relations.unequal import unequal

SAMPLE_ROWS = 20_000
LIKENESS = 0.9
"""The share of rows in which an old and a new column must agree to be taken for one that was renamed."""


def check_strict(header: Header) -> None:
    """Refuses two schemas that differ in any column or type, naming what differs."""
    old, new = header.old_schema, header.new_schema
    retyped = [name for name in new.names if name in old.names and old.field(name).type != new.field(name).type]
    said = [f"{name} was added" for name in header.added]
    said += [f"{name} was removed" for name in header.removed]
    said += [f"{name} went from {old.field(name).type} to {new.field(name).type}" for name in retyped]
    if said:
        raise SchemaError(
            f"the schemas differ: {', '.join(said)}",
            doing="comparing with a strict schema",
            hint="Compare without it to see what changed in the columns that both sides have",
        )


def suggest_renames(question: Question) -> tuple[tuple[str, str], ...]:
    """Pairs of a removed and an added column that agree in nearly all rows of a sample matched by key."""
    header, key = question.comparison.header, question.comparison.key
    pairs = [(a, b) for a in header.removed for b in header.added if _can_meet(header, a, b)]
    if not pairs or not key:
        return ()
    before = _sample(question.old, [*key, *header.removed])
    after = _sample(question.new, [*key, *header.added])
    matching = match(before.select(key), after.select(key))
    if not len(matching.old):
        return ()
    left, right = before.take(pa.array(matching.old)), after.take(pa.array(matching.new))
    found: dict[str, str] = {}
    for a, b in pairs:
        alike = 1 - unequal(left.column(a), right.column(b)).mean()
        informative = left.column(a).null_count < len(left)
        if alike >= LIKENESS and informative and a not in found and b not in found.values():
            found[a] = b
    return tuple(found.items())


def _can_meet(header: Header, a: str, b: str) -> bool:
    met = common_type(header.old_schema.field(a).type, header.new_schema.field(b).type)
    return not isinstance(met, Incomparable)


def _sample(given: Input, names: Sequence[str]) -> pa.Table:
    """The first rows of a side, of the columns with these names here."""
    files = given.file_names()
    columns = [files.get(name, name) for name in names]
    batches: list[pa.RecordBatch] = []
    rows = 0
    for scan in given.scans():
        for batch in read_scan(scan, columns):
            batches.append(batch)
            rows += batch.num_rows
            if rows >= SAMPLE_ROWS:
                return pa.Table.from_batches(batches).rename_columns(list(names))
    schema = pa.schema([given.relation.schema.field(column) for column in columns])
    return pa.Table.from_batches(batches, schema=schema).rename_columns(list(names))
