"""The plan of a differential: the comparison, both relations, and where and how to run.

`plan_diff` makes it of what a user gives: it opens both sides, finds what they have in common and checks options,
schemas and key before any row is read. Every algorithm takes a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import Header, check_columns, check_key
from strandline.differential.comparators import parse_comparator
from strandline.differential.comparison import Comparison
from strandline.differential.inputs import Input, check_two_streams, fold_relations, read_through
from strandline.differential.options import DiffOptions
from strandline.differential.renames import as_spelled, check_renames, respelled, spelled_options, spelled_renames
from strandline.differential.signatures import SignatureState, rename_fields
from strandline.engine import Runner, SparkRunner, Spool, choose_runner, machine_memory
from strandline.errors import InputError, KeysError
from strandline.relations import (
    DatabaseRelation,
    EqualRanges,
    ExchangeSide,
    KeyRange,
    Relation,
    Split,
    UnequalRows,
    cut_ranges,
    flowing_frame,
    open_relation,
    retype,
    share_state,
    spool_batches,
    takes_type,
    unequal_rows,
    untyped_columns,
    with_empty,
    written_out,
)
from strandline.storage import cached_property

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SPREAD = 4
"""Compressed columns grow about so many times in memory."""

PIECE_BYTES = 24 << 20
"""Input that one work item should have: enough to be worth a task; with more, memory comes anew from the system."""

LARGEST_PIECE = 8
"""A work item may have so many times that, where there would be too many of them, or where borders cost."""

PIECES_AT_ONCE = 16
"""Work items for each that runs at once, beyond which they grow rather than become more."""

WHOLE_BYTES = 1 << 30
"""Input in no order that a lone work item holds, where it has a machine: rows then meet in memory, not in files."""

BUCKET_BYTES = 8 << 20
"""Input of one bucket: little enough for its rows to be found in the processor's cache."""

FLOWING_PIECES = 4
"""Pieces for each task that runs at once, for rows of unknown size."""


@dataclass(frozen=True)
class RangesOfKey:
    """The row groups of both sides with the bounds of the key, and the ranges of it that they are cut into."""

    old: Sequence[Split]
    new: Sequence[Split]
    ranges: Sequence[KeyRange]
    wanted: int

    @property
    def even(self) -> bool:
        """Whether the cut came out as it was wanted: no range is more than twice what it should be."""
        sizes = [piece.bytes for piece in self.ranges]
        return len(sizes) > 1 and max(sizes) <= 2 * sum(sizes) / self.wanted


