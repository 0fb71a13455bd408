"""Columns of the old side that have another name or type on the new one: renames that are given, names that differ in
case alone, renames that the rows suggest; and schemas that must not differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.changes import Header
from strandline.differential.comparators import RULES_OF_KINDS
from strandline.differential.options import DiffOptions
from strandline.errors import SchemaError, did_you_mean
from strandline.relations import conform, read_scan
from strandline.values import Incomparable, common_type, match, unequal

if TYPE_CHECKING:
    from strandline.differential.inputs import Input
    from strandline.differential.plan import DiffPlan


SAMPLE_ROWS = 20_000
LIKENESS = 0.9
"""The share of rows in which an old and a new column must agree to be taken for one that was renamed."""


def respelled(old: Sequence[str], new: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """The names of the old side that differ from one of the new side in case alone, with that one."""
    taken = {*rename.values(), *(name for name in old if name in new)}
    renames: dict[str, str] = {}
    for name in old:
        alike = [other for other in new if other.casefold() == name.casefold() and other not in taken]
        if name not in new and name not in rename and alike:
            if len(alike) > 1 or alike[0] in renames.values():
                raise SchemaError(
                    f"{name!r} may be any of {', '.join(map(repr, alike))}",
                    doing="matching column names without regard to case",
                    hint="Say which: rename={old: new} (--rename OLD=NEW)",
                )
            renames[name] = alike[0]
    return renames


def as_spelled(given: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Columns that are named in any case, as they are spelled; of two that are alike, as the last one."""
    spelled = {name.casefold(): name for name in names}
    return tuple(name if name in names else spelled.get(name.casefold(), name) for name in given)


def spelled_renames(rename: Mapping[str, str], old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """The renames that are given, as the sides spell their names."""
    return dict(zip(as_spelled(tuple(rename), old), as_spelled(tuple(rename.values()), new), strict=True))


def spelled_options(options: DiffOptions, names: Sequence[str]) -> DiffOptions:
    """The options with the columns that they name as the sides do: `names` are those of both, the new side's last."""
    rules = [rule for rule in options.compare if rule not in RULES_OF_KINDS]
    spelled = dict(zip(rules, as_spelled(rules, names), strict=True))
    return replace(
        options,
        columns=as_spelled(options.columns, names),
        ignore=as_spelled(options.ignore, names),
        compare={spelled.get(name, name): rule for name, rule in options.compare.items()},
    )


def check_renames(old: pa.Schema, rename: Mapping[str, str]) -> None:
    """Refuses to rename columns that are not there, or to names that are taken."""
    for name, to in rename.items():
        if name not in old.names:
            raise SchemaError(
                f"the old side has no column {name!r} to rename to {to!r}",
                doing="reading --rename",
                hint=f"{did_you_mean(name, old.names)} Its columns are {', '.join(old.names)}".strip(),
            )
    after = [rename.get(name, name) for name in old.names]
    again = [name for name, times in Counter(after).items() if times > 1]
    if again:
        raise SchemaError(
            f"after renaming, {again[0]!r} stands twice", doing="reading --rename", hint="Choose other names"
        )


def check_strict(header: Header) -> None:
    """Refuses two schemas that differ in any column or type, naming what differs."""
    old, new = header.old_schema, header.new_schema
    there = set(old.names)
    retyped = [name for name in new.names if name in there and old.field(name).type != new.field(name).type]
    drift = [f"{name} was added" for name in header.added]
    drift += [f"{name} was removed" for name in header.removed]
    drift += [f"{name} went from {old.field(name).type} to {new.field(name).type}" for name in retyped]
    if drift:
        raise SchemaError(
            f"the schemas differ: {', '.join(drift)}",
            doing="comparing with a strict schema",
            hint="Compare without it to see what changed in the columns that both sides have",
        )


def suggest_renames(plan: DiffPlan) -> tuple[tuple[str, str], ...]:
    """Pairs of a removed and an added column that agree in nearly all rows of a sample matched by key."""
    header, key = plan.comparison.header, plan.comparison.key
    pairs = [(a, b) for a in header.removed for b in header.added if _can_meet(header, a, b)]
    if not pairs or not key:
        return ()
    before = _sample(plan.old, [*key, *header.removed])
    after = _sample(plan.new, [*key, *header.added])
    matching = match(before.select(key), after.select(key))
    if not len(matching.old):
        return ()
    left, right = before.take(pa.array(matching.old)), after.take(pa.array(matching.new))
    renames: dict[str, str] = {}
    for a, b in pairs:
        alike = 1 - unequal(left.column(a), right.column(b)).mean()
        informative = left.column(a).null_count < len(left)
        if alike >= LIKENESS and informative and a not in renames and b not in renames.values():
            renames[a] = b
    return tuple(renames.items())


def _can_meet(header: Header, a: str, b: str) -> bool:
    met = common_type(header.old_schema.field(a).type, header.new_schema.field(b).type)
    return not isinstance(met, Incomparable)


def _sample(given: Input, names: Sequence[str]) -> pa.Table:
    """The first rows of a side, of the columns with these names here."""
    files = given.file_names()
    columns = [files.get(name, name) for name in names]
    if given.frame is not None:
        taken = given.frame.limit(SAMPLE_ROWS).toArrow().select(columns)
        schema = pa.schema([given.relation.schema.field(column) for column in columns])
        rows_taken = [conform(batch, schema) for batch in taken.to_batches()]
        return pa.Table.from_batches(rows_taken, schema=schema).rename_columns(list(names))
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
