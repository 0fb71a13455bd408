"""From what a user says to a question: opening both sides, finding what they have in common, checking the key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.shape import check_columns, check_key, nearest
from strandline.detect.comparison import Comparison, Side
from strandline.detect.options import DiffOptions
from strandline.detect.question import Input, Question
from strandline.detect.segments import rename_fields
from strandline.detect.state import State
from strandline.engine import Spool, choose_runner, machine_memory
from strandline.errors import InputError, KeysError, SchemaError
from strandline.relations import Part, Relation
from strandline.relations.expressions import parse_condition
from strandline.relations.open import open_relation
from strandline.relations.spooled import spool_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask(
    old: Any, new: Any, key: Sequence[str], options: DiffOptions, running: tuple[str, SparkSession | None]
) -> Question:
    """The question, once everything that can be checked without reading rows has been checked.

    `old` may be a `State`: its schema then stands for the old side, which has no rows to read.
    """
    runner_name, session = running
    spool = Spool()
    new_relation = open_relation(new, format=options.new_format, session=session, options=options.read_new, spool=spool)
    if isinstance(old, State):
        old_relation: Relation = spool_batches([], old.source or "saved signatures", old.schema, spool)
    elif old is None:
        old_relation = spool_batches([], "nothing", new_relation.schema, spool)
    else:
        _check_not_the_same(old, new)
        old_relation = open_relation(
            old, format=options.old_format, session=session, options=options.read_old, spool=spool
        )
    # A state was given its new names when it was loaded.
    rename = {} if isinstance(old, State) else options.rename
    check_renames(old_relation.schema, rename)
    comparison = _comparison(old_relation.schema, new_relation.schema, key, options, rename)
    runner = choose_runner(runner_name, old_relation.bytes + new_relation.bytes, session)
    memory = options.memory or machine_memory() // 2
    question = Question(
        comparison=comparison,
        old=_input(old_relation, comparison.old_schema_shared, options, rename),
        new=_input(new_relation, comparison.new_schema_shared, options, {}),
        runner=runner,
        spool=spool,
        memory=memory,
    )
    _check_keys_are_not_all_null(question)
    return question


def _comparison(
    old: pa.Schema, new: pa.Schema, key: Sequence[str], options: DiffOptions, rename: Mapping[str, str]
) -> Comparison:
    old = rename_fields(old, rename)
    for side in (old, new):
        if key:
            check_key(side, key)
    chosen = _chosen(old, new, key, options)
    comparison = Comparison(
        old_schema=pa.schema([field for field in old if field.name in chosen]),
        new_schema=pa.schema([field for field in new if field.name in chosen]),
        key=() if options.duplicates == "count" else tuple(key),
        rules=options.compare,
        pair=options.duplicates == "pair" and bool(key),
    )
    comparison.header  # noqa: B018 - raises what is wrong with the schemas
    if not comparison.comparators and options.compare:
        raise InputError("no column is left to compare by these rules", doing="reading --compare")
    if not comparison.key and comparison.rules and any(not r.is_equivalence for r in comparison.comparators.values()):
        raise InputError(
            "tolerances need a key: without one there is no telling which rows should be near each other",
            doing="reading --compare",
            hint="Give a key, or use trim, casefold or empty only",
        )
    return comparison


def _chosen(old: pa.Schema, new: pa.Schema, key: Sequence[str], options: DiffOptions) -> set[str]:
    """The columns that take part, under the new side's names."""
    both = pa.schema([*new, *(field for field in old if field.name not in new.names)])
    if options.columns:
        check_columns(both, options.columns, "choosing columns to compare")
        return {*options.columns, *key}
    if options.ignore:
        check_columns(both, options.ignore, "choosing columns to ignore")
    wrong = [name for name in options.ignore if name in key]
    if wrong:
        raise KeysError(f"key column {wrong[0]!r} can't be ignored", doing="choosing columns to ignore")
    return {name for name in both.names if name not in options.ignore}


def _input(relation: Relation, schema: pa.Schema, options: DiffOptions, rename: Mapping[str, str]) -> Input:
    """The side that reads the columns of `schema`, and those that the condition speaks of."""
    renamed = rename_fields(relation.schema, rename)
    where = None
    names = list(schema.names)
    if options.where is not None:
        condition = parse_condition(options.where, renamed, options.params)
        where = condition.sql
        names += [name for name in condition.columns if name not in names]
    back = {new: old for old, new in rename.items()}
    columns = tuple(back.get(name, name) for name in names)
    return Input(relation, Side((), columns, tuple(names), schema, where))


def _check_not_the_same(old: Any, new: Any) -> None:
    if isinstance(old, (str, os.PathLike)) and isinstance(new, (str, os.PathLike)):
        a, b = os.path.realpath(old), os.path.realpath(new)
        if a == b and os.path.exists(a):
            raise InputError(
                f"both sides are {os.fspath(old)}", doing="comparing two extracts", hint="Name two different extracts"
            )


def check_renames(old: pa.Schema, rename: Mapping[str, str]) -> None:
    """Refuses to rename columns that are not there, or to names that are taken."""
    for name, to in rename.items():
        if name not in old.names:
            raise SchemaError(
                f"the old side has no column {name!r} to rename to {to!r}",
                doing="reading --rename",
                hint=f"{nearest(name, old.names)}Its columns are {', '.join(old.names)}",
            )
    after = [rename.get(name, name) for name in old.names]
    again = [name for name in after if after.count(name) > 1]
    if again:
        raise SchemaError(
            f"after renaming, {again[0]!r} stands twice", doing="reading --rename", hint="Choose other names"
        )


def _check_keys_are_not_all_null(question: Question) -> None:
    """A key of nothing but nulls is a mistake that statistics often show at once."""
    for side, given in (("old", question.old), ("new", question.new)):
        parts = given.parts(question.comparison.key)
        rows = sum(part.rows for part in parts)
        nulls = [_known_nulls(parts, name) for name in question.comparison.key]
        if rows > 1 and nulls and all(count == rows for count in nulls):
            raise KeysError(
                f"the key ({', '.join(question.comparison.key)}) of the {side} side holds nothing but nulls",
                doing="reading the key",
                hint="Name columns that identify rows",
            )


def _known_nulls(parts: Sequence[Part], name: str) -> int | None:
    """How many nulls a column holds, where statistics of all parts tell."""
    known = [part.bounds[name].nulls for part in parts if name in part.bounds]
    return None if len(known) < len(parts) or None in known else sum(count or 0 for count in known)