@dataclass(frozen=True)
class DiffPlan:
    """Everything that an algorithm needs."""

    comparison: Comparison
    old: Input
    new: Input
    runner: Runner
    spool: Spool
    memory: int = field(default_factory=lambda: machine_memory() // 2)
    equal: EqualRanges | None = None
    unfolded: tuple[Relation, Relation] | None = None
    """Both sides as they were before their keys were folded, where they are."""
    state: SignatureState | None = None
    """What stands for the old side, under the new side's names."""
    drift: Header | None = None
    """The header of the set over both sides as they are, where the old side got the columns that it lacks."""

    @property
    def flows(self) -> bool:
        """Whether rows of a DataFrame flow into the exchange: nothing else can be done with them."""
        return self.old.frame is not None or self.new.frame is not None

    @property
    def bytes(self) -> int:
        """Both sides on storage, as read."""
        return self.old.bytes + self.new.bytes

    @cached_property
    def by_key(self) -> RangesOfKey:
        """The ranges of the key, from statistics alone: they tell whether merging pays, and are its work items."""
        key = self.comparison.key
        old, new = self.old.parts(key), self.new.parts(key)

        def cut(pieces: int) -> RangesOfKey:
            return RangesOfKey(old, new, cut_ranges(old, new, key, pieces), pieces)

        made, least = cut(self.pieces(self.bytes)), self.large_pieces(self.bytes)
        # Rows that are far from their place reach over small ranges, but not over larger ones.
        while not made.even and made.wanted > least:
            made = cut(max(made.wanted // 2, least))
        return made

    @property
    def held_whole(self) -> bool:
        """Whether rows in no order are compared by one work item that has all processors of this machine."""
        room = min(WHOLE_BYTES, self.memory // (3 * SPREAD)) if self.runner.on_one_machine else 0
        return not self.flows and self.bytes <= room

    def pieces(self, input_bytes: int) -> int:
        """How many work items suit so much input: one for little, else a multiple of what runs at once."""
        at_once = max(self.runner.parallelism, 1)
        fair = input_bytes // (at_once * PIECES_AT_ONCE)
        return self._pieces_of(input_bytes, max(PIECE_BYTES, min(fair, LARGEST_PIECE * PIECE_BYTES)))

    def large_pieces(self, input_bytes: int) -> int:
        """The same where each border between two work items costs."""
        return self._pieces_of(input_bytes, LARGEST_PIECE * PIECE_BYTES)

    def _pieces_of(self, input_bytes: int, piece_bytes: int) -> int:
        """Compressed columns grow in memory; a piece must fit a task's share with room to join."""
        at_once = max(self.runner.parallelism, 1)
        if self.flows:
            # The size is not known; what outgrows a task is cut again where it arrives.
            return FLOWING_PIECES * at_once
        if input_bytes <= PIECE_BYTES:
            return 1
        share = max(self.memory // at_once // (3 * SPREAD), 1)
        least = -(-input_bytes // min(share, piece_bytes))
        return -(-max(least, at_once) // at_once) * at_once


def exchange_side(plan: DiffPlan, name: str, by: Sequence[str]) -> ExchangeSide:
    """The "old" or the "new" side on its way into the exchange by the columns of `by`, in the types both share."""
    given = plan.old if name == "old" else plan.new
    shared = plan.comparison.header.after_schema
    files = given.file_names()
    fields = [given.relation.schema.field(column) for column in given.side.columns]
    typed = pa.schema(
        [
            field.with_type(shared.field(here).type) if here in by else field
            for here, field in zip(given.side.names, fields, strict=True)
        ]
    )
    scans = tuple(replace(scan, schema=typed) for scan in given.scans())
    return ExchangeSide(typed, [files[column] for column in by], scans, given.frame)


def plan_diff(
    old: Any, new: Any, key: Sequence[str], options: DiffOptions, running: tuple[str, SparkSession | None]
) -> DiffPlan:
    """The plan, once everything that can be checked without reading rows has been checked.

    `old` may be a `SignatureState`: its schema then stands for the old side, which has no rows to read.
    """
    runner_name, session = running
    spool = Spool()
    met = _meet((old, new), key, options, session, spool)
    options = met.options
    frames = [frame for frame in map(flowing_frame, (met.old, met.new)) if frame is not None]
    flows = bool(frames) and not met.comparison.folding and _can_flow(frames, old, options, running)
    if not flows:
        met = replace(met, old=written_out(met.old), new=written_out(met.new))
    unfolded = (met.old, met.new) if met.comparison.folding else None
    if unfolded is not None:
        met = _folded(met, options, spool)
    fetched = _fetched(*_inputs(met, options), met.comparison, options)
    runner: Runner = (
        SparkRunner(session or frames[0].sparkSession)
        if flows
        else choose_runner(runner_name, fetched.old.bytes + fetched.new.bytes, session)
    )
    plan = DiffPlan(
        comparison=met.comparison,
        old=fetched.old,
        new=fetched.new,
        runner=runner,
        equal=fetched.equal,
        spool=spool,
        memory=options.memory or runner.task_memory * runner.parallelism,
        unfolded=unfolded,
        drift=met.drift,
        state=met.state,
    )
    _check_keys_are_not_all_null(plan)
    return plan


@dataclass(frozen=True)
class _Meeting:
    """Both sides, open, in the types in which they meet; what the old side's columns are called now; and how they are
    compared, with the options for these names. The rest as in `DiffPlan`."""

    old: Relation
    new: Relation
    rename: Mapping[str, str]
    comparison: Comparison
    state: SignatureState | None
    drift: Header | None
    options: DiffOptions


def _meet(
    sides: tuple[Any, Any], key: Sequence[str], options: DiffOptions, session: SparkSession | None, spool: Spool
) -> _Meeting:
    """Opens both sides and finds what they have in common."""
    state = sides[0] if isinstance(sides[0], SignatureState) else None
    old, new = _opened(*sides, options, session, spool)
    # A state was given its new names when it was loaded.
    rename = {} if state is not None else options.rename
    if options.any_case:
        rename = spelled_renames(rename, old.schema.names, new.schema.names)
        new_case = respelled(old.schema.names, new.schema.names, rename)
        if state is not None:
            state = state.renamed(new_case)
            old = _stand_in(state, spool)
        else:
            rename = {**new_case, **rename}
        key = as_spelled(key, new.schema.names)
        options = spelled_options(options, [*(rename.get(name, name) for name in old.schema.names), *new.schema.names])
    check_renames(old.schema, rename)
    old, new = _typed_by_the_other(state, old, new, rename)
    old, new = _meeting_as_doubles(old, new, options, rename)
    key = key or _default_key(old, new, options, rename)
    drift = None
    if options.carry:  # rules may be about columns that are to be added first
        header = _comparison(old.schema, new.schema, key, replace(options, compare={}), rename).header
        drift = header if header.partial else None
    if drift is not None:
        old = _with_added(state, old, new, drift, rename)
    comparison = _comparison(old.schema, new.schema, key, options, rename)
    return _Meeting(old, new, rename, comparison, state, drift, options)


def _opened(
    old: Any, new: Any, options: DiffOptions, session: SparkSession | None, spool: Spool
) -> tuple[Relation, Relation]:
    """Both sides; the schema of a saved state stands for one without rows."""
    check_two_streams(old, new)
    new_relation = open_relation(
        new, format=options.new_format, session=session, options=options.reading_new, spool=spool
    )
    if isinstance(old, SignatureState):
        return _stand_in(old, spool), new_relation
    if old is None:
        return spool_batches([], "nothing", new_relation.schema, spool), new_relation
    old_relation = open_relation(
        old, format=options.old_format, session=session, options=options.reading_old, spool=spool
    )
    return old_relation, new_relation


def _stand_in(state: SignatureState, spool: Spool) -> Relation:
    return spool_batches([], state.source or "saved signatures", state.schema, spool)


def _folded(met: _Meeting, options: DiffOptions, spool: Spool) -> _Meeting:
    """Both sides with folded keys."""
    if options.keep_sorted is not None:
        raise InputError(
            "keep_sorted would keep folded keys instead of the extract's",
            doing="reading options",
            hint="Leave it out, or the rule of the key",
        )
    back = {new: old for old, new in met.rename.items()}
    folding = met.comparison.folding
    of_old = {back.get(name, name): rule for name, rule in folding.items()}
    old, new = fold_relations((met.old, met.new), (of_old, folding), spool)
    return replace(met, old=old, new=new)


def _typed_by_the_other(
    state: SignatureState | None, old: Relation, new: Relation, rename: Mapping[str, str]
) -> tuple[Relation, Relation]:
    """Columns of no value, of unknown types, take those of the other side: of a CSV file of nothing but a
    header, of JSON lines where all are null.
    """
    met = [(name, rename.get(name, name)) for name in old.schema.names]
    there = set(new.schema.names)
    met = [(mine, theirs) for mine, theirs in met if theirs in there]
    unknown = old.schema.names if state is not None and not state.rows else untyped_columns(old)
    types = [(old.schema.field(mine).type, new.schema.field(theirs).type) for mine, theirs in met]
    of_old = {
        mine: coming
        for (mine, _), (held, coming) in zip(met, types, strict=True)
        if mine in unknown and (state is not None or takes_type(held, coming))
    }
    unknown = untyped_columns(new)
    of_new = {
        theirs: held
        for (mine, theirs), (held, coming) in zip(met, types, strict=True)
        if theirs in unknown and mine not in of_old and takes_type(coming, held)
    }
    return retype(old, of_old), retype(new, of_new)


def _meeting_as_doubles(
    old: Relation, new: Relation, options: DiffOptions, rename: Mapping[str, str]
) -> tuple[Relation, Relation]:
    """Decimals against floats under a tolerance are doubles on both sides: without one, no type holds both exactly.

    Rows of DataFrames flow as they are, and keep their types.
    """
    if not options.compare or any(flowing_frame(side) is not None for side in (old, new)):
        return old, new
    types: tuple[dict[str, pa.DataType], dict[str, pa.DataType]] = {}, {}
    there = set(new.schema.names)
    for name in old.schema.names:
        here = rename.get(name, name)
        rule = options.compare.get(here) or options.compare.get("number") or options.compare.get("*")
        if here not in there or not rule or parse_comparator(rule).tolerance not in ("abs", "rel"):
            continue
        kinds = old.schema.field(name).type, new.schema.field(here).type
        if pt.is_decimal(kinds[0]) and pt.is_floating(kinds[1]):
            types[0][name] = pa.float64()
        elif pt.is_floating(kinds[0]) and pt.is_decimal(kinds[1]):
            types[1][here] = pa.float64()
    return retype(old, types[0]), retype(new, types[1])


def _with_added(
    state: SignatureState | None, old: Relation, new: Relation, drift: Header, rename: Mapping[str, str]
) -> Relation:
    """The old side with the columns that the new one adds or retypes, in which its rows hold nothing."""
    if state is not None:
        raise InputError(
            "a state has no rows that added columns could be carried for",
            doing="comparing with saved signatures",
            hint="Compare with the old extract, or leave out carry (--carry)",
        )
    if isinstance(old, DatabaseRelation):
        if isinstance(new, DatabaseRelation):
            share_state(new, old)
        old = old.fetch()
    back = {after: name for name, after in rename.items()}
    types = {back.get(name, name): new.schema.field(name).type for name in (*drift.added, *drift.retyped)}
    return with_empty(written_out(old), types)


def _default_key(old: Relation, new: Relation, options: DiffOptions, rename: Mapping[str, str]) -> tuple[str, ...]:
    """The primary key of what is in databases, where no key was given: they know it, files don't."""
    tables = [side for side in (old, new) if isinstance(side, DatabaseRelation)]
    if not tables or options.duplicates == "count":
        return ()
    keys = {
        side.name: tuple(rename.get(name, name) if side is old else name for name in side.primary_key)
        for side in tables
        if not side.is_query
    }
    doing = "finding the key of the rows"
    for name, columns in keys.items():
        if not columns:
            raise KeysError(f"{name} has no primary key", doing=doing, hint=_COUNTED)
    if not keys:
        raise KeysError("a query has no primary key", doing=doing, hint=_COUNTED)
    if len(set(keys.values())) > 1:
        shown = " and ".join(f"({', '.join(columns)})" for columns in keys.values())
        raise KeysError(f"the primary keys differ: {shown}", doing=doing, hint=_COUNTED)
    return next(iter(keys.values()))


_COUNTED = "Name columns that identify rows (--key), or count equal rows (--duplicates count)"


@dataclass(frozen=True)
class Fetched:
    """Both sides as they are compared, and what of them was found equal without reading it."""

    old: Input
    new: Input
    equal: EqualRanges | None = None


def _fetched(old: Input, new: Input, comparison: Comparison, options: DiffOptions) -> Fetched:
    """Rows of databases put into the spool, of the columns that take part or of all, at one state of each database."""
    sides = [side for side in (new, old) if isinstance(side.relation, DatabaseRelation)]
    tables = [side.relation for side in sides if isinstance(side.relation, DatabaseRelation)]
    if len(tables) == 2:
        share_state(*tables)
    try:
        unequal = _unequal_rows(old, new, comparison, options)
        if unequal is not None:
            return Fetched(replace(old, relation=unequal.old), replace(new, relation=unequal.new), unequal.equal)
        fetched = {}
        for side, table in zip(sides, tables, strict=True):
            columns = None if options.save_state else side.side.columns
            key = [side.file_names()[name] for name in comparison.key]
            fetched[id(side)] = replace(side, relation=table.fetch(columns, key))
        return Fetched(fetched.get(id(old), old), fetched.get(id(new), new))
    finally:
        for table in tables:
            table.close()


def _unequal_rows(old: Input, new: Input, comparison: Comparison, options: DiffOptions) -> UnequalRows | None:
    """What checksums inside the databases leave to compare; None where all rows are wanted, or have to be read."""
    if not (isinstance(old.relation, DatabaseRelation) and isinstance(new.relation, DatabaseRelation)):
        return None
    whole = options.save_state or options.keep_sorted or options.verify or options.where
    if whole or options.algorithm != "auto" or options.duplicates != "error":
        return None
    names = [old.file_names(), new.file_names()]
    columns = [(names[0][name], names[1][name]) for name in new.side.names if name in names[0]]
    key = [(names[0][name], names[1][name]) for name in comparison.key]
    return unequal_rows(old.relation, new.relation, columns, key)


def _can_flow(
    frames: Sequence[DataFrame], old: Any, options: DiffOptions, running: tuple[str, SparkSession | None]
) -> bool:
    """Whether rows of DataFrames may flow: on Spark, once, by the one algorithm that takes rows as they come."""
    runner_name, session = running
    sessions = {id(frame.sparkSession) for frame in frames} | ({id(session)} if session is not None else set())
    once = options.save_state is None and options.keep_sorted is None and not options.verify
    by_hash = options.algorithm in ("auto", "hash") and old is not None and not isinstance(old, SignatureState)
    return runner_name != "inline" and len(sessions) == 1 and once and by_hash


def _comparison(
    old: pa.Schema, new: pa.Schema, key: Sequence[str], options: DiffOptions, rename: Mapping[str, str]
) -> Comparison:
    old = rename_fields(old, rename)
    _check_keys(old, new, key)
    chosen = _chosen(old, new, key, options)
    comparison = Comparison(
        old_schema=pa.schema([field for field in old if field.name in chosen]),
        new_schema=pa.schema([field for field in new if field.name in chosen]),
        key=() if options.duplicates == "count" else tuple(key),
        rules=options.compare,
        pair=options.duplicates == "pair" and bool(key),
    )
    comparison.check_schemas()
    if not comparison.comparators and not comparison.folding and options.compare:
        raise InputError("no column is left to compare by these rules", doing="reading --compare")
    if not comparison.key and comparison.rules and any(not r.is_equivalence for r in comparison.comparators.values()):
        raise InputError(
            "tolerances need a key: without one there is no telling which rows should be near each other",
            doing="reading --compare",
            hint="Give a key, or use trim, casefold or empty only",
        )
    return comparison


def _check_keys(old: pa.Schema, new: pa.Schema, key: Sequence[str]) -> None:
    sides = ((old, new, "on the old side"), (new, old, "on the new side"))
    for side, other, place in sides if key else ():
        cases = {name.casefold(): name for name in side.names}
        for name in key:
            if name in other.names and name not in side.names and name.casefold() in cases:
                raise KeysError(
                    f"key column {name!r} is {cases[name.casefold()]!r} {place}",
                    doing="reading the key",
                    hint="If case does not matter in the names of columns, say so: any_case=True (--any-case)",
                )
        check_key(side, key, place)


def _chosen(old: pa.Schema, new: pa.Schema, key: Sequence[str], options: DiffOptions) -> set[str]:
    """The columns that take part, under the new side's names."""
    there = set(new.names)
    both = pa.schema([*new, *(field for field in old if field.name not in there)])
    if options.columns:
        check_columns(both, options.columns, "choosing columns to compare")
        return {*options.columns, *key}
    if options.ignore:
        check_columns(both, options.ignore, "choosing columns to ignore")
    wrong = [name for name in options.ignore if name in key]
    if wrong:
        raise KeysError(f"key column {wrong[0]!r} can't be ignored", doing="choosing columns to ignore")
    return {name for name in both.names if name not in options.ignore}


def _inputs(met: _Meeting, options: DiffOptions) -> tuple[Input, Input]:
    """Both sides, as the comparison reads them."""
    kept = () if options.keep_sorted is None else met.new.schema.names
    return (
        read_through(met.old, met.comparison.old_schema_shared, options, met.rename),
        read_through(met.new, met.comparison.new_schema_shared, options, {}, kept=kept),
    )


def _check_keys_are_not_all_null(plan: DiffPlan) -> None:
    """A key of nothing but nulls is a mistake that statistics often show at once."""
    for side, given in (("old", plan.old), ("new", plan.new)) if not plan.comparison.pair else ():
        parts = given.parts(plan.comparison.key)
        rows = sum(part.rows for part in parts)
        nulls = [_known_nulls(parts, name) for name in plan.comparison.key]
        if rows > 1 and nulls and all(count == rows for count in nulls):
            raise KeysError(
                f"the key ({', '.join(plan.comparison.key)}) of the {side} side holds nothing but nulls",
                doing="reading the key",
                hint="Name columns that identify rows",
            )


def _known_nulls(parts: Sequence[Split], name: str) -> int | None:
    """How many nulls a column holds, where statistics of all parts tell."""
    known = [part.bounds[name].nulls for part in parts if name in part.bounds]
    return None if len(known) < len(parts) or None in known else sum(count or 0 for count in known)
